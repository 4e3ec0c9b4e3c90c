"""QUANTIZE: floats to codes, round(x / scale) + zero point, clamped to int8 or int16.

The division is float32. DOUBLE and SINGLE round half away from zero, EVEN half to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import round_half_away
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import head
from npufw.kernels.vector import ACTIVATIONS, CODES, FLOATS, I32, PLAIN, head_only, same_dims

__all__ = ["BEYOND", "QUANTIZE"]

BEYOND = np.float32(1 << 17)
"""Larger than any code less any zero point, so clamping to it first changes no result."""


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    scale = np.float32(params.output_scale)
    if not 0 < scale < np.inf:
        text = f"{step.where}: parameters: output_scale is {scale}, expected above 0 and finite"
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    with np.errstate(over="ignore"):
        real = load(arrays.input, step.input).astype(np.float32) / scale
    real = np.clip(real, -BEYOND, BEYOND)
    whole = np.rint(real) if step.rounding is Rounding.EVEN else round_half_away(real)
    # A NaN can only come from memory that nothing wrote: it becomes the zero point.
    codes = np.nan_to_num(whole).astype(np.int64) + params.output_zero_point
    limits = np.iinfo(arrays.output.dtype)
    return np.asarray(np.clip(codes, limits.min, limits.max), limits.dtype)


QUANTIZE = Kernel(
    opcode=Opcode.QUANTIZE,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", FLOATS, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", CODES, ACTIVATIONS),
        same_dims,
        head_only,
    ),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
