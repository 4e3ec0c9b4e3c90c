"""Pools, of whatever number of axes: the 2d and 1d forms are these, each with its fields.

A line is a plane of one row. Invariant: a mean is over the in-bounds taps; with count_include_pad
also over those in the pads, which hold 0, and never over what ceil mode adds beyond them (C03).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_pool
from npuc.npu.tasks import AvgPool, GlobalAvgPool, MaxPool
from npuc.ops.limits import COMMON, WINDOW
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
    require_tied,
)
from npuc.ops.shapes import flag, plane, pool_shape, window_of
from npuc.reference import (
    average_codes,
    average_codes_even,
    dequantize_codes,
    global_average_codes,
    window_views,
)
from npuc.window import Window

__all__ = ["COUNT_INCLUDE_PAD", "STORAGE_ORDER", "AvgPooling", "MaxPooling", "Pooling"]

COUNT_INCLUDE_PAD = attr("1 counts padded taps as zeros", AttrKind.INT, default=0)
STORAGE_ORDER = attr("0 only: row-major", AttrKind.INT, default=0)

_POINT = Window(kernel=(1, 1))


class Pooling(Op):
    """What all pools share."""

    LIMITS = (*COMMON, WINDOW)
    TIED = True
    STACKS = True
    SIDES: ClassVar[tuple[str, ...]] = ("H", "W")
    """Names of the dims that the window slides over."""

    x: Value
    kernel_shape: Sequence[int]

    @property
    def window(self) -> Window:
        """Kernel, strides, dilations and the pads that auto_pad comes to."""
        return window_of(self, self.kernel_shape, self.x.tensor.shape[2:])

    def infer(self) -> Sequence[Type]:
        """Return (N, C, OH, OW), or (N, C, OW)."""
        require_dtypes(self.x)
        shape = pool_shape(self.x.tensor.shape, self.SIDES, lambda: self.window)
        return [self.x.tensor.with_shape(shape)]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return what ``pooled`` makes of the planes."""
        x = np.asarray(operands[0])
        rows, columns = (-1 if d is None else d for d in plane(x.shape))
        y = self.pooled(x.reshape(*x.shape[:2], rows, columns), rounding)
        return (y.reshape(*y.shape[:2], *y.shape[4 - len(self.SIDES) :]),)

    def pooled(self, x: Array, rounding: Rounding) -> Array:
        """Return the pool of N, C, H, W elements."""
        raise NotImplementedError(self.NAME)


class MaxPooling(Pooling):
    """What max_pool2d and max_pool1d share."""

    storage_order: int

    def infer(self) -> Sequence[Type]:
        """Return (N, C, OH, OW), or (N, C, OW)."""
        if self.storage_order != 0:
            raise ValueError(f"storage_order is 0 (row-major), got {self.storage_order}")
        return super().infer()

    def pooled(self, x: Array, rounding: Rounding) -> Array:
        """Return the maxima."""
        if is_quantised(self.x):
            below = int(np.iinfo(x.dtype).min) - 1
            views = window_views(x.astype(np.int64), self.window, below)
            codes: Array = views.max(axis=(4, 5)).astype(x.dtype)
            return codes
        largest: Array = window_views(x.astype(np.float64), self.window, -np.inf).max(axis=(4, 5))
        return largest

    def lower(self, builder: Builder) -> None:
        """Append a max pool task."""
        lower_pool(builder, MaxPool, self, self.x, self.result, self.window)


class AvgPooling(Pooling):
    """What avg_pool2d and avg_pool1d share."""

    count_include_pad: int

    @property
    def covers_the_plane(self) -> bool:
        """Whether the one window is the whole input: then the bits are global_avg_pool's."""
        window = self.window
        return window.kernel == plane(self.x.tensor.shape) and not any(window.pads)

    def infer(self) -> Sequence[Type]:
        """Return (N, C, OH, OW), or (N, C, OW)."""
        flag("count_include_pad", self.count_include_pad)
        return super().infer()

    def pooled(self, x: Array, rounding: Rounding) -> Array:
        """Return the means."""
        window, padded = self.window, bool(self.count_include_pad)
        rows, columns = (window.taps(i, x.shape[2 + i], padded=padded) for i in (0, 1))
        counts = rows[:, None] * columns
        if not is_quantised(self.x):
            total = window_views(x.astype(np.float64), window, 0.0).sum(axis=(4, 5))
            return np.asarray(total / counts)
        quant, dtype = quant_of(self.x), self.x.tensor.dtype
        if self.covers_the_plane:
            return global_average_codes(x, quant, rounding, dtype)
        if rounding is Rounding.EVEN:
            taps = window_views(dequantize_codes(x, quant), window, 0)
            return average_codes_even(taps, counts, quant, dtype)
        zero_point = quant.zero_point
        # Padding adds nothing to the centred sum; as a raw code a counted tap is the zero point.
        centred = window_views(x.astype(np.int64) - zero_point, window, 0).sum(axis=(4, 5))
        return average_codes(centred + zero_point * counts, counts, dtype)

    def lower(self, builder: Builder) -> None:
        """Append an average pool task; ``groups`` 1 counts padded taps."""
        if self.covers_the_plane:
            return lower_pool(builder, GlobalAvgPool, self, self.x, self.result, _POINT)
        counted = int(self.count_include_pad)
        return lower_pool(builder, AvgPool, self, self.x, self.result, self.window, groups=counted)
