"""log: ONNX Log; codes of numbers that are not positive give the smallest code."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from npuc.expression import Expression, log
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Log"]


@op("log")
class Log(Unary):
    """The natural logarithm; codes of x <= 0 give the smallest code."""

    DOMAIN: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def real(self, x: Array) -> Array:
        return np.log(x)

    def expression(self, x: Expression) -> Expression:
        return log(x)
