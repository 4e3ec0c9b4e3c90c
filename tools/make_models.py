"""Write the models with made-up weights: conv_bn_relu, resnet8 and resnet18.

Run as ``python -m tools.make_models [FOLDER]``. Invariant: texts and arrays follow from the seeds
here, bit for bit on every machine; random weights have He's deviation, so that a signal neither
dies nor explodes on its way down.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npuabi.generator import samples
from tools.archive import write_npz
from tools.graph_text import GraphText

__all__ = ["main", "resnet8", "resnet18", "write_models"]

CONV_BN_RELU = """\
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

RESNET8 = """\
ResNet-8 of MLPerf Tiny: three stacks of 16, 32 and 64 channels on CIFAR-sized images.
Weights are random (tools/make_models.py): for shapes, bits and cycles, not for answers.
Input: RGB image, 0.0 to 1.0. Output: probabilities of 10 classes."""

RESNET18 = """\
ResNet-18, version 1, for 224x224 images.
Weights are random (tools/make_models.py): for shapes, bits and cycles, not for answers.
Input: RGB image, 0.0 to 1.0. Output: probabilities of 1000 classes."""

GRID = 9  # points a side of a calibration image before it is enlarged
Pads = Sequence[int]


class ResNet(GraphText):
    """Graph text of a residual network; each random constant has the next seed."""

    seed = 0

    def random(self, name: str, mean: float, std: float, *dims: int) -> str:
        """Add a constant of the documented generator."""
        self.seed += 1
        source = f"random(seed = {self.seed}, mean = {mean!r}, std = {round(std, 6)!r})"
        return self.constant(name, source, *dims)

    def conv(
        self, name: str, x: str, shape: tuple[int, ...], stride: int, pads: Pads, *, bias: bool
    ) -> str:
        """Add a convolution whose weights have He's deviation."""
        fan_in = shape[1] * shape[2] * shape[3]
        operands = [x, self.random(f"{name}_w", 0.0, (2 / fan_in) ** 0.5, *shape)]
        if bias:
            operands.append(self.random(f"{name}_b", 0.0, 0.05, shape[0]))
        return self.op(name, "conv2d", *operands, strides=[stride, stride], pads=pads)

    def norm(self, name: str, x: str, channels: int, *, gamma: float = 1.0) -> str:
        """Add a batch norm with *gamma* on average."""
        self.random(f"{name}_gamma", gamma, 0.05, channels)
        self.random(f"{name}_beta", 0.0, 0.1, channels)
        self.random(f"{name}_mean", 0.0, 0.05, channels)
        self.constant(f"{name}_var", "splat(1.0)", channels)
        statistics = [f"{name}_{part}" for part in ("gamma", "beta", "mean", "var")]
        return self.op(name, "batch_norm", x, *statistics, epsilon=1e-05)

    def block(self, name: str, x: str, channels: tuple[int, int], *, stride: int = 1) -> str:
        """Add two 3x3 convolutions beside the identity or a 1x1 convolution."""
        inputs, outputs = channels
        first = self.conv(
            f"{name}_a", x, (outputs, inputs, 3, 3), stride, self.stride_pads(stride), bias=False
        )
        y = self.op(f"{name}_ar", "relu", self.norm(f"{name}_an", first, outputs))
        y = self.conv(f"{name}_b", y, (outputs, outputs, 3, 3), 1, [1, 1, 1, 1], bias=False)
        # Half the weight beside the identity: the deviation grows by a tenth a block, not by 40 %.
        y = self.norm(f"{name}_bn", y, outputs, gamma=0.5)
        shortcut = x if stride == 1 else self.shortcut(f"{name}_s", x, channels)
        result = self.op(f"{name}_r", "relu", self.op(name, "add", y, shortcut))
        self.blank()
        return result

    def stride_pads(self, stride: int) -> Pads:
        """Pads of a block's first convolution: the same on all sides."""
        return [1, 1, 1, 1]

    def shortcut(self, name: str, x: str, channels: tuple[int, int]) -> str:
        """Add the 1x1 convolution of stride 2 that fits the identity to the block's output."""
        y = self.conv(name, x, (channels[1], channels[0], 1, 1), 2, [0, 0, 0, 0], bias=False)
        return self.norm(f"{name}n", y, channels[1])

    def head(self, x: str, channels: int, classes: int) -> str:
        """Add global pooling, dense and softmax; return the finished text."""
        self.op("pooled", "global_avg_pool", x)
        self.op("features", "flatten", "pooled")
        self.random("fc_w", 0.0, 2 / channels**0.5, classes, channels)
        self.random("fc_b", 0.0, 0.1, classes)
        self.op("logits", "dense", "features", "fc_w", "fc_b")
        return self.finish(self.op("probabilities", "softmax", "logits", axis=1))


