"""max_pool2d: ONNX MaxPool in two dimensions; the largest tap of each window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from npuc.ir.core import AttrKind, Value, attr, op, operand
from npuc.ops.example import floats
from npuc.ops.pooling import STORAGE_ORDER, MaxPooling
from npuc.ops.shapes import AUTO_PAD, CEIL_MODE, DILATIONS, PADS, STRIDES

__all__ = ["MaxPool2d"]


@op("max_pool2d")
class MaxPool2d(MaxPooling):
    """Take the largest in-bounds tap of each window; quantised codes are copied as they are."""

    x: Value = operand("input, NCHW")
    kernel_shape: Sequence[int] = attr("rows and columns of the window", AttrKind.INTS)
    auto_pad: str = AUTO_PAD
    ceil_mode: int = CEIL_MODE
    dilations: Sequence[int] = DILATIONS
    pads: Sequence[int] = PADS
    storage_order: int = STORAGE_ORDER
    strides: Sequence[int] = STRIDES

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
