"""Where elements lie: what each layout makes of a tensor descriptor's dims and strides.

Every layout stores four counted dims, each with the descriptor's stride, around a contiguous
inner block. Strides are bytes between successive counts of that dim.

| layout | counted dims | inner block |
| --- | --- | --- |
| nchw | N, C, H, W | one element |
| nhwc | N, C, H, W (C innermost by its strides) | one element |
| nchw16c | N, brick = ceil((lane + C) / 16), H, W | 16 channels |
| oihw16i16o | ceil(O / 16), ceil(I / 16), KH, KW | 16 I x 16 O |
| oihw16o | ceil(O / 16), I, KH, KW | 16 O |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout

__all__ = ["LANES", "Geometry", "dense_strides", "device_axes", "device_dims", "merged", "runs_of"]

LANES = 16
"""Channels in a brick, rows and columns of a MAC array, bytes of a bank word."""

_INNER: dict[Layout, tuple[int, ...]] = {
    Layout.NCHW: (),
    Layout.NHWC: (),
    Layout.NCHW16C: (LANES,),
    Layout.OIHW16I16O: (LANES, LANES),
    Layout.OIHW16O: (LANES,),
}


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True, slots=True)
class Geometry:
    """Dims, strides, dtype and layout of a tensor, without its place."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    layout: Layout
    lane: int = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Steps in each of the four strided dims."""
        a, b, h, w = self.dims
        if self.layout is Layout.NCHW16C:
            b = -(-(self.lane + b) // LANES)
        elif self.layout in (Layout.OIHW16I16O, Layout.OIHW16O):
            a = -(-a // LANES)
            b = -(-b // LANES) if self.layout is Layout.OIHW16I16O else b
        return a, b, h, w

    @property
    def inner(self) -> tuple[int, ...]:
        """Dims of the contiguous inner block, in elements."""
        return _INNER[self.layout]

    @property
    def inner_bytes(self) -> int:
        """Bytes of the inner block."""
        return self.dtype.size * math.prod(self.inner)

    @property
    def extent(self) -> int:
        """Bytes from the base to the end of the last inner block."""
        a, b, h, w = self.counts
        of_a, of_b, of_h, of_w = self.strides
        reach = (a - 1) * of_a + (b - 1) * of_b + (h - 1) * of_h + (w - 1) * of_w
        return reach + self.inner_bytes

    def view(self, memory: NDArray[np.uint8], base: int) -> NDArray[Any]:
        """Return the elements at *base* of *memory* as an array ``counts + inner``, not copied."""
        size = self.dtype.size
        inner = tuple(size * LANES ** (len(self.inner) - 1 - i) for i in range(len(self.inner)))
        return np.ndarray(
            self.counts + self.inner,
            self.dtype.numpy,
            buffer=memory,
            offset=base,
            strides=self.strides + inner,
        )

    def runs(self) -> tuple[NDArray[np.int64], int]:
        """Return (offsets, bytes) of the contiguous runs that cover the counted blocks."""
        pairs, length = merged(self.counts, self.strides, self.inner_bytes)
        return runs_of(pairs), length


def merged(
    counts: Sequence[int], strides: Sequence[int], length: int
) -> tuple[list[tuple[int, int]], int]:
    """Return the (count, stride) pairs between contiguous runs, and the bytes of a run.

    There are *counts* blocks of *length* bytes in each dim, *strides* bytes apart.
    """
    pairs = [(n, s) for n, s in zip(counts, strides, strict=True) if n > 1]
    for pair in sorted(pairs, key=lambda p: p[1]):
        if pair[1] != length:
            continue
        length *= pair[0]
        pairs.remove(pair)
    return pairs, length


def runs_of(pairs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the sorted offsets of runs that lie (count, stride) apart."""
    offsets = np.zeros(1, np.int64)
    for n, stride in pairs:
        offsets = (offsets[:, None] + np.arange(n, dtype=np.int64) * stride).ravel()
    return np.sort(offsets)


def device_dims(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the device's N, C, H, W of a model's shape of rank 0 to 4.

    (N,C,W) -> (N,C,1,W); (N,C) -> (N,C,1,1); (C) -> (1,C,1,1); () -> (1,1,1,1).
    """
    dims = [int(n) for n in shape]
    if len(dims) == 1:
        dims = [1, *dims]
    if len(dims) == 3:
        dims.insert(2, 1)
    dims += [1] * (4 - len(dims))
    return dims[0], dims[1], dims[2], dims[3]


def device_axes(rank: int) -> tuple[int, ...]:
    """Return which of the device's four dims holds each dim of a shape of *rank* 0 to 4."""
    return {0: (), 1: (1,), 2: (0, 1), 3: (0, 1, 3), 4: (0, 1, 2, 3)}[rank]


def dense_strides(
    dims: tuple[int, ...], dtype: DType, layout: Layout, *, row_pitch: int = 1
) -> tuple[int, int, int, int]:
    """Return the strides of a tensor packed without gaps, rows padded to *row_pitch* bytes."""
    blocks = Geometry(dims, (0, 0, 0, 0), dtype, layout)
    _, b, h, w = blocks.counts
    inner = blocks.inner_bytes
    if layout is Layout.NHWC:
        row = _up(w * b * inner, row_pitch)
        return h * row, inner, row, b * inner
    if layout is Layout.OIHW16O:
        return h * w * b * inner, inner, w * b * inner, b * inner
    row = _up(w * inner, row_pitch)
    return b * h * row, h * row, row, inner
