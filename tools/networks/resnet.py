"""Residual networks: ResNet-8 of MLPerf Tiny, ResNet-18 and ResNet-50."""

from __future__ import annotations

from itertools import pairwise

from tools.networks.network import Network, Pads

__all__ = ["resnet8", "resnet18", "resnet50"]

RANDOM = "Weights are random (tools/make_models.py): for shapes, bits and cycles, not for answers."

RESNET8 = f"""\
ResNet-8 of MLPerf Tiny: three stacks of 16, 32 and 64 channels on CIFAR-sized images.
{RANDOM}
Input: RGB image, 0.0 to 1.0. Output: probabilities of 10 classes."""

RESNET18 = f"""\
ResNet-18, version 1, for 224x224 images.
{RANDOM}
Input: RGB image, 0.0 to 1.0. Output: probabilities of 1000 classes."""

RESNET50 = f"""\
ResNet-50, version 1.5 (a block's stride is in its 3x3 convolution), for 224x224 images.
{RANDOM}
Input: RGB image, 0.0 to 1.0. Output: probabilities of 1000 classes."""

SAME: Pads = [1, 1, 1, 1]
NONE: Pads = [0, 0, 0, 0]


class ResNet(Network):
    """A residual network of blocks with two 3x3 convolutions."""

    def block(self, name: str, x: str, channels: tuple[int, int], *, stride: int = 1) -> str:
        """Add two 3x3 convolutions beside the identity or a 1x1 convolution."""
        inputs, outputs = channels
        first = self.conv(f"{name}_a", x, (outputs, inputs, 3, 3), stride, self.pads(stride))
        y = self.op(f"{name}_ar", "relu", self.norm(f"{name}_an", first, outputs))
        y = self.conv(f"{name}_b", y, (outputs, outputs, 3, 3), 1, SAME)
        # Half the weight beside the identity: the deviation grows by a tenth a block, not by 40 %.
        y = self.norm(f"{name}_bn", y, outputs, gamma=0.5)
        shortcut = x if stride == 1 else self.shortcut(f"{name}_s", x, channels, stride)
        return self.joined(name, y, shortcut)

    def joined(self, name: str, y: str, shortcut: str) -> str:
        """End a block: add and relu."""
        result = self.op(f"{name}_r", "relu", self.op(name, "add", y, shortcut))
        self.blank()
        return result

    def pads(self, stride: int) -> Pads:
        """Pads of a block's convolution that may have a stride: the same on all sides."""
        return SAME

    def shortcut(self, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
        """Add the 1x1 convolution that fits the identity to the block's output."""
        y = self.conv(name, x, (channels[1], channels[0], 1, 1), stride, NONE)
        return self.norm(f"{name}n", y, channels[1])


class TinyResNet(ResNet):
    """What MLPerf Tiny does its own way: SAME padding, shortcuts with a bias and no norm."""

    def pads(self, stride: int) -> Pads:
        """Pads of a block's first convolution: with stride 2 SAME pads the far sides only."""
        return SAME if stride == 1 else [0, 0, 1, 1]

    def shortcut(self, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
        """Add a 1x1 convolution with bias."""
        return self.conv(name, x, (channels[1], channels[0], 1, 1), stride, NONE, bias=True)


class Bottlenecks(ResNet):
    """A residual network of 1x1, 3x3, 1x1 blocks; the last widens four times."""

    def bottleneck(
        self, name: str, x: str, channels: tuple[int, int], width: int, *, stride: int = 1
    ) -> str:
        """Add a block from and to *channels* through *width*."""
        inputs, outputs = channels
        y = self.conv(f"{name}_a", x, (width, inputs, 1, 1), 1, NONE)
        y = self.op(f"{name}_ar", "relu", self.norm(f"{name}_an", y, width))
        y = self.conv(f"{name}_b", y, (width, width, 3, 3), stride, SAME)
        y = self.op(f"{name}_br", "relu", self.norm(f"{name}_bn", y, width))
        y = self.conv(f"{name}_c", y, (outputs, width, 1, 1), 1, NONE)
        y = self.norm(f"{name}_cn", y, outputs, gamma=0.5)
        plain = inputs == outputs and stride == 1
        shortcut = x if plain else self.shortcut(f"{name}_s", x, channels, stride)
        return self.joined(name, y, shortcut)


def _stem(g: Network) -> str:
    """Add what ResNets on 224x224 images begin with."""
    y = g.conv("stem", "image", (64, 3, 7, 7), 2, [3, 3, 3, 3])
    y = g.op("stem_r", "relu", g.norm("stem_n", y, 64))
    y = g.op("stem_p", "max_pool2d", y, kernel_shape=[3, 3], strides=[2, 2], pads=SAME)
    g.blank()
    return y


def resnet8() -> str:
    """Return the text of models/resnet8.txt."""
    g = TinyResNet(
        name="resnet8",
        comment=RESNET8,
        argument="image",
        dims=(1, 3, 32, 32),
        calibration="resnet8_calib.npz",
    )
    y = g.conv("stem", "image", (16, 3, 3, 3), 1, SAME)
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
        calibration="images_224_calib.npz",
    )
    y = _stem(g)
    widths = (64, 64, 128, 256, 512)
    for stack, channels in enumerate(pairwise(widths), start=1):
        y = g.block(f"s{stack}a", y, channels, stride=1 if stack == 1 else 2)
        y = g.block(f"s{stack}b", y, (channels[1], channels[1]))
    return g.head(y, 512, 1000)


def resnet50() -> str:
    """Return the text of models/resnet50.txt."""
    g = Bottlenecks(
        name="resnet50",
        comment=RESNET50,
        argument="image",
        dims=(1, 3, 224, 224),
        calibration="images_224_calib.npz",
    )
    y, inputs = _stem(g), 64
    for stack, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            stride = 2 if block == 0 and stack > 1 else 1
            name = f"s{stack}{'abcdef'[block]}"
            y = g.bottleneck(name, y, (inputs, 4 * width), width, stride=stride)
            inputs = 4 * width
    return g.head(y, 2048, 1000)
