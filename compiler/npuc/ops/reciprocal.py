"""reciprocal: ONNX Reciprocal; the code of zero gives the largest code."""

from __future__ import annotations

from npuc.expression import Expression
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Reciprocal"]


@op("reciprocal")
class Reciprocal(Unary):
    """1 / x; the code of zero gives the largest code."""

    def real(self, x: Array) -> Array:
        return 1.0 / x

    def expression(self, x: Expression) -> Expression:
        return 1.0 / x
