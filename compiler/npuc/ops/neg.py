"""neg: ONNX Neg."""

from __future__ import annotations

from npuc.expression import Expression
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Neg"]


@op("neg")
class Neg(Unary):
    """-x."""

    def real(self, x: Array) -> Array:
        return -x

    def expression(self, x: Expression) -> Expression:
        return -x
