"""MobileNet, versions 1 and 2: depthwise-separable convolutions and inverted residuals."""

from __future__ import annotations

from tools.networks.network import Network, Pads
from tools.networks.resnet import RANDOM

__all__ = ["mobilenet_v1", "mobilenet_v1_025_96", "mobilenet_v2"]

V1 = f"""\
MobileNet, version 1, width 1.0, for 224x224 images.
{RANDOM}
Input: RGB image, 0.0 to 1.0. Output: probabilities of 1000 classes."""

V1_025_96 = f"""\
MobileNet, version 1, width 0.25, for 96x96 images: visual wake words of MLPerf Tiny.
{RANDOM}
Input: RGB image, 0.0 to 1.0. Output: probabilities of 2 classes."""

V2 = f"""\
MobileNet, version 2, width 1.0, for 224x224 images.
{RANDOM}
Input: RGB image, 0.0 to 1.0. Output: probabilities of 1000 classes."""

NONE: Pads = [0, 0, 0, 0]

V1_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1)),
    *((512, 2), (512, 1), (512, 1), (512, 1), (512, 1), (512, 1)),
    *((1024, 2), (1024, 1)),
)
"""Outputs and stride of version 1's blocks."""

V2_STACKS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
"""Expansion, outputs, blocks and first stride of version 2's stacks (table 2 of its paper)."""


class MobileNet(Network):
    """A network of depthwise and 1x1 convolutions, each with batch norm."""

    activation = "relu6"

    def activated(
        self, name: str, x: str, shape: tuple[int, ...], stride: int, pads: Pads, *, group: int = 1
    ) -> str:
        """Add convolution, norm and activation."""
        y = self.conv(name, x, shape, stride, pads, group=group)
        y = self.norm(f"{name}_n", y, shape[0])
        return self.op(f"{name}_r", self.activation, y)

    def depthwise(self, name: str, x: str, channels: int, stride: int) -> str:
        """Add a 3x3 convolution of each channel with itself."""
        return self.activated(
            name, x, (channels, 1, 3, 3), stride, self.pads(stride), group=channels
        )

    def pads(self, stride: int) -> Pads:
        """Return TensorFlow's SAME pads of a 3x3 kernel on an even size."""
        return [1, 1, 1, 1] if stride == 1 else [0, 0, 1, 1]

    def separable(self, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
        """Add a block of version 1."""
        inputs, outputs = channels
        y = self.depthwise(f"{name}_d", x, inputs, stride)
        y = self.activated(f"{name}_p", y, (outputs, inputs, 1, 1), 1, NONE)
        self.blank()
        return y


class PlainMobileNet(MobileNet):
    """As MLPerf Tiny has it: activations without an upper end."""

    activation = "relu"


class MobileNet2(MobileNet):
    """Version 2 as torchvision has it: symmetric pads."""

    def pads(self, stride: int) -> Pads:
        """Return the same pads on all sides."""
        return [1, 1, 1, 1]

    def inverted(
        self, name: str, x: str, channels: tuple[int, int], expansion: int, stride: int
    ) -> str:
        """Add a block: widen, depthwise, narrow without activation; add the input if it fits."""
        inputs, outputs = channels
        width = inputs * expansion
        y = x if expansion == 1 else self.activated(f"{name}_e", x, (width, inputs, 1, 1), 1, NONE)
        y = self.depthwise(f"{name}_d", y, width, stride)
        y = self.conv(f"{name}_p", y, (outputs, width, 1, 1), 1, NONE)
        # He's deviation is for what an activation follows; here none halves the square.
        y = self.norm(f"{name}_pn", y, outputs, gamma=0.7)
        if stride == 1 and inputs == outputs:
            y = self.op(name, "add", y, x)
        self.blank()
        return y


def _version_1(g: MobileNet, eighths: int, classes: int) -> str:
    width = [32 * eighths // 8]
    y = g.activated("stem", "image", (width[0], 3, 3, 3), 2, g.pads(2))
    g.blank()
    for number, (outputs, stride) in enumerate(V1_BLOCKS, start=1):
        width.append(outputs * eighths // 8)
        y = g.separable(f"b{number}", y, (width[-2], width[-1]), stride)
    # Thousand probabilities are below half a step of 1/256 unless some logits stand out.
    return g.head(y, width[-1], classes, spread=8.0 if classes == 1000 else 2.0)


def mobilenet_v1() -> str:
    """Return the text of models/mobilenet_v1.txt."""
    g = MobileNet(
        name="mobilenet_v1",
        comment=V1,
        argument="image",
        dims=(1, 3, 224, 224),
        calibration="images_224_calib.npz",
    )
    return _version_1(g, 8, 1000)


def mobilenet_v1_025_96() -> str:
    """Return the text of models/mobilenet_v1_025_96.txt."""
    g = PlainMobileNet(
        name="mobilenet_v1_025_96",
        comment=V1_025_96,
        argument="image",
        dims=(1, 3, 96, 96),
        calibration="images_96_calib.npz",
    )
    return _version_1(g, 2, 2)


def mobilenet_v2() -> str:
    """Return the text of models/mobilenet_v2.txt."""
    g = MobileNet2(
        name="mobilenet_v2",
        comment=V2,
        argument="image",
        dims=(1, 3, 224, 224),
        calibration="images_224_calib.npz",
    )
    y, inputs = g.activated("stem", "image", (32, 3, 3, 3), 2, g.pads(2)), 32
    g.blank()
    for stack, (expansion, outputs, blocks, first) in enumerate(V2_STACKS, start=1):
        for block in range(blocks):
            stride = first if block == 0 else 1
            name = f"s{stack}{'abcd'[block]}"
            y = g.inverted(name, y, (inputs, outputs), expansion, stride)
            inputs = outputs
    y = g.activated("last", y, (1280, 320, 1, 1), 1, NONE)
    return g.head(y, 1280, 1000)
