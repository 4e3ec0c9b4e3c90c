"""avg_pool2d: ONNX AveragePool in two dimensions; the mean of each window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from npuc.ir.core import AttrKind, Value, attr, op, operand
from npuc.ops.example import floats
from npuc.ops.pooling import COUNT_INCLUDE_PAD, AvgPooling
from npuc.ops.shapes import AUTO_PAD, CEIL_MODE, DILATIONS, PADS, STRIDES

__all__ = ["AvgPool2d"]


@op("avg_pool2d")
class AvgPool2d(AvgPooling):
    """Average each window; quantised parameters are tied."""

    x: Value = operand("input, NCHW")
    kernel_shape: Sequence[int] = attr("rows and columns of the window", AttrKind.INTS)
    auto_pad: str = AUTO_PAD
    ceil_mode: int = CEIL_MODE
    count_include_pad: int = COUNT_INCLUDE_PAD
    dilations: Sequence[int] = DILATIONS
    pads: Sequence[int] = PADS
    strides: Sequence[int] = STRIDES

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
