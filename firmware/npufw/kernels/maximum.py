"""MAXIMUM: the larger of two tensors of one dtype; a dim of 1 is repeated.

Codes are compared as they are: both operands and the output have the same parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Unit
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.vector import ACTIVATIONS, EVERY, NUMBERS, broadcasts, one_dtype

__all__ = ["MAXIMUM"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    other = load(arrays.residual, step.operand("residual"))
    return np.asarray(np.maximum(load(arrays.input, step.input), other))


MAXIMUM = Kernel(
    opcode=Opcode.MAXIMUM,
    unit=Unit.VECTOR,
    required=frozenset({"input", "residual", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, ACTIVATIONS),
        operand_is("residual", NUMBERS, ACTIVATIONS),
        operand_is("output", NUMBERS, ACTIVATIONS),
        one_dtype,
        broadcasts,
    ),
    precisions=EVERY,
)
