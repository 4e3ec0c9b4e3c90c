"""RESCALE: int8 codes to another scale and zero point, with an activation's clamp.

There are 256 codes, so the rule is applied to each once and the tensor is looked up. EVEN
dequantises and quantises, in float32: rint((q - zp) * input scale / output scale) + zp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Rounding, Unit
from npuabi.fixedpoint import apply
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import head, positive_scale
from npufw.kernels.quantize import BEYOND
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.residual import CODES, table_index
from npufw.kernels.vector import ACTIVATIONS, I8, I32, PLAIN, head_only, same_dims

__all__ = ["RESCALE"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    acc = CODES - params.input_zero_point
    if step.rounding is Rounding.EVEN:
        scaled = _even(acc, step, params)
    else:
        scaled = apply(acc, params.input_multiplier, params.input_shift, step.rounding)
    table = clamped(scaled + params.output_zero_point, step)
    return table[table_index(load(arrays.input, step.input))]


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
        operand_is("input", I8, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", I8, ACTIVATIONS),
        same_dims,
        head_only,
        clamp_fits,
    ),
)
