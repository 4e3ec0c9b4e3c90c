"""sqrt: ONNX Sqrt; codes of negative numbers count as those of zero.

LiteRT's SQRT cuts the quotient by the output scale off, where other ops round it.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from npuabi.enums import Rounding
from npuc.expression import Expression, X, floor, sqrt
from npuc.ir.core import Array, op
from npuc.ir.types import Quant
from npuc.ops.pointwise import Unary

__all__ = ["Sqrt"]


@op("sqrt")
class Sqrt(Unary):
    """The square root; codes of x < 0 count as 0."""

    DOMAIN: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def real(self, x: Array) -> Array:
        return np.sqrt(x)

    def expression(self, x: Expression) -> Expression:
        return sqrt(x)

    def steps(self, source: Quant, target: Quant, rounding: Rounding) -> Expression:
        """Return the float32 steps from a centred code to one before rounding."""
        quotient = sqrt(self.within(X * source.scale)) / target.scale
        return quotient if rounding is Rounding.EVEN else floor(quotient)
