"""softplus: ONNX Softplus; a smooth relu."""

from __future__ import annotations

import numpy as np

from npuc.expression import Expression, absolute, exp, log1p, maximum
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Softplus"]


@op("softplus")
class Softplus(Unary):
    """log(1 + exp(x))."""

    def real(self, x: Array) -> Array:
        return np.logaddexp(0.0, x)

    def expression(self, x: Expression) -> Expression:
        return maximum(x, 0.0) + log1p(exp(-absolute(x)))
