"""RESCALE: codes to another scale, zero point or width, with an activation's clamp.

There are 256 int8 codes, so the rule is applied to each once and the tensor is looked up. EVEN
dequantises and quantises, in float32: rint((q - zp) * input scale / output scale) + zp. Floats are
only clamped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Rounding, Unit
from npuabi.fixedpoint import apply
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.floats import bounded, float_head, is_float
from npufw.kernels.layout import load
from npufw.kernels.params import head, positive_scale
from npufw.kernels.quantize import BEYOND
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.residual import CODES, table_index
from npufw.kernels.vector import (
    ACTIVATIONS,
    EVERY,
    I32,
    NUMBERS,
    PLAIN,
    head_only,
    one_kind,
    same_dims,
)

__all__ = ["RESCALE"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    values = load(arrays.input, step.input)
    if is_float(step):
        limits = float_head(arrays.parameters, step.where)
        held = bounded(values.astype(np.float32), limits.low, limits.high)
        return held.astype(step.output.dtype.numpy)
    params = head(arrays.parameters, step.where)
    if step.input.dtype is DType.I8:
        return _scaled(CODES, step, params)[table_index(values)]
    return _scaled(values.astype(np.int64), step, params)


def _scaled(codes: NDArray[np.int64], step: Step, params: OpParams) -> NDArray[Any]:
    acc = codes - params.input_zero_point
    if step.rounding is Rounding.EVEN:
        scaled = _even(acc, step, params)
    else:
        scaled = apply(acc, params.input_multiplier, params.input_shift, step.rounding)
    return clamped(scaled + params.output_zero_point, step)


def _even(centred: NDArray[np.int64], step: Step, params: OpParams) -> NDArray[np.int64]:
    into, out = (positive_scale(s, step) for s in (params.input_scale, params.output_scale))
    with np.errstate(over="ignore"):
        steps = centred.astype(np.float32) * into / out
    return np.asarray(np.rint(np.clip(steps, -BEYOND, BEYOND)), np.int64)


RESCALE = Kernel(
    opcode=Opcode.RESCALE,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, ACTIVATIONS),
        one_kind,
        same_dims,
        head_only,
        clamp_fits,
    ),
    precisions=EVERY,
)
