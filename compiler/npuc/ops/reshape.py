"""reshape: ONNX Reshape.

Invariant: elements are copied in row-major order; quantised codes as they are.
"""

from __future__ import annotations

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
from npuc.ops.shapes import flag, reshape

__all__ = ["Reshape"]


@op("reshape")
class Reshape(Op):
    """Give a tensor another shape of as many elements."""

    LIMITS = COMMON
    ROWS = True
    TIED = True

    x: Value = operand("any shape")
    shape: Sequence[int] = attr("the dims; 0 copies one, -1 infers one", AttrKind.INTS)
    allowzero: int = attr("1 takes 0 as a dim of no elements", AttrKind.INT, default=0)

    def infer(self) -> Sequence[Type]:
        """Return the stated shape, completed."""
        require_dtypes(self.x)
        allowzero = flag("allowzero", self.allowzero)
        shape = reshape(self.x.tensor.shape, tuple(self.shape), allowzero=allowzero)
        return [self.x.tensor.with_shape(shape)]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the same elements."""
        x = np.asarray(operands[0])
        shape = reshape(x.shape, tuple(self.shape), allowzero=bool(self.allowzero))
        return (x.reshape(tuple(d for d in shape if d is not None)),)

    def stacks(self) -> bool:
        """Return whether the first dim is copied or inferred."""
        first = self.shape[0] if len(self.shape) else 1
        return first == -1 or (first == 0 and not self.allowzero)

    def lower(self, builder: Builder) -> None:
        """Share the operand's memory, or append a copy where the elements lie otherwise."""
        lower_reshape(builder, self, self.x, self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield copied and inferred dims."""
        yield cls([floats("x", 2, 3, 4)], {"shape": [0, -1]})
        yield cls([floats("x", 2, 3, 4)], {"shape": [4, 3, 2]})
        yield cls([floats("x", 1, 12)], {"shape": [1, 3, 2, 2]})
