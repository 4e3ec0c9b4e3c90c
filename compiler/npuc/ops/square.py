"""square: x * x; ours, as TFLite has it."""

from __future__ import annotations

from npuc.expression import Expression
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary

__all__ = ["Square"]


@op("square")
class Square(Unary):
    """x * x."""

    def real(self, x: Array) -> Array:
        return x * x

    def expression(self, x: Expression) -> Expression:
        return x * x
