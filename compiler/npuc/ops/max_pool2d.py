"""max_pool2d: ONNX MaxPool in two dimensions; the largest tap of each window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_pool
from npuc.npu.tasks import MaxPool
from npuc.ops.example import floats
from npuc.ops.limits import COMMON, WINDOW
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    require_activation,
    require_dtypes,
    require_tied,
)
from npuc.ops.shapes import (
    AUTO_PAD,
    CEIL_MODE,
    DILATIONS,
    PADS,
    STRIDES,
    pool_shape,
    window_of,
)
from npuc.reference import window_views
from npuc.window import Window

__all__ = ["MaxPool2d"]


@op("max_pool2d")
class MaxPool2d(Op):
    """Take the largest in-bounds tap of each window; quantised codes are copied as they are."""

    LIMITS = (*COMMON, WINDOW)
    TIED = True
    STACKS = True

    x: Value = operand("input, NCHW")
    kernel_shape: Sequence[int] = attr("rows and columns of the window", AttrKind.INTS)
    auto_pad: str = AUTO_PAD
    ceil_mode: int = CEIL_MODE
    dilations: Sequence[int] = DILATIONS
    pads: Sequence[int] = PADS
    storage_order: int = attr("0 only: row-major", AttrKind.INT, default=0)
    strides: Sequence[int] = STRIDES

    @property
    def window(self) -> Window:
        """Kernel, strides, dilations and the pads that auto_pad comes to."""
        return window_of(self, self.kernel_shape, self.x.tensor.shape[2:])

    def infer(self) -> Sequence[Type]:
        """Return (N, C, OH, OW)."""
        require_dtypes(self.x)
        if self.storage_order != 0:
            raise ValueError(f"storage_order is 0 (row-major), got {self.storage_order}")
        return [self.x.tensor.with_shape(pool_shape(self.x.tensor.shape, lambda: self.window))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the maxima."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            below = int(np.iinfo(x.dtype).min) - 1
            views = window_views(x.astype(np.int64), self.window, below)
            return (views.max(axis=(4, 5)).astype(x.dtype),)
        return (window_views(x.astype(np.float64), self.window, -np.inf).max(axis=(4, 5)),)

    def lower(self, builder: Builder) -> None:
        """Append a max pool task."""
        lower_pool(builder, MaxPool, self, self.x, self.result, self.window)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield odd shapes, ceil mode, dilation and auto_pad."""
        for shape, attributes in _EXAMPLES:
            yield cls([floats("x", *shape)], attributes)


_EXAMPLES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 3, 4, 4), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 17, 7, 5), {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1]}),
    ((1, 1, 8, 10), {"kernel_shape": [3, 3], "strides": [4, 4], "ceil_mode": 1}),
    ((1, 33, 6, 6), {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    ((1, 2, 7, 5), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 7, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
)
