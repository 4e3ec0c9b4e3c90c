"""Builds the L3 graph: what an op's ``lower`` method is given.

Each L2 value gets one buffer (or a view into another's). Whole-op tasks are appended in order;
tiling comes later. Device tensors have rank 4: see ``npuabi.geometry.device_dims``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Rounding, Space
from npuabi.geometry import dense_strides, device_dims
from npuabi.records import FloatParams, OpParams
from npuabi.target import Target
from npuc.ir.const import Const, Dense
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import Buffer, Place, TensorType
from npuc.npu.pack import packed_bytes, params_head
from npuc.npu.regions import Box, slice_buffer
from npuc.npu.rows import lies_in_rows, matrix_buffer, plain_view
from npuc.npu.tasks import BufferOp, Constant, StateOp, Task, View, buffer_type

__all__ = ["Builder", "bytes_type", "code_range", "device_type", "float_params", "op_params"]

_OPEN = (-math.inf, math.inf)
_RANGES = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}


def code_range(dtype: DType) -> tuple[int, int]:
    """Return the smallest and largest code of *dtype*; (0, 0) where a clamp has no meaning."""
    return _RANGES.get(dtype, (0, 0))


def device_type(tensor: TensorType, space: Space, *, row_pitch: int) -> Buffer:
    """Return the buffer that holds *tensor*; plain tensors of rank 2 keep their channels dense."""
    layout = tensor.layout or Layout.NCHW16C
    if layout is Layout.NCHW and tensor.rank <= 2:
        layout = Layout.NHWC
    dims = device_dims(tensor.dims)
    strides = dense_strides(dims, tensor.dtype, layout, row_pitch=row_pitch)
    return Buffer(replace(tensor, shape=dims, layout=layout), strides, Place(space))


def bytes_type(size: int, space: Space) -> Buffer:
    """Return a buffer of *size* raw bytes."""
    dims = (1, 1, 1, size)
    tensor = TensorType(dims, DType.U8, layout=Layout.NCHW)
    return Buffer(tensor, dense_strides(dims, DType.U8, Layout.NCHW), Place(space))


def op_params(**fields: Any) -> OpParams:
    """Return OpParams with the given fields, the others zero (output and inner clamps open)."""
    zero = {n: 0.0 if w.ctype == "float" else 0 for n, w in OpParams.FIELDS.items()}
    return OpParams(**{**zero, "inner_low": -128, "inner_high": 127, **fields})


def float_params(
    clamp: Sequence[float] | None = None, inner: Sequence[float] | None = None
) -> FloatParams:
    """Return FloatParams with a clamp, and one before a residual is added; None is open."""
    low, high = clamp or _OPEN
    inner_low, inner_high = inner or _OPEN
    return FloatParams(low=low, high=high, inner_low=inner_low, inner_high=inner_high)


class Builder:
    """Appends buffers, constants and tasks to an L3 graph."""

    def __init__(self, graph: Graph, target: Target, rounding: Rounding) -> None:
        self.graph = graph
        self.target = target
        self.rounding = rounding
        self._buffers: dict[Value, Value] = {}
        self._temporaries = 0

    def read(self, value: Value) -> Value:
        """Return the buffer of an L2 value; a constant is packed on first use."""
        if value not in self._buffers and isinstance(value.owner, Const):
            self._buffers[value] = self._constant_tensor(value)
        return self._buffers[value]

    def make(self, value: Value, *, role: str = "activation") -> Value:
        """Reserve a buffer for an L2 value; inputs, outputs and states lie in the arena."""
        if role == "activation":
            return self.alias(value, self._reserve(value.tensor, value.name))
        buffer = device_type(value.tensor, Space.ARENA, row_pitch=self.target.row_pitch)
        made = BufferOp([], {"role": role}, result_types=[buffer], names=[value.name])
        return self.alias(value, self.graph.append(made).result)

    def alias(self, value: Value, buffer: Value) -> Value:
        """Let *buffer* stand for an L2 value."""
        self._buffers[value] = buffer
        return buffer

    def is_bound(self, value: Value) -> bool:
        """Return whether an L2 value has its buffer already, as the graph's outputs have."""
        return value in self._buffers

    def type_of(self, value: Value) -> Buffer:
        """Return the type of the buffer that an activation gets."""
        if lies_in_rows(value.tensor):
            return plain_view(matrix_buffer(value.tensor, Space.SRAM), value.tensor.rank)
        return device_type(value.tensor, Space.SRAM, row_pitch=self.target.row_pitch)

    def result_of(self, value: Value) -> Value:
        """Return the buffer that an op writes *value* to, made on first use."""
        if value not in self._buffers:
            self.make(value)
        return self._buffers[value]

    def temporary(self, tensor: TensorType, name: str) -> Value:
        """Reserve an SRAM buffer that no L2 value stands for."""
        self._temporaries += 1
        return self._reserve(tensor, f"{name}.lined{self._temporaries}")

    def _reserve(self, tensor: TensorType, name: str) -> Value:
        """Reserve SRAM; rows are a view of a matrix, so that the lanes behind them are theirs."""
        rows = lies_in_rows(tensor)
        pitch = self.target.row_pitch
        buffer = (
            matrix_buffer(tensor, Space.SRAM)
            if rows
            else device_type(tensor, Space.SRAM, row_pitch=pitch)
        )
        made = self.graph.append(BufferOp([], result_types=[buffer], names=[name])).result
        return self._as_rows(made, tensor.rank) if rows else made

    def _as_rows(self, matrix: Value, rank: int) -> Value:
        seen = plain_view(buffer_type(matrix), rank)
        return self.graph.append(View([matrix], result_types=[seen])).result

    def slice(self, buffer: Value, box: Box) -> Value:
        """Return a view of *box*."""
        return slice_buffer(self.graph, buffer, box, before=None)

    def constant(self, data: NDArray[np.uint8], buffer: Buffer | None = None) -> Value:
        """Put bytes into the constants section, seen as *buffer* (raw bytes by default)."""
        raw = TensorType((1, 1, 1, data.size), DType.U8)
        const = self.graph.append(Const(Dense(data.reshape(1, 1, 1, -1)), raw))
        seen = buffer or bytes_type(data.size, Space.CONSTANTS)
        return self.graph.append(Constant([const.result], result_types=[seen])).result

    def params(
        self, params: OpParams | FloatParams, tail: NDArray[np.uint8] | None = None
    ) -> Value:
        """Put a parameters tensor into the constants section: its head, then *tail*."""
        data = params_head(params)
        if tail is not None:
            data = np.concatenate([data, tail])
        dims = (1, 1, 1, data.size // 4)
        tensor = TensorType(dims, DType.I32, layout=Layout.NCHW)
        strides = dense_strides(dims, DType.I32, Layout.NCHW)
        return self.constant(data, Buffer(tensor, strides, Place(Space.CONSTANTS)))

    def weights(
        self,
        data: NDArray[np.uint8],
        shape: tuple[int, ...],
        layout: Layout,
        dtype: DType = DType.I8,
    ) -> Value:
        """Put packed weights of logical *shape* into the constants section."""
        dims = device_dims(shape)
        tensor = TensorType(dims, dtype, layout=layout)
        strides = dense_strides(dims, dtype, layout)
        return self.constant(data, Buffer(tensor, strides, Place(Space.CONSTANTS)))

    def task(self, kind: type[Task], op: Op, operands: list[Value], **attributes: Any) -> Task:
        """Append the whole-op task that *op* becomes."""
        named = {
            "name": op.results[0].name,
            "kind": op.NAME,
            "clamp": code_range(operands[1].tensor.dtype),
            **attributes,
        }
        return self.graph.append(kind(operands, named, location=op.location))

    def _constant_tensor(self, value: Value) -> Value:
        owner = value.owner
        if not isinstance(owner, Const):
            raise TypeError(f"%{value.name} is no constant")
        if lies_in_rows(value.tensor):
            buffer = matrix_buffer(value.tensor, Space.CONSTANTS)
            outer, depth, inner, rows = buffer.tensor.dims
            lines = owner.value().reshape(outer, inner, rows, depth).transpose(0, 3, 1, 2)
            made = self.constant(packed_bytes(lines, buffer), buffer)
            return self._as_rows(made, value.tensor.rank)
        tensor = replace(value.tensor, layout=Layout.NCHW16C)
        return self.stored(owner.value(), tensor)

    def stored(self, array: Array, tensor: TensorType) -> Value:
        """Put an array into the constants section, as an activation of type *tensor* lies."""
        buffer = device_type(tensor, Space.CONSTANTS, row_pitch=self.target.row_pitch)
        return self.constant(packed_bytes(array, buffer), buffer)

    def keep(self, name: str, value: Value, initial: Array) -> Value:
        """Reserve the buffer of a state, which *value* reads, with its first value."""
        kept = self.make(value, role="state")
        first = self.stored(initial, value.tensor)
        self.graph.append(StateOp([kept, first], {"state": name}))
        return kept
