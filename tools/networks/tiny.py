"""Two networks of MLPerf Tiny on sound: keyword spotting and anomaly detection."""

from __future__ import annotations

from itertools import pairwise

from tools.networks.mobilenet import PlainMobileNet
from tools.networks.network import Network
from tools.networks.resnet import RANDOM

__all__ = ["autoencoder", "ds_cnn"]

DS_CNN = f"""\
DS-CNN of MLPerf Tiny: keyword spotting on 49 frames of 10 cepstral coefficients.
{RANDOM}
Input: coefficients, about -2.0 to 2.0. Output: probabilities of 12 classes."""

AUTOENCODER = f"""\
Autoencoder of MLPerf Tiny: anomaly detection on 5 frames of 128 log-mel bands.
{RANDOM}
Input: bands, about -2.0 to 2.0. Output: the bands again; the error is the anomaly."""

WIDTHS = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)


def ds_cnn() -> str:
    """Return the text of models/ds_cnn.txt."""
    g = PlainMobileNet(
        name="ds_cnn",
        comment=DS_CNN,
        argument="mfcc",
        dims=(1, 1, 49, 10),
        calibration="ds_cnn_calib.npz",
    )
    y = g.activated("stem", "mfcc", (64, 1, 10, 4), 2, [4, 1, 5, 1])
    g.blank()
    for number in range(1, 5):
        y = g.separable(f"b{number}", y, (64, 64), 1)
    return g.head(y, 64, 12)


def autoencoder() -> str:
    """Return the text of models/autoencoder.txt."""
    g = Network(
        name="autoencoder",
        comment=AUTOENCODER,
        argument="spectrum",
        dims=(1, 640),
        calibration="autoencoder_calib.npz",
    )
    y = "spectrum"
    for number, (inputs, outputs) in enumerate(pairwise(WIDTHS), start=1):
        y = g.norm(f"d{number}_n", g.dense(f"d{number}", y, (outputs, inputs)), outputs)
        y = g.op(f"d{number}_r", "relu", y)
    g.blank()
    return g.finish(g.dense("bands", y, (640, 128), gain=1.0))
