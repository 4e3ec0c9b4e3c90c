"""flatten: ONNX Flatten, to two dims.

Invariant: elements are copied in row-major order; quantised codes as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_reshape
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import product

__all__ = ["Flatten"]


@op("flatten")
class Flatten(Op):
    """Join the dims before axis, and those from it on."""

    LIMITS = COMMON
    ROWS = True
    TIED = True

    x: Value = operand("any shape")
    axis: int = attr("first dim of the second part, 0 to rank", AttrKind.INT, default=1)

    def infer(self) -> Sequence[Type]:
        """Return (product of dims before axis, product of the others)."""
        x = self.x.tensor
        require_dtypes(self.x)
        if not -x.rank <= self.axis <= x.rank:
            raise ValueError(f"axis {self.axis} is outside a tensor of {x.rank} dims")
        axis = self.axis + x.rank if self.axis < 0 else self.axis
        return [x.with_shape((product(x.shape[:axis]), product(x.shape[axis:])))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the same elements."""
        x = np.asarray(operands[0])
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        return (x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),)

    def stacks(self) -> bool:
        """Return whether the first dim stays alone."""
        return self.axis in (1, 1 - max(self.x.tensor.rank, 2))

    def lower(self, builder: Builder) -> None:
        """Share the operand's memory, or append a copy where the elements lie otherwise."""
        lower_reshape(builder, self, self.x, self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several axes."""
        for axis in (1, 0, 3, -1):
            yield cls([floats("x", 2, 3, 4)], {"axis": axis})
