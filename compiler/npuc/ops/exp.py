"""exp: ONNX Exp."""

from __future__ import annotations

import numpy as np

from npuc.expression import Expression, exp
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Exp"]


@op("exp")
class Exp(Unary):
    """e to the power of x."""

    def real(self, x: Array) -> Array:
        return np.exp(x)

    def expression(self, x: Expression) -> Expression:
        return exp(x)
