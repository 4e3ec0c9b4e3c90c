"""transpose: ONNX Transpose; the dims in another order.

Invariant: quantised codes are copied as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.movement import lower_transpose
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied

__all__ = ["Transpose"]


@op("transpose")
class Transpose(Op):
    """Put the dims in another order."""

    LIMITS = COMMON
    TIED = True
    RELAYS = True

    x: Value = operand("any shape")
    perm: Sequence[int] | None = attr("the operand's dim for each of the result; absent: reversed",
                                      AttrKind.INTS, default=None)  # fmt: skip

    @property
    def order(self) -> list[int]:
        """The operand's dim for each dim of the result."""
        rank = self.x.tensor.rank
        order = list(range(rank))[::-1] if self.perm is None else list(self.perm)
        if sorted(order) != list(range(rank)):
            raise ValueError(f"perm holds each of the dims 0 to {rank - 1} once, got {order}")
        return order

    def infer(self) -> Sequence[Type]:
        """Return the shape in the new order."""
        require_dtypes(self.x)
        shape = self.x.tensor.shape
        return [self.x.tensor.with_shape(tuple(shape[axis] for axis in self.order))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the same elements, turned."""
        return (np.asarray(operands[0]).transpose(self.order).copy(),)

    def stacks(self) -> bool:
        """Return whether the first dim stays."""
        return self.order[:1] == [0]

    def lower(self, builder: Builder) -> None:
        """Append a transpose, or share the memory where only dims of 1 move."""
        lower_transpose(builder, self, self.x, self.result, self.order)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield ranks 2 to 4, bricks that stay whole, and dims of 1."""
        yield cls([floats("x", 2, 19, 5, 7)], {"perm": [0, 2, 3, 1]})
        yield cls([floats("x", 1, 33, 4, 6)], {"perm": [0, 1, 3, 2]})
        yield cls([floats("x", 3, 2, 18, 5)])
        yield cls([floats("x", 21, 34)])
        yield cls([floats("x", 2, 17, 5)], {"perm": [0, 2, 1]})
        yield cls([floats("x", 1, 19, 1, 4)], {"perm": [2, 1, 3, 0]})
