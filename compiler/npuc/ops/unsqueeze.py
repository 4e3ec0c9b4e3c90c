"""unsqueeze: ONNX Unsqueeze; dims of 1 are put in.

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
from npuc.ops.shapes import axes_of

__all__ = ["Unsqueeze"]


@op("unsqueeze")
class Unsqueeze(Op):
    """Put in dims of 1."""

    LIMITS = COMMON
    TIED = True
    ROWS = True

    x: Value = operand("any shape")
    axes: Sequence[int] = attr("places of the new dims in the result", AttrKind.INTS)

    @property
    def added(self) -> list[int]:
        """The dims of the result that are new, in order."""
        return sorted(axes_of(self.axes, self.x.tensor.rank + len(self.axes)))

    def infer(self) -> Sequence[Type]:
        """Return the shape with the new dims."""
        require_dtypes(self.x)
        shape = list(self.x.tensor.shape)
        for axis in self.added:
            shape.insert(axis, 1)
        return [self.x.tensor.with_shape(tuple(shape))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the same elements."""
        return (np.expand_dims(np.asarray(operands[0]), self.added),)

    def stacks(self) -> bool:
        """Return whether the first dim stays."""
        return self.x.tensor.rank > 0 and 0 not in self.added

    def lower(self, builder: Builder) -> None:
        """Share the operand's memory, or append a copy where the elements lie otherwise."""
        lower_reshape(builder, self, self.x, self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield dims behind, in front and between."""
        yield cls([floats("x", 2, 19)], {"axes": [-1, 2]})
        yield cls([floats("x", 3, 17)], {"axes": [0, 1]})
        yield cls([floats("x", 2, 4, 5)], {"axes": [1]})
