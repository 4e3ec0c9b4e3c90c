"""avg_pool1d: ONNX AveragePool in one dimension, on a tensor of rank 3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from npuc.ir.core import AttrKind, Value, attr, op, operand
from npuc.ops.example import floats
from npuc.ops.pooling import COUNT_INCLUDE_PAD, AvgPooling
from npuc.ops.shapes import AUTO_PAD, CEIL_MODE, LINE_DILATIONS, LINE_PADS, LINE_STRIDES

__all__ = ["AvgPool1d"]


@op("avg_pool1d")
class AvgPool1d(AvgPooling):
    """Average each window of a line; quantised parameters are tied."""

    SIDES = ("W",)

    x: Value = operand("input, NCW")
    kernel_shape: Sequence[int] = attr("length of the window", AttrKind.INTS)
    auto_pad: str = AUTO_PAD
    ceil_mode: int = CEIL_MODE
    count_include_pad: int = COUNT_INCLUDE_PAD
    dilations: Sequence[int] = LINE_DILATIONS
    pads: Sequence[int] = LINE_PADS
    strides: Sequence[int] = LINE_STRIDES

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield odd lengths, counted pads, ceil mode and the whole line."""
        for shape, attributes in _EXAMPLES:
            yield cls([floats("x", *shape)], attributes)


_EXAMPLES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 3, 5), {"kernel_shape": [2], "strides": [2]}),
    ((2, 17, 13), {"kernel_shape": [3], "pads": [1, 2], "count_include_pad": 1}),
    ((1, 2, 10), {"kernel_shape": [3], "strides": [4], "ceil_mode": 1}),
    ((1, 5, 9), {"kernel_shape": [9]}),
)
