"""REMAP: each output element is one of the input's, or the fill value.

out[n, c, h, w] = in[tn[n], tc[c], th[h], tw[w]], by four tables of int32 positions behind the
OpParams, for N, C, H and W; position -1 gives the fill value, whose bits are in input_multiplier.
With groups = 0 the table of C moves whole bricks, and the vector unit does not look into them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Opcode, Precision, Unit
from npuabi.errors import ErrorCode
from npuabi.geometry import LANES
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Fault, Kernel, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import head
from npufw.kernels.tables import NOWHERE, positions, table_words, words_behind_head
from npufw.kernels.vector import ACTIVATIONS, I32, PLAIN, one_dtype

__all__ = ["REMAP"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    fill = _fill(head(arrays.parameters, step.where).input_multiplier, step.output.dtype)
    tables = table_words(arrays.parameters, step.output.dims)
    values = load(arrays.input, step.input)
    for table, extent in zip(tables, step.input.dims, strict=True):
        positions(table, extent, step, least=NOWHERE)
    if step.toa.groups == 0:
        _whole_bricks(tables[1], step)
    for axis, table in enumerate(tables):
        if not np.array_equal(table, np.arange(step.input.dims[axis])):
            values = values.take(np.maximum(table, 0), axis=axis)
    moved: NDArray[Any] = values.copy(order="C")
    for axis, table in enumerate(tables):
        moved[(slice(None),) * axis + (table == NOWHERE,)] = fill
    return moved


def _fill(bits: int, dtype: DType) -> Any:
    return np.array([bits], "<i4").view(dtype.numpy)[0]


def _whole_bricks(table: NDArray[np.int64], step: Step) -> None:
    """Refuse a table of C that does more than move bricks: the unit would be slower than said."""
    channels = np.arange(len(table))
    first = table[channels // LANES * LANES]
    wanted = np.where(first == NOWHERE, NOWHERE, first + channels % LANES)
    if (first[first != NOWHERE] % LANES).any() or not np.array_equal(table, wanted):
        text = f"{step.where}: parameters: groups is 0, but the table of C cuts bricks"
        raise FirmwareError(ErrorCode.BAD_INDEX, text)


def _tables(step: Step) -> Fault:
    return words_behind_head(step, sum(step.output.dims))


def _groups(step: Step) -> Fault:
    if step.toa.groups not in (0, 1):
        return ErrorCode.BAD_WINDOW, f"groups is 0 or 1, got {step.toa.groups}"
    sides = (step.input, step.output)
    if step.toa.groups == 0 and any(t.layout is not Layout.NCHW16C or t.lane for t in sides):
        return ErrorCode.BAD_LAYOUT, "groups is 0, but input or output do not start at a brick"
    return None


REMAP = Kernel(
    opcode=Opcode.REMAP,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", frozenset(DType), ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", frozenset(DType), ACTIVATIONS),
        one_dtype,
        _groups,
        _tables,
    ),
    precisions=frozenset(Precision),
)
