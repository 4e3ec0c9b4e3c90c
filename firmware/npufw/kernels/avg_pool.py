"""AVG_POOL: the mean code of each window; input and output share scale and zero point.

DOUBLE and SINGLE divide the sum of raw codes half away from zero (LiteRT); EVEN is
rint(float32(sum(q - zp)) * float32(1 / count)) + zp. With groups = 1 the taps in the pads count
as the zero point; taps beyond the pads (a window rounded up) never count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Rounding, Unit
from npuabi.errors import ErrorCode
from npufw.kernels.base import Arrays, Fault, Kernel, Step, operand_is
from npufw.kernels.layout import pixels
from npufw.kernels.params import head
from npufw.kernels.pooling import counts, overhang, reduced
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import BRICKS, I8, I32, PLAIN, head_only
from npufw.kernels.window import padded, pooled_window, same_batch_and_channels, taps_in_bounds

__all__ = ["AVG_POOL", "mean_codes"]


def mean_codes(
    sums: NDArray[np.int64], count: NDArray[np.int64], zero_point: int, rounding: Rounding
) -> NDArray[np.int64]:
    """Return the mean codes of *count* taps each; *sums* are sum(q - zero_point)."""
    if rounding is Rounding.EVEN:
        reciprocal = np.float32(1) / count.astype(np.float32)
        means = np.rint(sums.astype(np.float32) * reciprocal)
        return np.asarray(means.astype(np.int64) + zero_point)
    raw = sums + count * zero_point
    magnitude = (np.abs(raw) + count // 2) // count
    return np.asarray(np.where(raw < 0, -magnitude, magnitude))


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    zero = head(arrays.parameters, step.where).input_zero_point
    values = pixels(arrays.input, step.input).astype(np.int64) - zero
    sums = reduced(padded(values, overhang(step), 0, np.int64), step, np.add)
    rows, columns = (counts(step, axis, pads_count=bool(step.toa.groups)) for axis in (0, 1))
    count = (rows[:, None] * columns)[None, :, :, None]
    means = mean_codes(sums, count, zero, step.rounding)
    return clamped(means, step).transpose(0, 3, 1, 2)


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
