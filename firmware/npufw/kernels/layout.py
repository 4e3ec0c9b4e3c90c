"""Between memory layouts and logical arrays.

Invariant: lanes outside ``lane .. lane + C`` are neither read into a value nor written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Layout
from npuabi.geometry import LANES
from npuabi.records import TensorDescriptor

__all__ = ["load", "pixels", "store"]


def pixels(view: NDArray[Any], tensor: TensorDescriptor) -> NDArray[Any]:
    """Return the elements of an activation as N, H, W, C; copied only when bricks must be cut."""
    if tensor.layout is not Layout.NCHW16C:
        return view.transpose(0, 2, 3, 1)
    n, bricks, h, w, lanes = view.shape
    flat = view.transpose(0, 2, 3, 1, 4).reshape(n, h, w, bricks * lanes)
    return flat[..., tensor.lane : tensor.lane + tensor.dims[1]]


def load(view: NDArray[Any], tensor: TensorDescriptor) -> NDArray[Any]:
    """Return the elements of an activation as N, C, H, W."""
    return pixels(view, tensor).transpose(0, 3, 1, 2)


def store(view: NDArray[Any], tensor: TensorDescriptor, values: NDArray[Any]) -> None:
    """Write N, C, H, W *values* to *tensor*'s elements and to no other byte."""
    if tensor.layout is not Layout.NCHW16C:
        view[...] = values
        return
    n, channels, h, w = values.shape
    if tensor.lane == 0 and channels % LANES == 0:
        bricks = values.reshape(n, channels // LANES, LANES, h, w)
        view[...] = bricks.transpose(0, 1, 3, 4, 2)
        return
    _store_lanes(view, tensor.lane, np.asarray(values).transpose(0, 2, 3, 1))


def _store_lanes(view: NDArray[Any], lane: int, values: NDArray[Any]) -> None:
    channels = values.shape[3]
    for brick in range(view.shape[1]):
        first = max(brick * LANES - lane, 0)
        last = min((brick + 1) * LANES - lane, channels)
        at = first + lane - brick * LANES
        view[:, brick, :, :, at : at + last - first] = values[..., first:last]
