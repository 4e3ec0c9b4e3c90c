"""What kernels of two tensors of codes share: their values, their clamp, their rules."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Rounding
from npuabi.errors import ErrorCode
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Fault, Rule, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import head
from npufw.kernels.vector import ACTIVATIONS, CODES, I32, PLAIN, broadcasts, head_only, one_dtype

__all__ = ["Ints", "centred", "clamp_holds", "code_rules", "held", "no_even"]

Ints = NDArray[np.int64]

_RANGES = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}


def centred(step: Step, arrays: Arrays) -> tuple[OpParams, Ints, Ints]:
    """Return the parameters' head, and both operands less their zero points, as N, C, H, W."""
    params = head(arrays.parameters, step.where)
    x = load(arrays.input, step.input).astype(np.int64) - params.input_zero_point
    if step.tensors[3] is None:
        return params, x, np.ones((1, 1, 1, 1), np.int64)
    y = load(arrays.residual, step.operand("residual")).astype(np.int64)
    return params, x, y - params.residual_zero_point


def held(values: NDArray[Any], step: Step, params: OpParams) -> NDArray[Any]:
    """Return the output's codes: *values* and the zero point, within the clamp."""
    low, high = step.toa.clamp
    return np.asarray(
        np.clip(values + params.output_zero_point, low, high), step.output.dtype.numpy
    )


def clamp_holds(step: Step) -> Fault:
    """Rule: the clamp is a range of the output's codes."""
    low, high = _RANGES.get(step.output.dtype, step.toa.clamp)
    if low <= step.toa.clamp[0] <= step.toa.clamp[1] <= high:
        return None
    text = f"clamp {step.toa.clamp} is no range of {step.output.dtype.text}"
    return ErrorCode.BAD_SCALE, text


def no_even(step: Step) -> Fault:
    """Rule: rounding even has no such rule; its programs use EVAL."""
    if step.rounding is not Rounding.EVEN:
        return None
    return ErrorCode.BAD_PRECISION, "there is no rule for rounding even, EVAL computes it there"


def code_rules(*more: Rule) -> tuple[Rule, ...]:
    """Return the rules of a kernel of two tensors of codes, *more* at the end."""
    return (
        operand_is("input", CODES, ACTIVATIONS),
        operand_is("residual", CODES, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", CODES, ACTIVATIONS),
        one_dtype,
        broadcasts,
        head_only,
        clamp_holds,
        *more,
    )
