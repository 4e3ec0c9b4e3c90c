"""Calibration samples of the networks with made-up weights: seeded, and small when packed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from npuabi.generator import samples

__all__ = ["SAMPLES"]

GRID = 9  # points a side of an image before it is enlarged
Samples = dict[str, NDArray[np.float32]]


def images(seed: int, count: int, size: int) -> NDArray[np.float32]:
    """Return smooth seeded images, (count, 3, size, size) float32 in 0..1.

    A coarse grid is enlarged bilinearly; every value is a multiple of 1/256, so that the file packs
    well and float64 sums of them are exact.
    """
    return _smooth(
        samples(seed, count * 3 * GRID * GRID, mean=0.5, std=0.3), count, 3, (size, size)
    )


def features(seed: int, count: int, height: int, width: int) -> NDArray[np.float32]:
    """Return smooth seeded features of sound, (count, 1, height, width) float32 in -2..2."""
    drawn = samples(seed, count * GRID * GRID, mean=0.5, std=0.3)
    return np.asarray(_smooth(drawn, count, 1, (height, width)) * 4 - 2, np.float32)


def tokens(seed: int, count: int, length: int, width: int) -> NDArray[np.float32]:
    """Return seeded tokens, (count, length, width) float32 of deviation 1, multiples of 1/8."""
    drawn = samples(seed, count * length * width).astype(np.float64)
    return np.asarray(np.rint(drawn * 8) / 8, np.float32).reshape(count, length, width)


def _smooth(
    drawn: NDArray[np.float32], count: int, channels: int, size: tuple[int, int]
) -> NDArray[np.float32]:
    grid = drawn.clip(0, 1).reshape(count, channels, GRID, GRID).astype(np.float64)
    grid = np.rint(grid * 256)
    (top, below), (left, right) = (_between(extent) for extent in size)
    rows = grid[:, :, top] * (1 - below)[:, None] + grid[:, :, top + 1] * below[:, None]
    smooth = rows[..., left] * (1 - right) + rows[..., left + 1] * right
    return np.asarray(np.floor(smooth) / 256, np.float32)


def _between(extent: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the grid point before each of *extent* positions, and how far behind it they lie."""
    at = np.arange(extent) * (GRID - 1) / extent
    low = at.astype(np.int64)
    return low, at - low


SAMPLES: dict[str, Callable[[], Samples]] = {
    "autoencoder_calib": lambda: {"spectrum": features(5, 16, 1, 640).reshape(16, 640)},
    "conv_bn_relu_calib": lambda: {"image": images(1, 16, 32)},
    "ds_cnn_calib": lambda: {"mfcc": features(4, 16, 49, 10)},
    "images_96_calib": lambda: {"image": images(6, 8, 96)},
    "images_224_calib": lambda: {"image": images(3, 4, 224)},
    "transformer_calib": lambda: {"tokens": tokens(8, 8, 32, 64)},
    "unet_calib": lambda: {"image": images(7, 4, 64)},
    "resnet8_calib": lambda: {"image": images(2, 16, 32)},
}
"""What returns the arrays of ``models/NAME.npz``."""
