"""ADD: two tensors, codes each with its own scale; a dim of 1 is repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Unit
from npufw.kernels import residual
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.floats import bounded, float_head, is_float, real_pixels
from npufw.kernels.layout import pixels
from npufw.kernels.params import head
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import (
    ACTIVATIONS,
    EVERY,
    I32,
    NUMBERS,
    PLAIN,
    broadcasts,
    head_only,
    one_dtype,
)

__all__ = ["ADD"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    found = _floats(step, arrays) if is_float(step) else _codes(step, arrays)
    return found.transpose(0, 3, 1, 2)


def _floats(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = float_head(arrays.parameters, step.where)
    other = pixels(arrays.residual, step.operand("residual")).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        total = bounded(real_pixels(arrays, step) + other, params.low, params.high)
        return total.astype(step.output.dtype.numpy)


def _codes(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    one = pixels(arrays.input, step.input)
    other = pixels(arrays.residual, step.operand("residual"))
    scaling = residual.first(params, params.input_zero_point), residual.second(params)
    total = residual.add(one, other, scaling, params, step.rounding)
    return clamped(total, step)


ADD = Kernel(
    opcode=Opcode.ADD,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "residual", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, ACTIVATIONS),
        operand_is("residual", NUMBERS, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, ACTIVATIONS),
        one_dtype,
        broadcasts,
        head_only,
        clamp_fits,
    ),
    precisions=EVERY,
)
