"""abs: ONNX Abs."""

from __future__ import annotations

import numpy as np

from npuc.expression import Expression, absolute
from npuc.ir.core import Array, op
from npuc.ops.slopes import TwoSlopes

__all__ = ["Abs"]


@op("abs")
class Abs(TwoSlopes):
    """x without its sign."""

    @property
    def slope(self) -> float:
        return -1.0

    def real(self, x: Array) -> Array:
        return np.abs(x)

    def expression(self, x: Expression) -> Expression:
        return absolute(x)
