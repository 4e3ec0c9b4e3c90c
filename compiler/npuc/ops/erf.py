"""erf: ONNX Erf; twice the normal distribution's share between 0 and sqrt(2) x, signed."""

from __future__ import annotations

import math

import numpy as np

from npuc.expression import Expression, erf
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Erf"]

_erf = np.vectorize(math.erf, otypes=[np.float64])


@op("erf")
class Erf(Unary):
    """The error function of x."""

    def real(self, x: Array) -> Array:
        return np.asarray(_erf(x))

    def expression(self, x: Expression) -> Expression:
        return erf(x)
