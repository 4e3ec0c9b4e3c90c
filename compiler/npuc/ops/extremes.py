"""What min and max share: one tensor or more in the same parameters, compared pair by pair."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import ClassVar, Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, Op, OperandField
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_copy
from npuc.npu.tasks import Task
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import Shape, broadcast

__all__ = ["Extreme"]


class Extreme(Op):
    """The smallest or largest of tensors that broadcast, element by element."""

    LIMITS = COMMON
    ROWS = True
    BROADCASTS = True
    TIED_OPERANDS = True
    OPERANDS = (OperandField("data", "tensors whose shapes broadcast", variadic=True),)
    TASK: ClassVar[type[Task]]

    @abstractmethod
    def chosen(self, a: Array, b: Array) -> Array:
        """Return the one or the other of each pair."""

    def infer(self) -> Sequence[Type]:
        """Return the shape that all broadcast to."""
        if not self.inputs:
            raise ValueError("one tensor or more is needed")
        require_dtypes(*self.inputs)
        first = self.inputs[0].tensor
        scalar: Shape = ()
        shape = reduce(broadcast, (v.tensor.shape for v in self.inputs), scalar)
        return [TensorType(shape, first.dtype, None, first.layout)]

    def verify(self) -> None:
        """Check that all are in the same parameters."""
        check_results(self)
        require_activation(*self.inputs, self.result)
        for value in self.inputs:
            require_tied(value, self.result)

    def stacks(self) -> bool:
        """Return whether the first dims meet."""
        return len({v.tensor.rank for v in self.inputs}) == 1

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the chosen elements; codes are in the order of their numbers."""
        return (reduce(self.chosen, (np.array(x) for x in operands)),)

    def lower(self, builder: Builder) -> None:
        """Append a task for each tensor after the first; one alone is copied."""
        first, *others = map(builder.read, self.inputs)
        result = builder.result_of(self.result)
        if not others:
            return lower_copy(builder, self, first, result)
        for other in others[:-1]:
            between = builder.temporary(self.result.tensor, self.result.name)
            builder.task(self.TASK, self, [first, between, other])
            first = between
        builder.task(self.TASK, self, [first, result, others[-1]])
        return None

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield one, two and three tensors, equal shapes and broadcasts."""
        shapes: tuple[tuple[tuple[int, ...], ...], ...] = (
            ((1, 19, 4, 3), (1, 19, 4, 3)),
            ((2, 3, 4, 5), (3, 1, 1), (2, 1, 4, 5)),
            ((2, 3, 5), (3, 5)),
            ((4, 7), ()),
            ((17,),),
            ((), ()),
        )
        for each in shapes:
            yield cls([floats(name, *shape) for name, shape in zip("abc", each, strict=False)])
