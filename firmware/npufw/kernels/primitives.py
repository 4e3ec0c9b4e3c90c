"""The vector unit's float32 arithmetic: what each primitive of an EVAL program computes.

Invariant: float32 in, float32 out, every step in float32. Sums, products, quotients, square roots
and comparisons are IEEE's; the series are within 4 units in the last place where the result is no
smaller than 1e-37. numpy has no erf, so it and its complement are rational here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Primitive

__all__ = ["PRIMITIVES"]

F32 = NDArray[np.float32]

_ERF_ABOVE = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_BELOW = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
"""erf(x) = x * above(x^2) / below(x^2) on [-4, 4]."""

_ERFC = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)
"""erfc(z) = t * exp(-z^2 + series(t)), t = 1 / (1 + z / 2), z >= 0 (Numerical Recipes)."""

_HIGH_BITS = np.int32(-(1 << 12))


def _series(coefficients: tuple[float, ...], x: F32) -> F32:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + np.float32(coefficient)
    return total


def _erf(x: F32) -> F32:
    held = np.clip(x, np.float32(-1), np.float32(1))
    square = held * held
    near = held * _series(_ERF_ABOVE, square) / _series(_ERF_BELOW, square)
    far = np.copysign(np.float32(1) - _tail(np.abs(x)), x)
    return np.where(np.abs(x) <= 1, near, far)


def _erfc(x: F32) -> F32:
    tail = _tail(np.abs(x))
    far = np.where(x < 0, np.float32(2) - tail, tail)
    return np.where(np.abs(x) < 0.5, np.float32(1) - _erf(x), far)


def _tail(z: F32) -> F32:
    """erfc of numbers that are not negative."""
    t = np.float32(1) / (np.float32(1) + z * np.float32(0.5))
    # The square of the upper bits is exact, so that its rounding does not become the power's.
    high = np.ascontiguousarray(z).view(np.int32) & _HIGH_BITS
    upper = high.view(np.float32)
    power = np.exp(-upper * upper) * np.exp((upper - z) * (upper + z) + _series(_ERFC, t))
    return np.where(z > 20, np.float32(0), t * power)


def _less(a: F32, b: F32) -> F32:
    return (a < b).astype(np.float32)


def _select(condition: F32, a: F32, b: F32) -> F32:
    return np.where(condition != 0, a, b)


PRIMITIVES: dict[Primitive, Callable[..., Any]] = {
    Primitive.ADD: np.add,
    Primitive.SUB: np.subtract,
    Primitive.MUL: np.multiply,
    Primitive.DIV: np.divide,
    Primitive.MIN: np.minimum,
    Primitive.MAX: np.maximum,
    Primitive.LESS: _less,
    Primitive.SELECT: _select,
    Primitive.NEG: np.negative,
    Primitive.ABS: np.abs,
    Primitive.FLOOR: np.floor,
    Primitive.SQRT: np.sqrt,
    Primitive.EXP: np.exp,
    Primitive.EXPM1: np.expm1,
    Primitive.LOG: np.log,
    Primitive.LOG1P: np.log1p,
    Primitive.TANH: np.tanh,
    Primitive.ERF: _erf,
    Primitive.ERFC: _erfc,
    Primitive.POW: np.power,
}
"""All but those that push."""
