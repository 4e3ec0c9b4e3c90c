"""The networks of models/ that have made-up weights, and the samples that calibrate them.

Invariant: NETWORKS and SAMPLES are complete; texts and arrays follow from the seeds in this
package, bit for bit on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.networks.conv_bn_relu import conv_bn_relu
from tools.networks.mobilenet import mobilenet_v1, mobilenet_v1_025_96, mobilenet_v2
from tools.networks.resnet import resnet8, resnet18, resnet50
from tools.networks.samples import SAMPLES
from tools.networks.tiny import autoencoder, ds_cnn
from tools.networks.transformer import transformer
from tools.networks.unet import unet

__all__ = ["NETWORKS", "SAMPLES"]

NETWORKS: dict[str, Callable[[], str]] = {
    "autoencoder": autoencoder,
    "conv_bn_relu": conv_bn_relu,
    "ds_cnn": ds_cnn,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v1_025_96": mobilenet_v1_025_96,
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet8": resnet8,
    "transformer": transformer,
    "unet": unet,
}
"""What returns the text of ``models/NAME.txt``."""
