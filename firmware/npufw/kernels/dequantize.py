"""DEQUANTIZE: codes to floats, float32(q - zero point) * float32(scale), rounded to the output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Unit
from npuabi.errors import ErrorCode
from npuabi.records import OpParams
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import head
from npufw.kernels.residual import CODES as BYTES
from npufw.kernels.residual import table_index
from npufw.kernels.vector import ACTIVATIONS, CODES, FLOATS, I32, PLAIN, head_only, same_dims

__all__ = ["DEQUANTIZE"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    scale = np.float32(params.input_scale)
    if not 0 < scale < np.inf:
        text = f"{step.where}: parameters: input_scale is {scale}, expected above 0 and finite"
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    with np.errstate(over="ignore"):
        return np.asarray(_real(load(arrays.input, step.input), params, scale), arrays.output.dtype)


def _real(codes: NDArray[Any], params: OpParams, scale: np.float32) -> NDArray[np.float32]:
    if codes.dtype.itemsize > 1:
        return (codes.astype(np.int64) - params.input_zero_point).astype(np.float32) * scale
    table = (BYTES - params.input_zero_point).astype(np.float32) * scale
    return np.asarray(table[table_index(codes)])


DEQUANTIZE = Kernel(
    opcode=Opcode.DEQUANTIZE,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", CODES, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", FLOATS, ACTIVATIONS),
        same_dims,
        head_only,
    ),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
