"""EVAL: a function of one or two tensors, given as a postfix program behind the OpParams head.

Numbers enter the program as float32; codes enter as q - zero point, without their scale. Each step
is float32. The result is rounded once to the output's dtype: to nearest even for f16; codes half
away from zero (EVEN: half to even), then + zero point and held in the clamp, NaN being 0. A dim of
1 is repeated. groups is the program's lane operations, which the cost counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Primitive, Rounding, Unit
from npuabi.errors import AbiError, ErrorCode
from npuabi.fixedpoint import round_half_away
from npuabi.postfix import ARITY, Instruction, decode, lane_ops
from npuabi.records import OpParams, TensorDescriptor
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.pairs import clamp_holds
from npufw.kernels.params import HEAD_WORDS, head
from npufw.kernels.primitives import PRIMITIVES
from npufw.kernels.vector import ACTIVATIONS, EVERY, I32, NUMBERS, PLAIN, broadcasts, head_only

__all__ = ["EVAL"]

_BEYOND = np.float32(1 << 20)
"""Beyond every code less any zero point."""


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    program = _program(step, arrays)
    x = _numbers(arrays.input, step.input, params.input_zero_point)
    other = step.tensors[3]
    y = None if other is None else _numbers(arrays.residual, other, params.residual_zero_point)
    with np.errstate(all="ignore"):
        value = np.broadcast_to(_evaluated(program, x, y), step.output.dims)
        return _stored(value, step, params)


def _program(step: Step, arrays: Arrays) -> tuple[Instruction, ...]:
    try:
        program = decode(arrays.parameters.reshape(-1)[HEAD_WORDS:])
    except AbiError as error:
        raise FirmwareError(error.code, f"{step.where}: eval: {error.detail}") from error
    if step.tensors[3] is None and any(i.primitive is Primitive.Y for i in program):
        text = f"{step.where}: eval: the program reads a second operand, the TOA has none"
        raise FirmwareError(ErrorCode.BAD_OPERANDS, text)
    if lane_ops(program) != step.toa.groups:
        text = f"groups is {step.toa.groups}, the program takes {lane_ops(program)} operations"
        raise FirmwareError(ErrorCode.BAD_FIELD, f"{step.where}: eval: {text}")
    return program


def _numbers(view: NDArray[Any], tensor: TensorDescriptor, zero_point: int) -> NDArray[np.float32]:
    values = load(view, tensor)
    if values.dtype.kind == "i":
        values = values.astype(np.int64) - zero_point
    return values.astype(np.float32)


def _evaluated(
    program: tuple[Instruction, ...], x: NDArray[np.float32], y: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    stack: list[Any] = []
    for instruction in program:
        if instruction.primitive is Primitive.X:
            stack.append(x)
        elif instruction.primitive is Primitive.Y:
            stack.append(y)
        elif instruction.primitive is Primitive.CONSTANT:
            stack.append(np.full((1, 1, 1, 1), instruction.constant, np.float32))
        else:
            _apply(instruction.primitive, stack)
    return np.asarray(stack.pop())


def _apply(primitive: Primitive, stack: list[Any]) -> None:
    taken = ARITY[primitive]
    operands = stack[-taken:]
    stack[-taken:] = [PRIMITIVES[primitive](*operands)]


def _stored(value: NDArray[np.float32], step: Step, params: OpParams) -> NDArray[Any]:
    dtype = np.dtype(step.output.dtype.numpy)
    if dtype.kind == "f":
        return value.astype(dtype)
    held = np.clip(np.where(np.isnan(value), np.float32(0), value), -_BEYOND, _BEYOND)
    whole = np.rint(held) if step.rounding is Rounding.EVEN else round_half_away(held)
    codes = whole.astype(np.int64) + params.output_zero_point
    low, high = step.toa.clamp
    return np.asarray(np.clip(codes, low, high), dtype)


EVAL = Kernel(
    opcode=Opcode.EVAL,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    optional=frozenset({"residual"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, ACTIVATIONS),
        operand_is("residual", NUMBERS, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, ACTIVATIONS),
        broadcasts,
        head_only,
        clamp_holds,
    ),
    precisions=EVERY,
)
