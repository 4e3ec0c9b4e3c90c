"""gather: ONNX Gather with constant indices; slices of a tensor in any order, again and again.

Invariant: quantised codes are copied as they are.
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
from npuc.npu.movement import lower_remap
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import normalise_axis

__all__ = ["Gather"]


@op("gather")
class Gather(Op):
    """Take slices along axis, by constant indices."""

    LIMITS = COMMON
    TIED = True

    x: Value = operand("any shape")
    indices: Sequence[int] = attr("positions along axis; from the end when negative", AttrKind.INTS)
    axis: int = attr("the dim that they are taken from", AttrKind.INT, default=0)
    indices_shape: Sequence[int] | None = attr(
        "dims of the indices, [] for one that drops the dim; absent: one dim of all",
        AttrKind.INTS,
        default=None,
    )

    @property
    def places(self) -> tuple[int, ...]:
        """Dims that come in the place of axis."""
        return (len(self.indices),) if self.indices_shape is None else tuple(self.indices_shape)

    @property
    def positions(self) -> list[int]:
        """Positions along axis, from the front."""
        extent = self.x.tensor.shape[normalise_axis(self.axis, self.x.tensor.rank)]
        if extent is None:
            raise ValueError("gather needs a known dim: bind its shape")
        wrong = [i for i in self.indices if not -extent <= i < extent]
        if wrong:
            raise ValueError(f"index {wrong[0]} is outside a dim of {extent}")
        return [i % extent for i in self.indices]

    def infer(self) -> Sequence[Type]:
        """Return the shape with the dims of the indices in the place of axis."""
        x = self.x.tensor
        require_dtypes(self.x)
        axis = normalise_axis(self.axis, x.rank)
        if math.prod(self.places) != len(self.positions) or any(d < 0 for d in self.places):
            count = f"{len(self.indices)} indices"
            raise ValueError(f"{count} do not fill indices_shape {list(self.places)}")
        return [x.with_shape((*x.shape[:axis], *self.places, *x.shape[axis + 1 :]))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the slices."""
        places = np.reshape(self.positions, self.places).astype(np.int64)
        return (np.take(np.asarray(operands[0]), places, axis=self.axis),)

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.x.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Append a remap, and a reshape when the indices are not one dim."""
        axis = normalise_axis(self.axis, self.x.tensor.rank)
        lower_remap(builder, self, self.x, self.result, {axis: self.positions})

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield channels, rows, an index that drops the dim, and indices of two dims."""
        yield cls([floats("x", 1, 19, 3, 4)], {"indices": [18, 0, -2, 5, 5], "axis": 1})
        yield cls([floats("x", 2, 5, 6)], {"indices": [3, 1], "axis": -1})
        yield cls([floats("x", 1, 17, 4, 3)], {"indices": [2], "axis": 2, "indices_shape": []})
        yield cls([floats("x", 7, 9)], {"indices": [6, 0, 1, 1, -7, 2], "indices_shape": [2, 3]})
