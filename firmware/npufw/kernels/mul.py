"""MUL: the product of two tensors of codes, each with its own scale; a dim of 1 is repeated.

The product of the codes less their zero points is rescaled as a convolution's sum is; for EVEN
rint(float32(product) * scale + zero point), as ONNX Runtime's QLinearMul.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Rounding, Unit
from npuabi.fixedpoint import apply, scale_of
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Kernel, Step
from npufw.kernels.pairs import Ints, centred, code_rules, held
from npufw.kernels.params import positive_scale

__all__ = ["MUL"]

_BEYOND = np.float32(1 << 20)


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params, x, y = centred(step, arrays)
    if step.rounding is Rounding.EVEN:
        return held(_even(x * y, params, step), step, params)
    product = apply(x * y, params.output_multiplier, params.output_shift, step.rounding)
    return held(product, step, params)


def _even(product: Ints, params: OpParams, step: Step) -> Ints:
    """The rounded result less the zero point, which the rounding must see."""
    scale = positive_scale(float(scale_of(params.output_multiplier)), step)
    zero = np.float32(params.output_zero_point)
    with np.errstate(over="ignore"):
        real = product.astype(np.float32) * scale + zero
    whole = np.asarray(np.rint(np.clip(real, -_BEYOND, _BEYOND)), np.int64)
    return whole - params.output_zero_point


MUL = Kernel(
    opcode=Opcode.MUL,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "residual", "output"}),
    run=_run,
    rules=code_rules(),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
