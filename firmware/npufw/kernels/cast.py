"""CAST: float32 to float16 or back; halves go to even, what float16 cannot hold to infinity."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Unit
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.vector import ACTIVATIONS, FLOATS, same_dims

__all__ = ["CAST"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return load(arrays.input, step.input).astype(arrays.output.dtype)


CAST = Kernel(
    opcode=Opcode.CAST,
    unit=Unit.VECTOR,
    required=frozenset({"input", "output"}),
    run=_run,
    rules=(
        operand_is("input", FLOATS, ACTIVATIONS),
        operand_is("output", FLOATS, ACTIVATIONS),
        same_dims,
    ),
    precisions=frozenset({Precision.FP16, Precision.FP32}),
)
