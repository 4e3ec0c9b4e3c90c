"""concat: ONNX Concat; tensors side by side along one dim.

Invariant: quantised pieces keep their order; one with the result's parameters is copied, any other
is rescaled as relu rescales.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_copy, lower_rescale
from npuc.npu.regions import whole
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.ops.shapes import Shape, device_axis, normalise_axis, text
from npuc.reference import clamp_codes, rescale

__all__ = ["Concat"]


@op("concat")
class Concat(Op):
    """Join tensors along axis."""

    LIMITS = COMMON

    pieces: Sequence[Value] = operand("tensors that differ along axis only", variadic=True)
    axis: int = attr("the dim to join; from the back when negative", AttrKind.INT)

    def infer(self) -> Sequence[Type]:
        """Return the shape of the pieces, with the sum of their extents along axis."""
        if not self.pieces:
            raise ValueError("concat takes at least one tensor")
        require_dtypes(*self.pieces)
        first = self.pieces[0].tensor
        axis = normalise_axis(self.axis, first.rank)
        shape = list(first.shape)
        for piece in self.pieces[1:]:
            shape = _joined(shape, piece.tensor.shape, axis)
        return [TensorType(tuple(shape), first.dtype, None, first.layout)]

    def verify(self) -> None:
        """Check the parameters of the pieces and the result."""
        check_results(self)
        require_activation(*self.pieces, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the pieces side by side, in order."""
        arrays = [np.asarray(v) for v in operands]
        if is_quantised(self.pieces[0]):
            pairs = zip(self.pieces, arrays, strict=True)
            arrays = [self._rescaled(piece, codes, rounding) for piece, codes in pairs]
        return (np.concatenate(arrays, axis=self.axis),)

    def _rescaled(self, piece: Value, codes: Array, rounding: Rounding) -> Array:
        source, target = quant_of(piece), quant_of(self.result)
        if source == target:
            return codes
        dtype = self.result.tensor.dtype
        limits = clamp_codes(target, None, rounding, dtype)
        return rescale(codes, source, target, limits, rounding, dtype=dtype)

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.result.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Append a copy, or a rescale, of each piece into its part of the result."""
        target, stored = builder.result_of(self.result), self.result.tensor
        axis = device_axis(self.axis, self.result.tensor.rank)
        start = 0
        for piece in self.pieces:
            size = piece.tensor.dims[self.axis]
            part = builder.slice(target, whole(target).along(axis, start, size))
            start += size
            if stored.quant is None or piece.tensor.quant == stored.quant:
                lower_copy(builder, self, builder.read(piece), part)
            else:
                clamp = clamp_codes(stored.quant, None, builder.rounding, stored.dtype)
                lower_rescale(builder, self, piece, part, stored.quant, clamp)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield uneven pieces, each axis, and one piece."""
        yield cls([floats("a", 1, 3, 2, 2), floats("b", 1, 17, 2, 2)], {"axis": 1})
        yield cls([floats("a", 2, 5), floats("b", 2, 1), floats("c", 2, 4)], {"axis": -1})
        yield cls([floats("a", 1, 2, 3, 4), floats("b", 1, 2, 1, 4)], {"axis": 2})
        yield cls([floats("a", 1, 4)], {"axis": 0})


def _joined(left: Sequence[int | None], right: Shape, axis: int) -> list[int | None]:
    """Return the shape of two neighbours; a dynamic extent along *axis* makes a dynamic sum."""
    fits = len(left) == len(right) and all(
        a == b or a is None or b is None or i == axis
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    )
    if not fits:
        raise ValueError(f"{text(tuple(left))} and {text(right)} differ beside axis {axis}")
    result = [b if a is None else a for a, b in zip(left, right, strict=True)]
    a, b = left[axis], right[axis]
    result[axis] = None if a is None or b is None else a + b
    return result
