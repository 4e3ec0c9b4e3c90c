"""reduce_max: ONNX ReduceMax.

Invariant: quantised codes are copied as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, Value, op, operand
from npuc.ops.example import floats
from npuc.ops.quantised import require_tied
from npuc.ops.reduction import AXES, KEEPDIMS, NOOP, ReduceOp

__all__ = ["ReduceMax"]


@op("reduce_max")
class ReduceMax(ReduceOp):
    """Largest element over axes; quantised parameters are tied."""

    LARGEST = True
    TIED = True

    x: Value = operand("any shape")
    axes: Sequence[int] | None = AXES
    keepdims: int = KEEPDIMS
    noop_with_empty_axes: int = NOOP

    def verify(self) -> None:
        """Check that the parameters are tied."""
        super().verify()
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the maxima."""
        x = np.asarray(operands[0])
        return (self.shaped(np.max(x, axis=self.reduced, keepdims=True)),)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several axes, dims kept and dropped."""
        yield cls([floats("x", 2, 19, 5, 7)], {"axes": [1, 3]})
        yield cls([floats("x", 4, 33)], {"axes": [1], "keepdims": 0})
        yield cls([floats("x", 3, 18, 20)], {"axes": [1], "keepdims": 0})
