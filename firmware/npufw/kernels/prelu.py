"""PRELU: codes times one scale, and below zero times a slope and another scale.

Slopes are i8 codes, a dim of 1 is repeated; without them the slope's code is 1, which serves
functions of one slope. Both multipliers may be negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import apply
from npufw.kernels.base import Arrays, Fault, Kernel, Step, operand_is
from npufw.kernels.pairs import centred, clamp_holds, held, no_even
from npufw.kernels.vector import ACTIVATIONS, CODES, I8, I32, PLAIN, broadcasts, head_only

__all__ = ["PRELU"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params, x, slope = centred(step, arrays)
    above = apply(x, params.input_multiplier, params.input_shift, step.rounding)
    below = apply(x * slope, params.residual_multiplier, params.residual_shift, step.rounding)
    return held(np.where(x < 0, below, above), step, params)


def _like_input(step: Step) -> Fault:
    if step.input.dims == step.output.dims and step.input.dtype is step.output.dtype:
        return None
    return ErrorCode.BAD_DIMS, "input and output are not of the same dims and dtype"


PRELU = Kernel(
    opcode=Opcode.PRELU,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    optional=frozenset({"residual"}),
    run=_run,
    rules=(
        operand_is("input", CODES, ACTIVATIONS),
        operand_is("residual", I8, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", CODES, ACTIVATIONS),
        _like_input,
        broadcasts,
        head_only,
        clamp_holds,
        no_even,
    ),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
