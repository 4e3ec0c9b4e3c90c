"""avg_pool2d: ONNX AveragePool in two dimensions; the mean of each window.

Invariant: a mean is over the in-bounds taps; with count_include_pad also over those in the pads,
which hold 0, and never over what ceil mode adds beyond them (C03).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_pool
from npuc.npu.tasks import AvgPool, GlobalAvgPool
from npuc.ops.example import floats
from npuc.ops.limits import COMMON, WINDOW
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
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
    flag,
    pool_shape,
    window_of,
)
from npuc.reference import (
    average_codes,
    average_codes_even,
    dequantize_codes,
    global_average_codes,
    window_views,
)
from npuc.window import Window

__all__ = ["AvgPool2d"]

_POINT = Window(kernel=(1, 1))


@op("avg_pool2d")
class AvgPool2d(Op):
    """Average each window; quantised parameters are tied."""

    LIMITS = (*COMMON, WINDOW)
    TIED = True
    STACKS = True

    x: Value = operand("input, NCHW")
    kernel_shape: Sequence[int] = attr("rows and columns of the window", AttrKind.INTS)
    auto_pad: str = AUTO_PAD
    ceil_mode: int = CEIL_MODE
    count_include_pad: int = attr("1 counts padded taps as zeros", AttrKind.INT, default=0)
    dilations: Sequence[int] = DILATIONS
    pads: Sequence[int] = PADS
    strides: Sequence[int] = STRIDES

    @property
    def window(self) -> Window:
        """Kernel, strides, dilations and the pads that auto_pad comes to."""
        return window_of(self, self.kernel_shape, self.x.tensor.shape[2:])

    @property
    def covers_the_plane(self) -> bool:
        """Whether the one window is the whole input: then the bits are global_avg_pool's."""
        window = self.window
        return window.kernel == self.x.tensor.shape[2:] and not any(window.pads)

    def infer(self) -> Sequence[Type]:
        """Return (N, C, OH, OW)."""
        require_dtypes(self.x)
        flag("count_include_pad", self.count_include_pad)
        return [self.x.tensor.with_shape(pool_shape(self.x.tensor.shape, lambda: self.window))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the means."""
        x = np.asarray(operands[0])
        window, padded = self.window, bool(self.count_include_pad)
        rows, columns = (window.taps(i, x.shape[2 + i], padded=padded) for i in (0, 1))
        counts = rows[:, None] * columns
        if not is_quantised(self.x):
            return (window_views(x.astype(np.float64), window, 0.0).sum(axis=(4, 5)) / counts,)
        quant, dtype = quant_of(self.x), self.x.tensor.dtype
        if self.covers_the_plane:
            return (global_average_codes(x, quant, rounding, dtype),)
        if rounding is Rounding.EVEN:
            taps = window_views(dequantize_codes(x, quant), window, 0)
            return (average_codes_even(taps, counts, quant, dtype),)
        zero_point = quant.zero_point
        # Padding adds nothing to the centred sum; as a raw code a counted tap is the zero point.
        centred = window_views(x.astype(np.int64) - zero_point, window, 0).sum(axis=(4, 5))
        return (average_codes(centred + zero_point * counts, counts, dtype),)

    def lower(self, builder: Builder) -> None:
        """Append an average pool task; ``groups`` 1 counts padded taps."""
        if self.covers_the_plane:
            return lower_pool(builder, GlobalAvgPool, self, self.x, self.result, _POINT)
        counted = int(self.count_include_pad)
        return lower_pool(builder, AvgPool, self, self.x, self.result, self.window, groups=counted)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield odd shapes, ceil mode, counted pads and auto_pad."""
        for shape, attributes in _EXAMPLES:
            yield cls([floats("x", *shape)], attributes)


_EXAMPLES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 3, 4, 4), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 17, 7, 5), {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "count_include_pad": 1}),
    ((1, 1, 8, 10), {"kernel_shape": [3, 3], "strides": [4, 4], "ceil_mode": 1}),
    (
        (1, 5, 5, 5),
        {
            "kernel_shape": [2, 2],
            "strides": [2, 2],
            "pads": [0, 0, 1, 0],
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
    ),
    ((1, 2, 7, 5), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 4, 7, 7), {"kernel_shape": [2, 2], "dilations": [3, 2]}),
)
