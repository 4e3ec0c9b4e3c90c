"""Functions of one or two numbers as expressions, and the programs that EVAL runs for them.

``1 / (1 + exp(-X))`` is written as it stands. Invariant: an expression says each float32 step and
their order; ``numbers`` computes them so that every machine gets the same bits, each step rounded
once (``npuc.exact``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npuabi.enums import Primitive
from npuabi.postfix import Instruction
from npuc.exact import ROUNDED, SERIES
from npuc.ir.core import Array

__all__ = [
    "Expression",
    "X",
    "Y",
    "absolute",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "is_exact",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "numbers",
    "power",
    "program",
    "select",
    "sqrt",
    "tanh",
]


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A primitive and its operands; ``constant`` is the number of a constant."""

    primitive: Primitive
    operands: tuple[Expression, ...] = ()
    constant: float = 0.0

    def __add__(self, other: Number) -> Expression:
        return _made(Primitive.ADD, self, other)

    def __radd__(self, other: float) -> Expression:
        return _made(Primitive.ADD, other, self)

    def __sub__(self, other: Number) -> Expression:
        return _made(Primitive.SUB, self, other)

    def __rsub__(self, other: float) -> Expression:
        return _made(Primitive.SUB, other, self)

    def __mul__(self, other: Number) -> Expression:
        return _made(Primitive.MUL, self, other)

    def __rmul__(self, other: float) -> Expression:
        return _made(Primitive.MUL, other, self)

    def __truediv__(self, other: Number) -> Expression:
        return _made(Primitive.DIV, self, other)

    def __rtruediv__(self, other: float) -> Expression:
        return _made(Primitive.DIV, other, self)

    def __lt__(self, other: Number) -> Expression:
        return _made(Primitive.LESS, self, other)

    def __neg__(self) -> Expression:
        return _made(Primitive.NEG, self)


Number = Expression | float

X = Expression(Primitive.X)
"""The first operand."""
Y = Expression(Primitive.Y)
"""The second operand."""


def _made(primitive: Primitive, *operands: Number) -> Expression:
    return Expression(primitive, tuple(_expression(operand) for operand in operands))


def _expression(number: Number) -> Expression:
    if isinstance(number, Expression):
        return number
    return Expression(Primitive.CONSTANT, constant=float(number))


def minimum(a: Number, b: Number) -> Expression:
    """Return the smaller number."""
    return _made(Primitive.MIN, a, b)


def maximum(a: Number, b: Number) -> Expression:
    """Return the larger number."""
    return _made(Primitive.MAX, a, b)


def select(condition: Number, a: Number, b: Number) -> Expression:
    """Return *a*, or *b* where *condition* is 0."""
    return _made(Primitive.SELECT, condition, a, b)


def absolute(x: Number) -> Expression:
    """Return the number without its sign."""
    return _made(Primitive.ABS, x)


def floor(x: Number) -> Expression:
    """Return the largest whole number not above *x*."""
    return _made(Primitive.FLOOR, x)


def sqrt(x: Number) -> Expression:
    """Return the square root."""
    return _made(Primitive.SQRT, x)


def exp(x: Number) -> Expression:
    """Return e to the power of *x*."""
    return _made(Primitive.EXP, x)


def expm1(x: Number) -> Expression:
    """Return e to the power of *x*, less 1."""
    return _made(Primitive.EXPM1, x)


def log(x: Number) -> Expression:
    """Return the natural logarithm."""
    return _made(Primitive.LOG, x)


def log1p(x: Number) -> Expression:
    """Return the natural logarithm of 1 + *x*."""
    return _made(Primitive.LOG1P, x)


def tanh(x: Number) -> Expression:
    """Return the hyperbolic tangent."""
    return _made(Primitive.TANH, x)


def erf(x: Number) -> Expression:
    """Return the error function."""
    return _made(Primitive.ERF, x)


def erfc(x: Number) -> Expression:
    """Return 1 less the error function."""
    return _made(Primitive.ERFC, x)


def power(x: Number, exponent: Number) -> Expression:
    """Return *x* to the power of *exponent*."""
    return _made(Primitive.POW, x, exponent)


def program(expression: Expression) -> list[Instruction]:
    """Return the postfix program of *expression*."""
    return list(_postfix(expression))


def _postfix(expression: Expression) -> Iterator[Instruction]:
    for operand in expression.operands:
        yield from _postfix(operand)
    yield Instruction(expression.primitive, expression.constant)


def numbers(expression: Expression, x: Array, y: Array | None = None) -> Array:
    """Return the float32 values of *expression* at float32 *x* (and *y*), step by step."""
    if expression.primitive is Primitive.X:
        return x
    if expression.primitive is Primitive.Y:
        if y is None:
            raise ValueError("the expression has a second operand")
        return y
    if expression.primitive is Primitive.CONSTANT:
        return np.asarray(expression.constant, np.float32)
    operands = [numbers(operand, x, y) for operand in expression.operands]
    return ROUNDED[expression.primitive](*operands)


def is_exact(expression: Expression) -> bool:
    """Return whether IEEE 754 alone gives every bit of *expression*: it holds no series."""
    return all(step.primitive not in SERIES for step in _postfix(expression))
