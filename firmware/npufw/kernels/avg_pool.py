"""AVG_POOL: the mean of each window; codes in and out share scale and zero point.

DOUBLE and SINGLE divide the sum of raw codes half away from zero (LiteRT). EVEN dequantises, adds
the taps row by row and gives rint(sum / count / scale + zp), each step in float32 (ONNX Runtime).
With groups = 1 the taps in the pads count
as the zero point; taps beyond the pads (a window rounded up) never count. Floats are added in
float32, divided by the count and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Fault, Kernel, Step, operand_is
from npufw.kernels.floats import is_float, real_pixels
from npufw.kernels.layout import pixels
from npufw.kernels.params import head, positive_scale
from npufw.kernels.pooling import added_row_by_row, counts, overhang, reduced
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import BRICKS, EVERY, I32, NUMBERS, PLAIN, head_only, one_dtype
from npufw.kernels.window import padded, pooled_window, same_batch_and_channels, taps_in_bounds

__all__ = ["AVG_POOL", "mean_away"]


def mean_away(raw: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the means of *count* taps each, half away from zero; *raw* are sums of codes."""
    magnitude = (np.abs(raw) + count // 2) // count
    return np.asarray(np.where(raw < 0, -magnitude, magnitude))


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    rows, columns = (counts(step, axis, pads_count=bool(step.toa.groups)) for axis in (0, 1))
    count = (rows[:, None] * columns)[None, :, :, None]
    means = _floats(step, arrays, count) if is_float(step) else _codes(step, arrays, count)
    return means.transpose(0, 3, 1, 2)


def _floats(step: Step, arrays: Arrays, count: NDArray[np.int64]) -> NDArray[Any]:
    values = padded(real_pixels(arrays, step), overhang(step), 0, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        means = reduced(values, step, np.add) / count.astype(np.float32)
        return np.asarray(means, step.output.dtype.numpy)


def _codes(step: Step, arrays: Arrays, count: NDArray[np.int64]) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    values = pixels(arrays.input, step.input).astype(np.int64) - params.input_zero_point
    if step.rounding is Rounding.EVEN:
        means = _means_even(values, count, step, params)
    else:
        sums = reduced(padded(values, overhang(step), 0, np.int64), step, np.add)
        means = mean_away(sums + count * params.input_zero_point, count)
    return clamped(means, step)


def _means_even(
    centred: NDArray[np.int64], count: NDArray[np.int64], step: Step, params: OpParams
) -> NDArray[Any]:
    scale, zero = positive_scale(params.input_scale, step), np.float32(params.input_zero_point)
    real = centred.astype(np.float32) * scale
    sums = added_row_by_row(padded(real, overhang(step), 0, np.float32), step)
    return np.asarray(np.rint(sums / count.astype(np.float32) / scale + zero))


def _groups(step: Step) -> Fault:
    if step.toa.groups not in (0, 1):
        text = f"groups says whether padded taps count: 0 or 1, got {step.toa.groups}"
        return ErrorCode.BAD_WINDOW, text
    return None


AVG_POOL = Kernel(
    opcode=Opcode.AVG_POOL,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, BRICKS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, BRICKS),
        one_dtype,
        same_batch_and_channels,
        pooled_window,
        taps_in_bounds,
        head_only,
        _groups,
        clamp_fits,
    ),
    precisions=EVERY,
)
