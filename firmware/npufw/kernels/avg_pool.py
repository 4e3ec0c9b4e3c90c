"""AVG_POOL: the mean code of each window; input and output share scale and zero point.

DOUBLE and SINGLE divide the sum of raw codes half away from zero (LiteRT). EVEN dequantises, adds
the taps row by row and gives rint(sum / count / scale + zp), each step in float32 (ONNX Runtime).
With groups = 1 the taps in the pads count
as the zero point; taps beyond the pads (a window rounded up) never count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Fault, Kernel, Step, operand_is
from npufw.kernels.layout import pixels
from npufw.kernels.params import head, positive_scale
from npufw.kernels.pooling import added_row_by_row, counts, overhang, reduced
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import BRICKS, I8, I32, PLAIN, head_only
from npufw.kernels.window import padded, pooled_window, same_batch_and_channels, taps_in_bounds

__all__ = ["AVG_POOL", "mean_away"]


def mean_away(raw: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the means of *count* taps each, half away from zero; *raw* are sums of codes."""
    magnitude = (np.abs(raw) + count // 2) // count
    return np.asarray(np.where(raw < 0, -magnitude, magnitude))


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    rows, columns = (counts(step, axis, pads_count=bool(step.toa.groups)) for axis in (0, 1))
    count = (rows[:, None] * columns)[None, :, :, None]
    values = pixels(arrays.input, step.input).astype(np.int64) - params.input_zero_point
    if step.rounding is Rounding.EVEN:
        means = _means_even(values, count, step, params)
    else:
        sums = reduced(padded(values, overhang(step), 0, np.int64), step, np.add)
        means = mean_away(sums + count * params.input_zero_point, count)
    return clamped(means, step).transpose(0, 3, 1, 2)


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
        operand_is("input", I8, BRICKS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", I8, BRICKS),
        same_batch_and_channels,
        pooled_window,
        taps_in_bounds,
        head_only,
        _groups,
        clamp_fits,
    ),
)
