"""argmax: ONNX ArgMax; the place of the largest element along axis, as int64.

Codes compare as the numbers that they stand for, so that the parameters do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.geometry import device_dims
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu import tasks
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_shape
from npuc.npu.tasks import buffer_type
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes
from npuc.ops.shapes import device_axis, flag, normalise_axis

__all__ = ["ArgMax"]


@op("argmax")
class ArgMax(Op):
    """Place of the largest element along axis, as i64."""

    LIMITS = COMMON
    ROWS = True

    x: Value = operand("any shape of at least 1 dim")
    axis: int = attr("the dim that is searched", AttrKind.INT, default=0)
    keepdims: int = attr("1 keeps that dim as 1", AttrKind.INT, default=1)
    select_last_index: int = attr(
        "of equal elements, 1 takes the last, 0 the first", AttrKind.INT, default=0
    )

    def infer(self) -> Sequence[Type]:
        """Return the shape without the axis, or with 1 in its place, in i64."""
        x = self.x.tensor
        require_dtypes(self.x)
        axis = normalise_axis(self.axis, x.rank)
        if x.shape[axis] == 0:
            raise ValueError(f"dim {axis} is empty, it has no largest element")
        middle = (1,) if flag("keepdims", self.keepdims) else ()
        shape = (*x.shape[:axis], *middle, *x.shape[axis + 1 :])
        return [TensorType(shape, DType.I64, None, x.layout)]

    def verify(self) -> None:
        """Check types and attributes."""
        check_results(self)
        require_activation(self.x)
        flag("select_last_index", self.select_last_index)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the places."""
        x = np.asarray(operands[0])
        axis = normalise_axis(self.axis, x.ndim)
        places = np.argmax(x, axis=axis, keepdims=True)
        if self.select_last_index:
            places = x.shape[axis] - 1 - np.argmax(np.flip(x, axis), axis=axis, keepdims=True)
        kept = places.astype(np.int64)
        return (kept if self.keepdims else np.squeeze(kept, axis=axis),)

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.x.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Append an argmax task, and a copy where the shape without the axis lies otherwise."""
        source = builder.read(self.x)
        axis = device_axis(self.axis, self.x.tensor.rank)
        dims = list(device_dims(self.x.tensor.dims))
        dims[axis] = 1
        tensor = replace(buffer_type(source).tensor, shape=tuple(dims), dtype=DType.I64, quant=None)
        target = builder.temporary(tensor, self.result.name)
        kernel = (axis, self.select_last_index)
        builder.task(tasks.ArgMax, self, [source, target], kernel=kernel)
        lower_shape(builder, self, target, self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several axes, the first and the last of equal elements."""
        yield cls([floats("x", 2, 10)], {"axis": 1})
        yield cls([floats("x", 2, 19, 5, 7)], {"axis": 1, "keepdims": 0})
        yield cls([floats("x", 3, 4, 33)], {"axis": -1, "select_last_index": 1})
        yield cls([floats("x", 4, 5)])
