"""MATMUL: rows of the input times the columns of a second activation, over one range of K.

The input holds K in its channels and a row a pixel; the second operand (residual) holds columns in
its channels and K along W: a bank word is a run of K of one row, or of columns of one K. Each
(N, H) is a product of its own, and an operand of one N or one H serves them all. acc =
sum((a - a_zp) * (b - b_zp)), then out = clamp(requantise(acc) + zp). Floats add in float32 and
are rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Mode, Opcode, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import apply, requantise_narrow
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import pixels
from npufw.kernels.params import head
from npufw.kernels.requant import accumulators_fit, clamp_fits, clamped, sums_fit
from npufw.kernels.vector import BRICKS, EVERY, FLOATS, I32, NUMBERS, PLAIN, head_only, one_dtype

__all__ = ["MATMUL"]

_EXACT_TERMS = 1023
"""Products of raw int8 codes, each at most 2^14, whose float32 sums stay below 2^24."""


def _run(step: Step, arrays: Arrays) -> NDArray[Any] | None:
    with np.errstate(over="ignore", invalid="ignore"):
        return _product(step, arrays)


def _product(step: Step, arrays: Arrays) -> NDArray[Any] | None:
    rows = pixels(arrays.input, step.input)
    columns = pixels(arrays.residual, step.operand("residual"))
    params = head(arrays.parameters, step.where)
    floats = step.input.dtype in FLOATS
    sums: NDArray[Any] = (
        np.matmul(rows.astype(np.float32), columns.astype(np.float32))
        if floats
        else _code_sums(rows, columns, params)
    )
    if arrays.sums.values is not None and not step.toa.flags & ToaFlag.CLEAR:
        sums = sums + arrays.sums.values
    if not (floats or step.toa.flags & ToaFlag.WIDE):
        sums = sums.astype(np.int32).astype(np.int64)
    arrays.sums.values = None if step.toa.flags & ToaFlag.WRITE else sums
    if not step.toa.flags & ToaFlag.WRITE:
        return None
    sums = arrays.sums.read_out(sums)
    result = sums.astype(step.output.dtype.numpy) if floats else _written(sums, step, params)
    return result.transpose(0, 3, 1, 2)


def _code_sums(rows: NDArray[Any], columns: NDArray[Any], params: OpParams) -> NDArray[np.int64]:
    """sum(ab) - za * sum(b) - zb * sum(a) + K * za * zb, over raw codes."""
    za, zb = params.input_zero_point, params.residual_zero_point
    terms = rows.shape[3]
    of_rows = rows.sum(axis=3, dtype=np.int64)[..., None]
    of_columns = columns.sum(axis=2, dtype=np.int64)[:, :, None]
    raw = _raw_sums(rows, columns)
    return np.asarray(raw - za * of_columns - zb * of_rows + terms * za * zb)


def _raw_sums(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.int64]:
    if rows.dtype.itemsize > 1:
        # Products of two int16 codes: float64 is exact up to 2^22 of them.
        wide = np.matmul(rows.astype(np.float64), columns.astype(np.float64))
        return np.asarray(wide, np.int64)
    total: Any = np.int64(0)
    for first in range(0, rows.shape[3], _EXACT_TERMS):
        cut = slice(first, first + _EXACT_TERMS)
        left, right = rows[..., cut].astype(np.float32), columns[:, :, cut].astype(np.float32)
        total = total + np.matmul(left, right).astype(np.int64)
    return np.asarray(total)


def _written(sums: NDArray[np.int64], step: Step, params: OpParams) -> NDArray[Any]:
    factor = params.input_multiplier, params.input_shift
    if step.input.dtype is DType.I16:
        scaled = requantise_narrow(sums, *factor, step.rounding)
    else:
        wide = bool(step.toa.flags & ToaFlag.WIDE)
        scaled = apply(sums, *factor, step.rounding, wide=wide)
    return clamped(scaled + params.output_zero_point, step)


def _dims(step: Step) -> Fault:
    left, right, out = step.input, step.operand("residual"), step.output
    (n, k, h, m), (o, columns) = left.dims, out.dims[:2]
    if right.dims[1] != columns or right.dims[3] != k or out.dims[3] != m:
        text = f"{dims_text(left)} times {dims_text(right)} is not {dims_text(out)}"
        return ErrorCode.BAD_DIMS, text
    pairs = ((n, o), (h, out.dims[2]), (right.dims[0], o), (right.dims[2], out.dims[2]))
    if any(given not in (1, wanted) for given, wanted in pairs):
        text = f"N and H of {dims_text(left)} and {dims_text(right)} are 1 or the output's"
        return ErrorCode.BAD_DIMS, text
    return None


MATMUL = Kernel(
    opcode=Opcode.MATMUL,
    unit=Unit.MAC,
    required=frozenset({"input", "parameters", "residual", "output"}),
    modes=frozenset({Mode.OUTPUT_STATIONARY, Mode.WEIGHT_STATIONARY}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, BRICKS, lane_zero=True),
        operand_is("residual", NUMBERS, BRICKS, lane_zero=True),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, BRICKS, lane_zero=True),
        one_dtype,
        _dims,
        head_only,
        clamp_fits,
        sums_fit,
        accumulators_fit,
    ),
    precisions=EVERY,
)
