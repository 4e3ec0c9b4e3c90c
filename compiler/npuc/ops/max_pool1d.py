"""max_pool1d: ONNX MaxPool in one dimension, on a tensor of rank 3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from npuc.ir.core import AttrKind, Value, attr, op, operand
from npuc.ops.example import floats
from npuc.ops.pooling import STORAGE_ORDER, MaxPooling
from npuc.ops.shapes import AUTO_PAD, CEIL_MODE, LINE_DILATIONS, LINE_PADS, LINE_STRIDES

__all__ = ["MaxPool1d"]


@op("max_pool1d")
class MaxPool1d(MaxPooling):
    """Take the largest in-bounds tap of each window of a line."""

    SIDES = ("W",)

    x: Value = operand("input, NCW")
    kernel_shape: Sequence[int] = attr("length of the window", AttrKind.INTS)
    auto_pad: str = AUTO_PAD
    ceil_mode: int = CEIL_MODE
    dilations: Sequence[int] = LINE_DILATIONS
    pads: Sequence[int] = LINE_PADS
    storage_order: int = STORAGE_ORDER
    strides: Sequence[int] = LINE_STRIDES

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield odd lengths, ceil mode, dilation and auto_pad."""
        for shape, attributes in _EXAMPLES:
            yield cls([floats("x", *shape)], attributes)


_EXAMPLES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 3, 5), {"kernel_shape": [2], "strides": [2]}),
    ((2, 17, 13), {"kernel_shape": [3], "pads": [1, 2], "strides": [2]}),
    ((1, 2, 10), {"kernel_shape": [3], "strides": [4], "ceil_mode": 1}),
    ((1, 5, 9), {"kernel_shape": [2], "dilations": [3], "auto_pad": "SAME_UPPER"}),
)
