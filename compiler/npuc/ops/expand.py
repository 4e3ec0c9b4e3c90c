"""expand: ONNX Expand; makes the broadcasting of other ops explicit.

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
from npuc.npu.lowering import lower_expand
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import broadcast

__all__ = ["Expand"]


@op("expand")
class Expand(Op):
    """Repeat a tensor along dims of 1."""

    LIMITS = COMMON
    ROWS = True
    TIED = True

    x: Value = operand("any shape")
    shape: Sequence[int] = attr("shape to broadcast with; 1 keeps a dim", AttrKind.INTS)

    def infer(self) -> Sequence[Type]:
        """Return the shape that the operand's and the stated one broadcast to."""
        require_dtypes(self.x)
        if any(d < 0 for d in self.shape):
            raise ValueError(f"shape holds no negative dims, got {list(self.shape)}")
        return [self.x.tensor.with_shape(broadcast(self.x.tensor.shape, tuple(self.shape)))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the same elements."""
        x = np.asarray(operands[0])
        shape = np.broadcast_shapes(x.shape, tuple(self.shape))
        return (np.broadcast_to(x, shape).copy(),)

    def stacks(self) -> bool:
        """Return whether the first dim stays."""
        stated, rank = len(self.shape), self.x.tensor.rank
        return stated < rank or (stated == rank and self.shape[0] == 1)

    def lower(self, builder: Builder) -> None:
        """Append a copy that broadcasts."""
        lower_expand(builder, self, self.x, self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield repeats, a dim that is kept, and more dims."""
        yield cls([floats("x", 1, 3, 1, 1)], {"shape": [1, 3, 4, 5]})
        yield cls([floats("x", 3, 1)], {"shape": [2, 1, 4]})
        yield cls([floats("x", 2, 5)], {"shape": [1, 5]})