class TinyResNet(ResNet):
    """What MLPerf Tiny does its own way: SAME padding, shortcuts with a bias and no norm."""

    def stride_pads(self, stride: int) -> Pads:
        """Pads of a block's first convolution: with stride 2 SAME pads the far sides only."""
        return [1, 1, 1, 1] if stride == 1 else [0, 0, 1, 1]

    def shortcut(self, name: str, x: str, channels: tuple[int, int]) -> str:
        """Add a 1x1 convolution with bias."""
        return self.conv(name, x, (channels[1], channels[0], 1, 1), 2, [0, 0, 0, 0], bias=True)


def resnet8() -> str:
    """Return the text of models/resnet8.txt."""
    g = TinyResNet(
        name="resnet8",
        comment=RESNET8,
        argument="image",
        dims=(1, 3, 32, 32),
        calibration="resnet8_calib.npz",
    )
    y = g.conv("stem", "image", (16, 3, 3, 3), 1, [1, 1, 1, 1], bias=False)
    y = g.op("stem_r", "relu", g.norm("stem_n", y, 16))
    g.blank()
    y = g.block("s1", y, (16, 16))
    y = g.block("s2", y, (16, 32), stride=2)
    y = g.block("s3", y, (32, 64), stride=2)
    return g.head(y, 64, 10)


def resnet18() -> str:
    """Return the text of models/resnet18.txt."""
    g = ResNet(
        name="resnet18",
        comment=RESNET18,
        argument="image",
        dims=(1, 3, 224, 224),
        calibration="resnet18_calib.npz",
    )
    y = g.conv("stem", "image", (64, 3, 7, 7), 2, [3, 3, 3, 3], bias=False)
    y = g.op("stem_r", "relu", g.norm("stem_n", y, 64))
    y = g.op("stem_p", "max_pool2d", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    g.blank()
    widths = (64, 64, 128, 256, 512)
    for stack, channels in enumerate(pairwise(widths), start=1):
        y = g.block(f"s{stack}a", y, channels, stride=1 if stack == 1 else 2)
        y = g.block(f"s{stack}b", y, (channels[1], channels[1]))
    return g.head(y, 512, 1000)


def images(seed: int, count: int, size: int) -> NDArray[np.float32]:
    """Return smooth seeded images, (count, 3, size, size) float32 in 0..1.

    A coarse grid is enlarged bilinearly; every value is a multiple of 1/256, so that the file packs
    well and float64 sums of them are exact.
    """
    coarse = samples(seed, count * 3 * GRID * GRID, mean=0.5, std=0.3).clip(0, 1)
    grid = np.rint(coarse.reshape(count, 3, GRID, GRID).astype(np.float64) * 256)
    at = np.arange(size) * (GRID - 1) / size
    low = at.astype(int)
    far = at - low
    rows = grid[:, :, low] * (1 - far)[:, None] + grid[:, :, low + 1] * far[:, None]
    smooth = rows[..., low] * (1 - far) + rows[..., low + 1] * far
    return np.asarray(np.floor(smooth) / 256, np.float32)


def conv_bn_relu_weights() -> NDArray[np.float32]:
    """Return the weights of conv_bn_relu, (16, 3, 3, 3) float32."""
    return samples(5, 16 * 27, std=(2 / 27) ** 0.5).reshape(16, 3, 3, 3)


def write_models(folder: Path) -> None:
    """Write the three texts with their weights and calibration images."""
    texts = {"conv_bn_relu": CONV_BN_RELU, "resnet8": resnet8(), "resnet18": resnet18()}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
    write_npz(folder / "conv_bn_relu.npz", {"w": conv_bn_relu_weights()})
    write_npz(folder / "conv_bn_relu_calib.npz", {"image": images(1, 16, 32)})
    write_npz(folder / "resnet8_calib.npz", {"image": images(2, 16, 32)})
    write_npz(folder / "resnet18_calib.npz", {"image": images(3, 4, 224)})


def main() -> None:
    """Write the models to the folder that is named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("models"))
    write_models(parser.parse_args().folder)


if __name__ == "__main__":
    main()
