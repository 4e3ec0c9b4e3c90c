"""RESIZE: each output pixel is a weighted sum of the input's, rows and columns apart.

kernel is the taps along rows and columns. Behind the OpParams: the rows' positions (taps x H of
the output), their weights, then those of the columns; all by tap, then by row or column. Codes
with DOUBLE and SINGLE have whole weights with input_shift fraction bits along rows and
output_shift along columns: the exact sum is divided by 2^(both), half away from zero, and clamped.
Codes with EVEN, and floats, have float32 weights; taps are added in float32, row by row: each
times float32(row weight * column weight) for groups = 0; for 1 each row's taps times the column
weights, and their sum times the row weight. EVEN takes (q - zp) * scale and gives
rint(sum / scale) + zp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Precision, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.records import OpParams
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Fault, Kernel, Step, operand_is
from npufw.kernels.layout import pixels
from npufw.kernels.params import head, positive_scale
from npufw.kernels.tables import positions, table_words, words_behind_head
from npufw.kernels.vector import ACTIVATIONS, I32, PLAIN, one_dtype
from npufw.kernels.window import same_batch_and_channels

__all__ = ["RESIZE"]

_KINDS = frozenset({DType.I8, DType.I16, DType.F16, DType.F32})
_CODES = frozenset({DType.I8, DType.I16})


@dataclass(frozen=True, slots=True)
class _Taps:
    """Positions and weights along one axis, each (taps, outputs)."""

    positions: NDArray[np.int64]
    weights: NDArray[Any]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    values = pixels(arrays.input, step.input)
    whole = step.input.dtype in _CODES and step.rounding is not Rounding.EVEN
    rows, columns = _taps(step, arrays, whole=whole)
    # What overflows, of a blob that lies, is infinite or NaN, and so are its results.
    with np.errstate(over="ignore", invalid="ignore"):
        if whole:
            made: NDArray[Any] = _whole(values, rows, columns, params, step)
        elif step.input.dtype in _CODES:
            made = _even(values, rows, columns, params, step)
        else:
            made = _real(values.astype(np.float32), rows, columns, step)
        return made.astype(step.output.dtype.numpy).transpose(0, 3, 1, 2)


def _taps(step: Step, arrays: Arrays, *, whole: bool) -> tuple[_Taps, _Taps]:
    made = []
    tables = iter(table_words(arrays.parameters, _sizes(step)))
    for axis in (0, 1):
        shape = step.toa.kernel[axis], step.output.dims[axis + 2]
        places, weights = next(tables), next(tables)
        positions(places, step.input.dims[axis + 2], step, least=0)
        chosen = weights if whole else _real_weights(weights, step)
        made.append(_Taps(places.reshape(shape), chosen.reshape(shape)))
    return made[0], made[1]


def _real_weights(words: NDArray[np.int64], step: Step) -> NDArray[np.float32]:
    weights = np.frombuffer(words.astype("<i4").tobytes(), "<f4")
    if not np.isfinite(weights).all():
        text = f"{step.where}: parameters: a weight is not finite"
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    return weights


def _whole(
    values: NDArray[Any], rows: _Taps, columns: _Taps, params: OpParams, step: Step
) -> NDArray[np.int64]:
    bits = params.input_shift + params.output_shift
    if not (params.input_shift >= 0 and params.output_shift >= 0 and bits > 0):
        text = f"{step.where}: parameters: {bits} fraction bits, expected some along each axis"
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    wide = values.astype(np.int64)
    along = zip(rows.positions, rows.weights, strict=True)
    partial = sum(wide[:, at] * weight[:, None, None] for at, weight in along)
    along = zip(columns.positions, columns.weights, strict=True)
    total = np.asarray(sum(partial[:, :, at] * weight[:, None] for at, weight in along))
    rounded = np.sign(total) * ((np.abs(total) + (1 << (bits - 1))) >> bits)
    return np.asarray(np.clip(rounded, *_limits(step)), np.int64)


def _even(
    values: NDArray[Any], rows: _Taps, columns: _Taps, params: OpParams, step: Step
) -> NDArray[np.float32]:
    scale = positive_scale(params.input_scale, step)
    zero = np.float32(params.input_zero_point)
    real = _real((values.astype(np.float32) - zero) * scale, rows, columns, step)
    return np.asarray(np.clip(np.rint(real / scale) + zero, *_limits(step)), np.float32)


def _real(
    values: NDArray[np.float32], rows: _Taps, columns: _Taps, step: Step
) -> NDArray[np.float32]:
    n, _, _, c = values.shape
    total = np.zeros((n, rows.weights.shape[1], columns.weights.shape[1], c), np.float32)
    for at, down in zip(rows.positions, rows.weights[..., None, None], strict=True):
        taps = values[:, at]
        if step.toa.groups == 1:
            total += down * _across(taps, columns)
            continue
        for to, across in zip(columns.positions, columns.weights[..., None], strict=True):
            total += (down * across) * taps[:, :, to]
    return total


def _across(taps: NDArray[np.float32], columns: _Taps) -> NDArray[np.float32]:
    """Return the weighted sums along columns alone."""
    total = np.zeros((*taps.shape[:2], columns.weights.shape[1], taps.shape[3]), np.float32)
    for to, across in zip(columns.positions, columns.weights[..., None], strict=True):
        total += across * taps[:, :, to]
    return total


def _limits(step: Step) -> tuple[int, int]:
    info = np.iinfo(step.output.dtype.numpy)
    return int(info.min), int(info.max)


def _sizes(step: Step) -> list[int]:
    rows, columns = (step.toa.kernel[axis] * step.output.dims[axis + 2] for axis in (0, 1))
    return [rows, rows, columns, columns]


def _tables(step: Step) -> Fault:
    if min(step.toa.kernel) < 1:
        return ErrorCode.BAD_WINDOW, f"kernel is at least one tap, got {step.toa.kernel}"
    if step.toa.groups not in (0, 1):
        return ErrorCode.BAD_WINDOW, f"groups is 0 or 1, got {step.toa.groups}"
    return words_behind_head(step, sum(_sizes(step)))


RESIZE = Kernel(
    opcode=Opcode.RESIZE,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", _KINDS, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", _KINDS, ACTIVATIONS),
        one_dtype,
        same_batch_and_channels,
        _tables,
    ),
    precisions=frozenset(Precision),
)
