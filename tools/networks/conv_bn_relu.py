"""Conv-BN-ReLU: the smallest graph worth fusing, written out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuabi.generator import samples

__all__ = ["conv_bn_relu", "conv_bn_relu_weights"]

TEXT = """\
// Conv-BN-ReLU: the smallest graph worth fusing.
graph @conv_bn_relu(%image: tensor<1x3x32x32xf32>) \
attributes {calibration = "conv_bn_relu_calib.npz"} {
  %w     = const file("conv_bn_relu.npz", "w") : tensor<16x3x3x3xf32>
  %gamma = const random(seed = 7, mean = 1.0, std = 0.05) : tensor<16xf32>
  %beta  = const splat(0.1) : tensor<16xf32>
  %mean  = const splat(0.0) : tensor<16xf32>
  %var   = const splat(1.0) : tensor<16xf32>
  %c = conv2d(%image, %w) {strides = [1, 1], pads = [1, 1, 1, 1]} : tensor<1x16x32x32xf32>
  %n = batch_norm(%c, %gamma, %beta, %mean, %var) {epsilon = 1e-05}
  %y = relu(%n)
  %p, %q = split(%y) {axis = 1, split = [8, 8]}
  return %p, %q
}
"""


def conv_bn_relu() -> str:
    """Return the text of models/conv_bn_relu.txt."""
    return TEXT


def conv_bn_relu_weights() -> NDArray[np.float32]:
    """Return its weights, (16, 3, 3, 3) float32."""
    return samples(5, 16 * 27, std=(2 / 27) ** 0.5).reshape(16, 3, 3, 3)
