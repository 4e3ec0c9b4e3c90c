"""What reduce_mean, reduce_sum and reduce_max share: axes, shapes, lowering in one step or more.

A reduction whose rows leave little of the SRAM is done axis by axis: sums of int8 stay in int32
between the steps, of int16 in int64, of floats in float32, so that no bit of codes changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from npuabi.enums import DType, Layout, Rounding
from npuabi.fixedpoint import real_words
from npuabi.geometry import LANES, device_dims
from npuc.ir.core import Array, AttrKind, Op, Value, attr
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder, op_params
from npuc.npu.lowering import lower_shape
from npuc.npu.tasks import Reduce, buffer_type
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, is_quantised, require_activation, require_dtypes
from npuc.ops.shapes import Shape, device_axis, flag, normalise_axis
from npuc.reductions import Reduction, reduced_codes, reduced_factor, sums_are_wide

__all__ = ["AXES", "KEEPDIMS", "NOOP", "ReduceOp"]

AXES = attr("dims that are reduced; absent or empty: all", AttrKind.INTS, default=None)
KEEPDIMS = attr("1 keeps reduced dims as 1", AttrKind.INT, default=1)
NOOP = attr("1 reduces nothing when there are no axes", AttrKind.INT, default=0)

_SUM, _MAX = 1, 2
_SHARE = 8
"""Rows of more than this part of the SRAM are reduced axis by axis."""
_RAW = {DType.I8: DType.I32, DType.I16: DType.I64, DType.F16: DType.F32, DType.F32: DType.F32}


class ReduceOp(Op):
    """A reduction; subclasses declare the operand and the attributes."""

    LIMITS = COMMON
    ROWS = True
    MEAN: ClassVar[bool] = False
    LARGEST: ClassVar[bool] = False

    x: Value
    axes: Sequence[int] | None
    keepdims: int
    noop_with_empty_axes: int

    @property
    def reduced(self) -> tuple[int, ...]:
        """The axes that are reduced, counted from the front, in order."""
        rank = self.x.tensor.rank
        if not self.axes:
            return (
                ()
                if flag("noop_with_empty_axes", self.noop_with_empty_axes)
                else tuple(range(rank))
            )
        found = [normalise_axis(axis, rank) for axis in self.axes]
        if len(set(found)) < len(found):
            raise ValueError(f"axes name a dim twice: {list(self.axes)}")
        return tuple(sorted(found))

    @property
    def kept(self) -> Shape:
        """The shape of the result with reduced dims as 1."""
        shape, reduced = self.x.tensor.shape, self.reduced
        return tuple(1 if axis in reduced else n for axis, n in enumerate(shape))

    def infer(self) -> Sequence[Type]:
        """Return the shape without the reduced dims, or with 1 in their place."""
        x = self.x.tensor
        require_dtypes(self.x)
        reduced = self.reduced
        shape = self.kept
        if not flag("keepdims", self.keepdims):
            shape = tuple(n for axis, n in enumerate(shape) if axis not in reduced)
        quant = x.quant if self.LARGEST and is_quantised(self.x) else None
        return [TensorType(shape, x.dtype, quant, x.layout)]

    def verify(self) -> None:
        """Check types and parameters."""
        check_results(self)
        require_activation(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the sums, or the means."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            codes = reduced_codes(x, self.reduced, self.reduction(), rounding, self.x.tensor.dtype)
            return (self.shaped(codes),)
        real = np.mean if self.MEAN else np.sum
        return (self.shaped(real(x.astype(np.float64), axis=self.reduced, keepdims=True)),)

    def stacks(self) -> bool:
        """Return whether dim 0 is neither reduced nor dropped."""
        return self.x.tensor.rank > 0 and 0 not in self.reduced

    def shaped(self, kept: Array) -> Array:
        """Return a result with reduced dims as 1 in the result's shape."""
        if flag("keepdims", self.keepdims):
            return kept
        return np.squeeze(kept, axis=self.reduced)

    def reduction(self) -> Reduction:
        """Return the sum or mean of a quantised op."""
        source, target = self.x.tensor.quant, self.result.tensor.quant
        if source is None or target is None:
            raise ValueError("a sum of codes needs parameters of operand and result")
        count = math.prod(self.x.tensor.dims[axis] for axis in self.reduced)
        return Reduction(count=count, mean=self.MEAN, source=source, target=target)

    def lower(self, builder: Builder) -> None:
        """Append reduce tasks, and a copy where the shape without the dims lies otherwise."""
        source = builder.read(self.x)
        steps = _steps(source, self._device_axes(), builder.target.sram_bytes // _SHARE)
        dtype = self.x.tensor.dtype
        shape = list(source.tensor.dims)
        for index, axes in enumerate(steps):
            last = index == len(steps) - 1
            shape = [1 if axis in axes else n for axis, n in enumerate(shape)]
            kind = dtype if last or self.LARGEST else _RAW[dtype]
            target = self._target(builder, tuple(shape), kind)
            self._step(builder, source, target, last=last)
            source = target
        lower_shape(builder, self, source, self.result)

    def _device_axes(self) -> list[int]:
        rank = self.x.tensor.rank
        dims = device_dims(self.x.tensor.dims)
        axes = {device_axis(axis, rank) for axis in self.reduced}
        return [axis for axis in (3, 2, 1, 0) if axis in axes and dims[axis] > 1]

    def _target(self, builder: Builder, dims: tuple[int, ...], dtype: DType) -> Value:
        quant = self.result.tensor.quant if dtype is self.x.tensor.dtype else None
        layout = buffer_type(builder.read(self.x)).tensor.layout
        return builder.temporary(TensorType(dims, dtype, quant, layout), self.result.name)

    def _step(self, builder: Builder, source: Value, target: Value, *, last: bool) -> None:
        if self.LARGEST:
            params = builder.params(op_params(), _words(0))
            builder.task(Reduce, self, [source, target, params], kernel=(_MAX, 0))
            return
        if not last:
            raw = _words(0) if is_quantised(self.x) else _real(1.0)
            builder.task(Reduce, self, [source, target, builder.params(op_params(), raw)],
                         kernel=(_SUM, 0))  # fmt: skip
            return
        if not is_quantised(self.x):
            count = math.prod(self.x.tensor.dims[axis] for axis in self.reduced)
            params = builder.params(op_params(), _real(float(count if self.MEAN else 1)))
            builder.task(Reduce, self, [source, target, params], kernel=(_SUM, 0))
            return
        found = self.reduction()
        multiplier, shift = reduced_factor(found, builder.rounding)
        head = op_params(
            input_zero_point=found.source.zero_point,
            output_zero_point=found.target.zero_point,
            input_multiplier=multiplier,
            input_shift=shift,
            input_scale=found.source.scale,
            output_scale=found.target.scale,
        )
        params = builder.params(head, _words(-found.count * found.source.zero_point))
        wide = int(sums_are_wide(found, self.x.tensor.dtype))
        builder.task(Reduce, self, [source, target, params], kernel=(_SUM, wide))


def _words(number: int) -> Array:
    return np.array([number], "<i8").view(np.uint8)


def _real(number: float) -> Array:
    return np.array(real_words(number), "<i4").view(np.uint8)


def _steps(source: Value, axes: list[int], room: int) -> list[list[int]]:
    """Return the axes of each step, the innermost first; none reduced is one step too."""
    buffer = buffer_type(source)
    steps: list[list[int]] = [[]]
    for axis in axes:
        if steps[-1] and _row_bytes(buffer.tensor, [*steps[-1], axis]) > room:
            steps.append([])
        steps[-1].append(axis)
    return steps


def _row_bytes(tensor: TensorType, axes: list[int]) -> int:
    """Return the bytes that one row of *axes* takes, in the smallest stripe."""
    lanes = LANES if tensor.layout is Layout.NCHW16C else 1
    channels = -(-tensor.dims[1] // LANES) * LANES if 1 in axes else lanes
    size = max(tensor.dtype.size, 4) if 3 not in axes else tensor.dtype.size
    return math.prod(tensor.dims[axis] for axis in axes if axis != 1) * channels * size
