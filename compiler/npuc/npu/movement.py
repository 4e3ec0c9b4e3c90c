"""What the ops that move elements share: tables of positions, permutations, blocks.

A table is a list of positions along one dim of the operand, one for each of the result; NOWHERE
stands for the fill value. Invariant: codes are copied as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from npuabi.enums import DType, Layout
from npuabi.geometry import LANES, device_axes, device_dims
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Buffer
from npuc.npu.builder import Builder, op_params
from npuc.npu.lowering import lower_copy, lower_reshape
from npuc.npu.regions import root_of, whole
from npuc.npu.tables import NOWHERE, Table, pack_tables
from npuc.npu.tasks import DepthToSpace, Remap, Resize, SpaceToDepth, Transpose, View, buffer_type
from npuc.resampling import Taps

__all__ = ["lower_blocks", "lower_remap", "lower_resize", "lower_transpose", "strided"]

Tables = Mapping[int, Sequence[int]]
"""Positions by axis of the operand; an axis that is missing stays as it is."""


def lower_remap(
    builder: Builder, op: Op, x: Value, result: Value, tables: Tables, *, fill: Array | None = None
) -> None:
    """Let *result*, or a new buffer of its type, take the elements of *x* that *tables* name.

    A range of whole bricks is a view and no copy. *fill* is the number at NOWHERE, in the dtype.
    The result may have the elements in another shape.
    """
    source, shape = builder.read(x), list(x.tensor.dims)
    for axis, table in tables.items():
        shape[axis] = len(table)
    places = device_axes(x.tensor.rank)
    along = {places[axis]: np.asarray(table) for axis, table in tables.items()}
    same = device_dims(shape) == device_dims(result.tensor.dims)
    if all(_is_range(table) for table in along.values()):
        part = _range_of(builder, source, along)
        if builder.is_bound(result) or buffer_type(part).lane or not same:
            return lower_copy(builder, op, part, builder.result_of(result))
        builder.alias(result, part)
        return None
    if same:
        return _remap(builder, op, source, builder.result_of(result), along, fill)
    moved = builder.temporary(x.tensor.with_shape(tuple(shape)), x.name)
    _remap(builder, op, source, moved, along, fill)
    return lower_copy(builder, op, moved, builder.result_of(result))


def _remap(
    builder: Builder,
    op: Op,
    source: Value,
    target: Value,
    along: Mapping[int, Array],
    fill: Array | None,
) -> None:
    found = [
        Table(dim, along.get(dim, np.arange(extent)).reshape(1, -1).astype(np.int32))
        for dim, extent in enumerate(target.tensor.dims)
    ]
    bits = 0 if fill is None else _bits(fill, target.tensor.dtype)
    params = builder.params(op_params(input_multiplier=bits), pack_tables(found))
    whole_bricks = _whole_bricks(found[1].positions[0], buffer_type(source), buffer_type(target))
    builder.task(Remap, op, [source, target, params], groups=0 if whole_bricks else 1)


def _is_range(table: Array) -> bool:
    return bool((table != NOWHERE).all() and (np.diff(table) == 1).all())


def _range_of(builder: Builder, source: Value, along: Mapping[int, Array]) -> Value:
    box = whole(source)
    for dim, table in along.items():
        box = box.along(dim, int(table[0]), len(table))
    return builder.slice(source, box)


def _bits(fill: Array, dtype: DType) -> int:
    """Return the fill's bits as the low bytes of a signed word."""
    raw = np.array([fill]).astype(dtype.numpy).tobytes().ljust(4, b"\0")
    return int.from_bytes(raw, "little", signed=True)


def _whole_bricks(table: Array, source: Buffer, target: Buffer) -> bool:
    """Return whether each brick of the output is one of the input, or all fill."""
    if any(b.tensor.layout is not Layout.NCHW16C or b.lane for b in (source, target)):
        return False
    channels = np.arange(len(table))
    first = table[channels // LANES * LANES]
    moved = np.where(first == NOWHERE, NOWHERE, first + channels % LANES)
    return not (first[first != NOWHERE] % LANES).any() and bool(np.array_equal(table, moved))


def lower_transpose(
    builder: Builder, op: Op, x: Value, result: Value, order: Sequence[int]
) -> None:
    """Append a transpose to *order*; where only dims of 1 change places, share the memory."""
    dims, rank = x.tensor.dims, x.tensor.rank
    kept = [axis for axis in order if dims[axis] > 1]
    if kept == sorted(kept):
        return lower_reshape(builder, op, x, result)
    places = device_axes(rank)
    placed = {places[k]: places[axis] for k, axis in enumerate(order)}
    # Dims that the model's rank does not fill are 1 and stay.
    device = tuple(placed.get(dim, dim) for dim in range(4))
    operands = [builder.read(x), builder.result_of(result)]
    builder.task(Transpose, op, operands, pads=device)
    return None


def lower_blocks(
    builder: Builder, op: Op, block: int, *, unfold: bool, channel_first: bool = False
) -> None:
    """Append depth to space (*unfold*) or space to depth, of blocks of *block* x *block* pixels."""
    operands = [builder.read(op.inputs[0]), builder.result_of(op.result)]
    kind = DepthToSpace if unfold else SpaceToDepth
    builder.task(kind, op, operands, kernel=(block, block), groups=int(channel_first))


def lower_resize(builder: Builder, op: Op, rows: Taps, columns: Taps, *, by_row: bool) -> None:
    """Append a resize by these taps; *by_row* adds up each row's taps before the row's weight."""
    tables = [_weighted(2, rows), _weighted(3, columns)]
    quant = op.inputs[0].tensor.quant
    params = op_params(
        input_zero_point=0 if quant is None else quant.zero_point,
        output_zero_point=0 if quant is None else quant.zero_point,
        input_scale=0.0 if quant is None else quant.scale,
        output_scale=0.0 if quant is None else quant.scale,
        input_shift=rows.bits,
        output_shift=columns.bits,
    )
    operands = [builder.read(op.inputs[0]), builder.result_of(op.result)]
    operands.append(builder.params(params, pack_tables(tables)))
    kernel = (len(rows.positions), len(columns.positions))
    builder.task(Resize, op, operands, kernel=kernel, groups=int(by_row))


def _weighted(dim: int, taps: Taps) -> Table:
    whole = taps.weights.dtype.kind == "i"
    words = taps.weights.astype("<i4") if whole else taps.weights.astype("<f4").view("<i4")
    return Table(dim, taps.positions.astype(np.int32), words)


def strided(
    builder: Builder,
    value: Value,
    first: tuple[int, int],
    steps: tuple[int, ...],
    counts: tuple[int, int],
) -> Value:
    """Return a view of *counts* rows and columns of a buffer, from *first* on, *steps* apart."""
    buffer, (root, offset) = buffer_type(value), root_of(value)
    n, c, h, w = buffer.strides
    at = offset + first[0] * h + first[1] * w
    tensor = buffer.tensor.with_shape((*buffer.tensor.dims[:2], *counts))
    seen = replace(buffer, tensor=tensor, strides=(n, c, h * steps[0], w * steps[1]))
    view = View([root], {"offset": at}, result_types=[seen])
    return builder.graph.append(view).result
