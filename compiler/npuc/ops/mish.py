"""mish: ONNX Mish of opset 18."""

from __future__ import annotations

import numpy as np

from npuc.expression import Expression, absolute, exp, log1p, maximum, tanh
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Mish"]


@op("mish")
class Mish(Unary):
    """x * tanh(log(1 + exp(x)))."""

    def real(self, x: Array) -> Array:
        return x * np.tanh(np.logaddexp(0.0, x))

    def expression(self, x: Expression) -> Expression:
        return x * tanh(maximum(x, 0.0) + log1p(exp(-absolute(x))))
