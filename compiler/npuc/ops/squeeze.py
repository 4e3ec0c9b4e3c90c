"""squeeze: ONNX Squeeze; dims of 1 are dropped.

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
from npuc.npu.lowering import lower_reshape
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import axes_of, text

__all__ = ["Squeeze"]


@op("squeeze")
class Squeeze(Op):
    """Drop dims of 1."""

    LIMITS = COMMON
    TIED = True
    ROWS = True

    x: Value = operand("any shape")
    axes: Sequence[int] | None = attr("dims to drop; absent: all that are 1", AttrKind.INTS,
                                      default=None)  # fmt: skip

    @property
    def dropped(self) -> list[int]:
        """The dims that go."""
        shape = self.x.tensor.shape
        if self.axes is not None:
            return axes_of(self.axes, len(shape))
        if None in shape:
            raise ValueError("squeeze needs known dims or axes: bind the shape")
        return [axis for axis, dim in enumerate(shape) if dim == 1]

    def infer(self) -> Sequence[Type]:
        """Return the shape without the dropped dims."""
        require_dtypes(self.x)
        shape, dropped = self.x.tensor.shape, self.dropped
        if any(shape[axis] not in (1, None) for axis in dropped):
            raise ValueError(f"dims {dropped} of {text(shape)} are not all 1")
        kept = tuple(dim for axis, dim in enumerate(shape) if axis not in dropped)
        return [self.x.tensor.with_shape(kept)]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the same elements."""
        return (np.asarray(operands[0]).squeeze(tuple(self.dropped)),)

    def stacks(self) -> bool:
        """Return whether the first dim stays."""
        return self.axes is not None and 0 not in self.dropped

    def lower(self, builder: Builder) -> None:
        """Share the operand's memory, or append a copy where the elements lie otherwise."""
        lower_reshape(builder, self, self.x, self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield stated axes and all dims of 1."""
        yield cls([floats("x", 2, 19, 1, 1)], {"axes": [2, -1]})
        yield cls([floats("x", 1, 5, 1, 4)])
        yield cls([floats("x", 1, 1, 6, 17)], {"axes": [0]})
