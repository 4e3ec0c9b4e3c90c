"""reduce_sum: ONNX ReduceSum.

Quantised as LiteRT's SUM: exact sums, then one multiplier; npuc.reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from npuc.ir.core import Value, op, operand
from npuc.ops.example import floats
from npuc.ops.reduction import AXES, KEEPDIMS, NOOP, ReduceOp

__all__ = ["ReduceSum"]


@op("reduce_sum")
class ReduceSum(ReduceOp):
    """Sum over axes; on codes LiteRT's SUM."""

    x: Value = operand("any shape")
    axes: Sequence[int] | None = AXES
    keepdims: int = KEEPDIMS
    noop_with_empty_axes: int = NOOP

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several axes, dims kept and dropped."""
        yield cls([floats("x", 2, 19, 5, 7)], {"axes": [0, 2], "keepdims": 0})
        yield cls([floats("x", 4, 33)], {"axes": [-1]})
        yield cls([floats("x", 2, 3, 17)], {"keepdims": 0})
