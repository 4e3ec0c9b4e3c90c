"""ARGMAX: the place of the largest element along an axis, as int64.

kernel[0] is the axis; kernel[1] = 1 takes the last of equal elements, 0 the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Unit
from npuabi.errors import ErrorCode
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.vector import ACTIVATIONS, EVERY, NUMBERS

__all__ = ["ARGMAX"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    axis, last = step.toa.kernel
    values = load(arrays.input, step.input)
    if not last:
        return np.asarray(values.argmax(axis=axis, keepdims=True), np.int64)
    behind = np.flip(values, axis).argmax(axis=axis, keepdims=True)
    return np.asarray(values.shape[axis] - 1 - behind, np.int64)


def _axis(step: Step) -> Fault:
    axis, last = step.toa.kernel
    if axis > 3 or last not in (0, 1):
        return ErrorCode.BAD_WINDOW, f"kernel is an axis, 0 to 3, and 0 or 1, got {axis}, {last}"
    wanted = list(step.input.dims)
    wanted[axis] = 1
    if list(step.output.dims) != wanted:
        text = f"{dims_text(step.output)} is not {dims_text(step.input)} with one place along"
        return ErrorCode.BAD_DIMS, f"{text} axis {axis}"
    return None


ARGMAX = Kernel(
    opcode=Opcode.ARGMAX,
    unit=Unit.VECTOR,
    required=frozenset({"input", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, ACTIVATIONS),
        operand_is("output", frozenset({DType.I64}), ACTIVATIONS),
        _axis,
    ),
    precisions=EVERY,
)
