"""Constants as the hardware reads them: weight blocks and parameter tensors as bytes.

Lanes beyond the channels hold zero weights, zero bias and zero multipliers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Layout
from npuabi.geometry import LANES, Geometry
from npuabi.records import OpParams
from npuc.ir.core import Array
from npuc.ir.types import Buffer

__all__ = [
    "BLOCK_BYTES",
    "HEAD_BYTES",
    "pack_blocks",
    "pack_bricks",
    "pack_depthwise",
    "pack_taps",
    "packed_bytes",
    "params_head",
]

HEAD_BYTES = OpParams.SIZE
BLOCK_BYTES = 3 * LANES * 4
"""Bytes of the bias, multiplier and shift words of 16 channels."""

Bytes = NDArray[np.uint8]


def _up(value: int) -> int:
    return -(-value // LANES) * LANES


def _padded(array: Array, *, axes: tuple[int, ...]) -> Array:
    widths = [(0, _up(n) - n if i in axes else 0) for i, n in enumerate(array.shape)]
    return np.pad(array, widths)


def _bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).view(np.uint8).ravel()


def packed_bytes(array: Array, buffer: Buffer) -> Bytes:
    """Return the bytes of an activation: *array* of its logical shape, as *buffer* lies."""
    tensor = buffer.tensor
    layout = tensor.layout or Layout.NCHW
    geometry = Geometry(tensor.dims, buffer.strides, tensor.dtype, layout, buffer.lane)
    memory = np.zeros(geometry.extent, np.uint8)
    view = geometry.view(memory, 0)
    logical = array.reshape(tensor.dims)
    if layout is Layout.NCHW16C:
        padded = _padded(logical, axes=(1,))
        n, c, h, w = padded.shape
        view[...] = padded.reshape(n, c // LANES, LANES, h, w).transpose(0, 1, 3, 4, 2)
    else:
        view[...] = logical
    return memory


def pack_bricks(weights: Array) -> Bytes:
    """Return OIHW int8 weights as oihw16i16o: blocks of 16 O, then 16 I, taps, 16 I x 16 O."""
    padded = _padded(weights, axes=(0, 1))
    o, i, kh, kw = padded.shape
    blocks = padded.reshape(o // LANES, LANES, i // LANES, LANES, kh, kw)
    return _bytes(blocks.transpose(0, 2, 4, 5, 3, 1))


def pack_taps(weights: Array) -> Bytes:
    """Return OIHW int8 weights as oihw16o: blocks of 16 O, then taps, input channels, 16 O."""
    padded = _padded(weights, axes=(0,))
    o, i, kh, kw = padded.shape
    return _bytes(padded.reshape(o // LANES, LANES, i, kh, kw).transpose(0, 3, 4, 2, 1))


def pack_depthwise(weights: Array) -> Bytes:
    """Return C1HW int8 weights as nchw16c: blocks of 16 C, then taps, 16 C."""
    padded = _padded(weights, axes=(0,))
    c, _, kh, kw = padded.shape
    return _bytes(padded.reshape(c // LANES, LANES, kh, kw).transpose(0, 2, 3, 1))


def pack_blocks(bias: Array, multiplier: Array, shift: Array) -> Bytes:
    """Return per-channel int32 words as blocks of bias[16], multiplier[16], shift[16]."""
    words = [
        _padded(a.astype("<i4"), axes=(0,)).reshape(-1, LANES) for a in (bias, multiplier, shift)
    ]
    return _bytes(np.stack(words, axis=1))


def params_head(params: OpParams) -> Bytes:
    """Return the head of a parameters tensor."""
    return np.frombuffer(OpParams.encode_many([params]), np.uint8)
