"""COPY: elements between layouts, lanes and shapes, in row-major order of the logical dims."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Precision, Unit
from npuabi.errors import ErrorCode
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.vector import ACTIVATIONS, one_dtype

__all__ = ["COPY"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    # A copy even when shapes agree: the output is written later, and may overlap the input.
    values = load(arrays.input, step.input).copy(order="C")
    if math.prod(step.input.dims) == math.prod(step.output.dims):
        return values.reshape(step.output.dims)
    return np.broadcast_to(values, step.output.dims)


def _shapes(step: Step) -> Fault:
    source, out = step.input.dims, step.output.dims
    repeats = all(a in (1, b) for a, b in zip(source, out, strict=True))
    if repeats or math.prod(source) == math.prod(out):
        return None
    text = f"{dims_text(step.input)} neither repeats nor reshapes to {dims_text(step.output)}"
    return ErrorCode.BAD_DIMS, text


COPY = Kernel(
    opcode=Opcode.COPY,
    unit=Unit.VECTOR,
    required=frozenset({"input", "output"}),
    run=_run,
    rules=(
        operand_is("input", frozenset(DType), ACTIVATIONS),
        operand_is("output", frozenset(DType), ACTIVATIONS),
        one_dtype,
        _shapes,
    ),
    precisions=frozenset(Precision),
)
