"""Constants as the hardware reads them: weight blocks and parameter tensors as bytes.

Lanes beyond the channels hold zero weights, zero bias and zero multipliers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout
from npuabi.geometry import LANES, Geometry
from npuabi.records import FloatParams, OpParams
from npuc.ir.core import Array
from npuc.ir.types import Buffer

__all__ = [
    "HEAD_BYTES",
    "bias_words",
    "block_bytes",
    "pack_blocks",
    "pack_bricks",
    "pack_depthwise",
    "pack_taps",
    "packed_bytes",
    "params_head",
]

HEAD_BYTES = OpParams.SIZE
_WORD = 4
_BLOCK_WORDS = {DType.I8: 3, DType.I16: 4, DType.F16: 1, DType.F32: 1}
"""Words a channel: bias, multiplier and shift; an i16 layer's bias has two, a float one only it."""

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
    """Return OIHW weights as oihw16i16o: blocks of 16 O, then 16 I, taps, 16 I x 16 O."""
    padded = _padded(weights, axes=(0, 1))
    o, i, kh, kw = padded.shape
    blocks = padded.reshape(o // LANES, LANES, i // LANES, LANES, kh, kw)
    return _bytes(blocks.transpose(0, 2, 4, 5, 3, 1))


def pack_taps(weights: Array) -> Bytes:
    """Return OIHW weights as oihw16o: blocks of 16 O, then taps, input channels, 16 O."""
    padded = _padded(weights, axes=(0,))
    o, i, kh, kw = padded.shape
    return _bytes(padded.reshape(o // LANES, LANES, i, kh, kw).transpose(0, 3, 4, 2, 1))


def pack_depthwise(weights: Array) -> Bytes:
    """Return C1HW weights as nchw16c: blocks of 16 C, then taps, 16 C."""
    padded = _padded(weights, axes=(0,))
    c, _, kh, kw = padded.shape
    return _bytes(padded.reshape(c // LANES, LANES, kh, kw).transpose(0, 2, 3, 1))


def block_bytes(dtype: DType) -> int:
    """Return the bytes of the parameters of 16 output channels of a layer of *dtype*."""
    return _BLOCK_WORDS[dtype] * LANES * _WORD


def pack_blocks(*words: Array) -> Bytes:
    """Return per-channel int32 words as blocks: 16 of the first kind, 16 of the second, ..."""
    rows = [_padded(a.astype("<i4"), axes=(0,)).reshape(-1, LANES) for a in words]
    return _bytes(np.stack(rows, axis=1))


def bias_words(bias: Array) -> list[Array]:
    """Return the low and the high int32 words of an int64 bias."""
    pairs = np.ascontiguousarray(bias, "<i8").view("<i4").reshape(-1, 2)
    return [pairs[:, 0], pairs[:, 1]]


def pack_floats(bias: Array) -> Bytes:
    """Return a float32 bias as blocks of 16."""
    return _bytes(_padded(bias.astype("<f4"), axes=(0,)))


def params_head(params: OpParams | FloatParams) -> Bytes:
    """Return the head of a parameters tensor."""
    return np.frombuffer(params.encode(), np.uint8)
