"""reduce_mean: ONNX ReduceMean.

Quantised as LiteRT's MEAN: exact sums, then one multiplier that holds the count; npuc.reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, Value, op, operand
from npuc.ops.example import floats
from npuc.ops.quantised import is_quantised
from npuc.ops.reduction import AXES, KEEPDIMS, NOOP, ReduceOp
from npuc.reductions import reduced_codes

__all__ = ["ReduceMean"]


@op("reduce_mean")
class ReduceMean(ReduceOp):
    """Mean over axes; on codes LiteRT's MEAN."""

    MEAN = True

    x: Value = operand("any shape")
    axes: Sequence[int] | None = AXES
    keepdims: int = KEEPDIMS
    noop_with_empty_axes: int = NOOP

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the means."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            codes = reduced_codes(x, self.reduced, self.reduction(), rounding, self.x.tensor.dtype)
            return (self.shaped(codes),)
        return (self.shaped(x.astype(np.float64).mean(axis=self.reduced, keepdims=True)),)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several axes, dims kept and dropped."""
        yield cls([floats("x", 2, 19, 5, 7)], {"axes": [2, 3]})
        yield cls([floats("x", 2, 19, 5, 7)], {"axes": [1], "keepdims": 0})
        yield cls([floats("x", 3, 20, 33)], {"axes": [-1]})
        yield cls([floats("x", 1)])
        yield cls([floats("x", 5, 7)], {"noop_with_empty_axes": 1})
