"""split: ONNX Split; a tensor cut along one dim.

Invariant: the results are the operand's elements, in order; quantised codes as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_slice
from npuc.npu.regions import whole
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import device_axis, normalise_axis

__all__ = ["Split"]


@op("split")
class Split(Op):
    """Cut a tensor along axis, into stated sizes or into num_outputs parts."""

    LIMITS = COMMON
    TIED = True

    x: Value = operand("any shape")
    axis: int = attr("the dim to cut; from the back when negative", AttrKind.INT, default=0)
    split: Sequence[int] | None = attr("sizes along axis", AttrKind.INTS, default=None)
    num_outputs: int | None = attr(
        "equal parts, the last one smaller if need be", AttrKind.INT, default=None
    )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Extents along axis, in order."""
        extent = self.x.tensor.shape[normalise_axis(self.axis, self.x.tensor.rank)]
        if (self.split is None) == (self.num_outputs is None):
            raise ValueError("split takes either split (sizes) or num_outputs")
        if self.split is not None:
            return _stated(tuple(self.split), extent)
        return _equal(self.num_outputs or 0, extent)

    def infer(self) -> Sequence[Type]:
        """Return one type a part."""
        x = self.x.tensor
        require_dtypes(self.x)
        axis = normalise_axis(self.axis, x.rank)
        return [x.with_shape((*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in self.sizes]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, *self.results)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the parts."""
        cuts = list(accumulate(self.sizes))[:-1]
        return tuple(np.split(np.asarray(operands[0]), cuts, axis=self.axis))

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.x.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Let each part look into the operand, or copy it where it starts inside a brick."""
        source = builder.read(self.x)
        axis = device_axis(self.axis, self.x.tensor.rank)
        start = 0
        for part, size in zip(self.results, self.sizes, strict=True):
            lower_slice(builder, self, source, whole(source).along(axis, start, size), part)
            start += size

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield stated sizes, equal and unequal parts."""
        yield cls([floats("x", 1, 17, 2, 3)], {"axis": 1, "split": [3, 14]})
        yield cls([floats("x", 1, 6, 4, 4)], {"axis": -1, "num_outputs": 2})
        yield cls([floats("x", 7, 2)], {"num_outputs": 3})


def _stated(sizes: tuple[int, ...], extent: int | None) -> tuple[int, ...]:
    if not sizes or min(sizes) < 0:
        raise ValueError(f"split holds at least one size, none negative, got {list(sizes)}")
    if extent is not None and sum(sizes) != extent:
        raise ValueError(f"split {list(sizes)} adds up to {sum(sizes)}, the dim is {extent}")
    return sizes


def _equal(parts: int, extent: int | None) -> tuple[int, ...]:
    """ONNX 18: every part has ceil(extent / parts), the last one what is left."""
    if extent is None:
        raise ValueError("num_outputs needs a known dim: bind its shape or state split")
    if parts < 1:
        raise ValueError(f"num_outputs is at least 1, got {parts}")
    size = -(-extent // parts)
    last = extent - size * (parts - 1)
    if last < 0:
        raise ValueError(f"a dim of {extent} does not split into {parts} parts of {size}")
    return (*([size] * (parts - 1)), last)
