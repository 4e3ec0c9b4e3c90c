"""A small U-Net: pixels to classes, with both ways of going up again."""

from __future__ import annotations

from tools.networks.network import Network
from tools.networks.resnet import NONE, RANDOM, SAME

__all__ = ["unet"]

UNET = f"""\
A small U-Net, three levels of 8, 16 and 32 channels, for 64x64 images. One step up is a transposed
convolution, the other a bilinear resize.
{RANDOM}
Input: RGB image, 0.0 to 1.0. Output: probabilities of 4 classes for each pixel."""

WIDTHS = (8, 16, 32)


class UNet(Network):
    """A network of pairs of 3x3 convolutions."""

    def pair(self, name: str, x: str, inputs: int, outputs: int) -> str:
        """Add two 3x3 convolutions with norm and relu."""
        for part, channels in (("a", inputs), ("b", outputs)):
            y = self.conv(f"{name}_{part}", x, (outputs, channels, 3, 3), 1, SAME)
            x = self.op(f"{name}_{part}r", "relu", self.norm(f"{name}_{part}n", y, outputs))
        self.blank()
        return x

    def transposed(self, name: str, x: str, inputs: int, outputs: int) -> str:
        """Add a 2x2 transposed convolution of stride 2: each pixel becomes four, none overlap."""
        weights = self.random(f"{name}_w", 0.0, (2 / inputs) ** 0.5, inputs, outputs, 2, 2)
        bias = self.random(f"{name}_b", 0.0, 0.05, outputs)
        return self.op(name, "conv_transpose2d", x, weights, bias, strides=[2, 2])

    def resized(self, name: str, x: str) -> str:
        """Double rows and columns bilinearly."""
        return self.op(name, "resize", x, scales=[1.0, 1.0, 2.0, 2.0], mode="linear")


def unet() -> str:
    """Return the text of models/unet.txt."""
    g = UNet(
        name="unet",
        comment=UNET,
        argument="image",
        dims=(1, 3, 64, 64),
        calibration="unet_calib.npz",
    )
    top, middle, bottom = WIDTHS
    first = g.pair("down1", "image", 3, top)
    y = g.op("pool1", "max_pool2d", first, kernel_shape=[2, 2], strides=[2, 2])
    second = g.pair("down2", y, top, middle)
    y = g.op("pool2", "max_pool2d", second, kernel_shape=[2, 2], strides=[2, 2])
    y = g.pair("bottom", y, middle, bottom)
    y = g.op("joined2", "concat", second, g.transposed("up2", y, bottom, middle), axis=1)
    y = g.pair("back2", y, 2 * middle, middle)
    y = g.op("joined1", "concat", first, g.resized("up1", y), axis=1)
    y = g.pair("back1", y, top + middle, top)
    y = g.conv("logits", y, (4, top, 1, 1), 1, NONE, bias=True)
    return g.finish(g.op("probabilities", "softmax", y, axis=1))
