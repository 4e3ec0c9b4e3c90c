"""slice: ONNX Slice; a range of each dim, with steps that may go backwards.

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
from npuc.npu.movement import lower_remap
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import axes_of

__all__ = ["Slice"]


@op("slice")
class Slice(Op):
    """Take the elements from starts up to ends, every steps-th, along axes."""

    LIMITS = COMMON
    TIED = True

    x: Value = operand("any shape")
    starts: Sequence[int] = attr("first position of each axis; from the end when negative",
                                 AttrKind.INTS)  # fmt: skip
    ends: Sequence[int] = attr("position behind the last; large numbers mean the end",
                               AttrKind.INTS)  # fmt: skip
    axes: Sequence[int] | None = attr("the axes; absent: the first ones", AttrKind.INTS,
                                      default=None)  # fmt: skip
    steps: Sequence[int] | None = attr("distance of two positions, below 0: backwards; absent: 1",
                                       AttrKind.INTS, default=None)  # fmt: skip

    @property
    def ranges(self) -> dict[int, range]:
        """Positions by axis; ValueError where the attributes disagree or a dim is unknown."""
        shape = self.x.tensor.shape
        steps = [1] * len(self.starts) if self.steps is None else list(self.steps)
        axes = axes_of(self.axes, len(shape), count=len(self.starts))
        if not len(self.starts) == len(self.ends) == len(steps):
            raise ValueError("starts, ends, axes and steps have one number for each axis")
        if 0 in steps:
            raise ValueError(f"steps are not 0, got {steps}")
        rows = zip(axes, self.starts, self.ends, steps, strict=True)
        return {axis: _range(shape[axis], *row) for axis, *row in rows}

    def infer(self) -> Sequence[Type]:
        """Return the shape with each axis cut."""
        require_dtypes(self.x)
        shape = list(self.x.tensor.shape)
        for axis, chosen in self.ranges.items():
            shape[axis] = len(chosen)
        return [self.x.tensor.with_shape(tuple(shape))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the elements."""
        x = np.asarray(operands[0])
        for axis, chosen in self.ranges.items():
            x = x.take(list(chosen), axis=axis)
        return (x,)

    def stacks(self) -> bool:
        """Return whether the samples are no axis that is cut."""
        return self.x.tensor.rank > 0 and 0 not in self.ranges

    def lower(self, builder: Builder) -> None:
        """Let the result look into the operand, or append a remap."""
        lower_remap(builder, self, self.x, self.result, self.ranges)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield plain ranges, steps, negative steps and a cut inside a brick."""
        yield cls([floats("x", 1, 19, 6, 7)], {"starts": [1, 2], "ends": [5, 99], "axes": [2, 3]})
        yield cls([floats("x", 1, 35, 3, 5)], {"starts": [3], "ends": [-2], "axes": [1]})
        backwards = {"starts": [-1, 0], "ends": [-99, 9], "axes": [-2, 3], "steps": [-2, 3]}
        yield cls([floats("x", 1, 4, 7, 9)], backwards)
        yield cls([floats("x", 2, 21)], {"starts": [1, 20], "ends": [2, 3], "steps": [1, -1]})


def _range(extent: int | None, start: int, end: int, step: int) -> range:
    """ONNX: negative positions count from the end, then both are clamped to the dim."""
    if extent is None:
        raise ValueError("slice needs a known dim: bind its shape")
    return range(*slice(start, end, step).indices(extent))
