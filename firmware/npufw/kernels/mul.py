"""MUL: the product of two tensors of codes, each with its own scale; a dim of 1 is repeated.

The product of the codes less their zero points is rescaled as a convolution's sum is; for EVEN
rint(float32(product) * scale), as ONNX Runtime's QLinearMul.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Unit
from npuabi.fixedpoint import apply
from npufw.kernels.base import Arrays, Kernel, Step
from npufw.kernels.pairs import centred, code_rules, held

__all__ = ["MUL"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params, x, y = centred(step, arrays)
    product = apply(x * y, params.output_multiplier, params.output_shift, step.rounding)
    return held(product, step, params)


MUL = Kernel(
    opcode=Opcode.MUL,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "residual", "output"}),
    run=_run,
    rules=code_rules(),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
