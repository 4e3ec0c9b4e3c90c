"""reduce_mean: ONNX ReduceMean.

Quantised as LiteRT's MEAN: exact sums, then one multiplier that holds the count; npuc.reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from npuc.ir.core import Value, op, operand
from npuc.ops.example import floats
from npuc.ops.reduction import AXES, KEEPDIMS, NOOP, ReduceOp

__all__ = ["ReduceMean"]


@op("reduce_mean")
class ReduceMean(ReduceOp):
    """Mean over axes; on codes LiteRT's MEAN."""

    MEAN = True

    x: Value = operand("any shape")
    axes: Sequence[int] | None = AXES
    keepdims: int = KEEPDIMS
    noop_with_empty_axes: int = NOOP

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several axes, dims kept and dropped."""
        yield cls([floats("x", 2, 19, 5, 7)], {"axes": [2, 3]})
        yield cls([floats("x", 2, 19, 5, 7)], {"axes": [1], "keepdims": 0})
        yield cls([floats("x", 3, 20, 33)], {"axes": [-1]})
        yield cls([floats("x", 1)])
        yield cls([floats("x", 5, 7)], {"noop_with_empty_axes": 1})
