"""identity: its operand, under another name.

Invariant: elements are copied in row-major order; quantised codes as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, Op, Value, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_reshape
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied

__all__ = ["Identity"]


@op("identity")
class Identity(Op):
    """Copy a tensor."""

    LIMITS = COMMON
    ROWS = True
    TIED = True
    STACKS = True

    x: Value = operand("any shape")

    def infer(self) -> Sequence[Type]:
        """Return the type of the operand."""
        require_dtypes(self.x)
        return [self.x.tensor]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the same elements."""
        x = np.asarray(operands[0])
        return (x,)

    def lower(self, builder: Builder) -> None:
        """Share the operand's memory, or append a copy where the elements lie otherwise."""
        lower_reshape(builder, self, self.x, self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield two ranks."""
        for shape in ((1, 5, 2, 3), (4,)):
            yield cls([floats("x", *shape)])
