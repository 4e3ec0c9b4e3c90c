"""GLOBAL_AVG_POOL: the mean of each channel.

DOUBLE and SINGLE round as AVG_POOL does. EVEN is ONNX Runtime's QLinearGlobalAveragePool:
rint(float32(sum(q - zp)) * (scale / (scale * count))) + zp, the scales in float32. Floats are added
in float32, divided by the count and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.records import OpParams
from npufw.kernels.avg_pool import mean_away
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.floats import is_float, real_pixels
from npufw.kernels.layout import pixels
from npufw.kernels.params import head, positive_scale
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import BRICKS, EVERY, I32, NUMBERS, PLAIN, head_only, one_dtype

__all__ = ["GLOBAL_AVG_POOL"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    found = _floats(step, arrays) if is_float(step) else _codes(step, arrays)
    return found[:, :, None, None]


def _floats(step: Step, arrays: Arrays) -> NDArray[Any]:
    values = real_pixels(arrays, step)
    with np.errstate(over="ignore", invalid="ignore"):
        means = values.sum(axis=(1, 2)) / np.float32(values.shape[1] * values.shape[2])
        return np.asarray(means, step.output.dtype.numpy)


def _codes(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    values = pixels(arrays.input, step.input)
    count = np.array(values.shape[1] * values.shape[2], np.int64)
    sums = values.sum(axis=(1, 2), dtype=np.int64)
    means = _even(sums, count, step, params) if step.rounding is Rounding.EVEN else None
    return clamped(mean_away(sums, count) if means is None else means, step)


def _even(
    sums: NDArray[np.int64], count: NDArray[np.int64], step: Step, params: OpParams
) -> NDArray[Any]:
    into, out = (positive_scale(s, step) for s in (params.input_scale, params.output_scale))
    factor = into / (out * count.astype(np.float32))
    centred = (sums - count * params.input_zero_point).astype(np.float32)
    return np.asarray(np.rint(centred * factor) + params.output_zero_point)


def _one_pixel(step: Step) -> Fault:
    n, c, _, _ = step.input.dims
    if step.output.dims != (n, c, 1, 1):
        text = f"output is {dims_text(step.output)}, expected ({n},{c},1,1)"
        return ErrorCode.BAD_DIMS, text
    return None


GLOBAL_AVG_POOL = Kernel(
    opcode=Opcode.GLOBAL_AVG_POOL,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, BRICKS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, BRICKS),
        one_dtype,
        _one_pixel,
        head_only,
        clamp_fits,
    ),
    precisions=EVERY,
)
