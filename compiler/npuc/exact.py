"""Float32 functions that are the same on every machine: the exact value, rounded once.

Sums, products, quotients and square roots are so by IEEE 754. A series is computed in float64; only
where that lies so near the middle of two float32 that its own error could decide, it is computed
again in decimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, Underflow
from typing import Any

import numpy as np

from npuabi.enums import Primitive
from npuc.ir.core import Array

__all__ = ["ROUNDED", "SERIES"]

_DOUBT = 2.0**-44
"""Relative error that no libm's float64 function comes near."""

_DIGITS = 60
_CONTEXT = Context(prec=_DIGITS)
for _trap in (DivisionByZero, InvalidOperation, Overflow, Underflow):
    _CONTEXT.traps[_trap] = False
_ONE = Decimal(1)

_Exact = Callable[..., Decimal]


def _series(quick: Callable[..., Any], exact: _Exact) -> Callable[..., Array]:
    """Return the float32 function that rounds *quick*, and where that may be wrong *exact*."""

    def rounded(*operands: Array) -> Array:
        given = np.broadcast_arrays(*(np.asarray(o, np.float32) for o in operands))
        with np.errstate(all="ignore"):
            value = np.asarray(quick(*(g.astype(np.float64) for g in given)))
            result = value.astype(np.float32)
            low, high = ((value * (1 + d)).astype(np.float32) for d in (-_DOUBT, _DOUBT))
        for place in np.argwhere((low != high) & np.isfinite(value)):
            at = tuple(place)
            result[at] = _nearest(exact(*(Decimal(float(g[at])) for g in given)))
        return result

    return rounded


def _nearest(exact: Decimal) -> np.float32:
    """Return the float32 nearest to *exact*; the middle of two, where it is exactly that, to even.

    The float64 between is made odd on the side of the truth, so that it makes no false middle.
    """
    double = np.float64(float(exact))
    rest = _CONTEXT.subtract(exact, Decimal(float(double)))
    if rest and double.view(np.int64) & 1 == 0:
        double = np.nextafter(double, np.float64(math.inf if rest > 0 else -math.inf))
    return np.float32(double)


def _exp(x: Decimal) -> Decimal:
    return _CONTEXT.exp(x)


def _expm1(x: Decimal) -> Decimal:
    return _CONTEXT.subtract(Context(prec=3 * _DIGITS).exp(x), _ONE)


def _log(x: Decimal) -> Decimal:
    return _CONTEXT.ln(x)


def _log1p(x: Decimal) -> Decimal:
    return _CONTEXT.ln(Context(prec=3 * _DIGITS).add(_ONE, x))


def _tanh(x: Decimal) -> Decimal:
    twice = _expm1(_CONTEXT.add(x, x))
    return _CONTEXT.divide(twice, _CONTEXT.add(twice, Decimal(2)))


def _erf(x: Decimal) -> Decimal:
    return _CONTEXT.subtract(_ONE, _erfc(x))


def _erfc(x: Decimal) -> Decimal:
    """1 less the Maclaurin series; its largest term, exp(x^2), costs digits."""
    context = Context(prec=2 * _DIGITS + 2 * int(x * x))
    square, term, total, n = context.multiply(x, x), x, x, 0
    while term and term.copy_abs() > total.copy_abs().scaleb(-context.prec, context):
        n += 1
        term = context.divide(context.multiply(term, square).copy_negate(), Decimal(n))
        total = context.add(total, context.divide(term, Decimal(2 * n + 1)))
    return context.subtract(_ONE, context.multiply(total, _two_over_root_pi(context)))


def _two_over_root_pi(context: Context) -> Decimal:
    # Machin: pi / 4 = 4 atan(1/5) - atan(1/239).
    quarter = context.subtract(
        context.multiply(Decimal(4), _atan_inverse(5, context)), _atan_inverse(239, context)
    )
    return context.divide(_ONE, context.sqrt(quarter))


def _atan_inverse(n: int, context: Context) -> Decimal:
    power = context.divide(_ONE, Decimal(n))
    total, step = power, 1
    while power > Decimal(1).scaleb(-context.prec):
        power = context.divide(power, Decimal(n * n))
        step += 2
        part = context.divide(power, Decimal(step))
        total = context.add(total, part.copy_negate() if step % 4 == 3 else part)
    return total


def _power(x: Decimal, exponent: Decimal) -> Decimal:
    return _CONTEXT.power(x, exponent)


def _of_floats(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return np.vectorize(function, otypes=[np.float64])


def _ieee(function: Callable[..., Any]) -> Callable[..., Array]:
    def rounded(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands), np.float32)

    return rounded


_SERIES: dict[Primitive, Callable[..., Array]] = {
    Primitive.EXP: _series(np.exp, _exp),
    Primitive.EXPM1: _series(np.expm1, _expm1),
    Primitive.LOG: _series(np.log, _log),
    Primitive.LOG1P: _series(np.log1p, _log1p),
    Primitive.TANH: _series(np.tanh, _tanh),
    Primitive.ERF: _series(_of_floats(math.erf), _erf),
    Primitive.ERFC: _series(_of_floats(math.erfc), _erfc),
    Primitive.POW: _series(np.power, _power),
}

SERIES = frozenset(_SERIES)
"""Primitives that a device computes to within a few units in the last place."""

ROUNDED: dict[Primitive, Callable[..., Array]] = {
    Primitive.ADD: _ieee(np.add),
    Primitive.SUB: _ieee(np.subtract),
    Primitive.MUL: _ieee(np.multiply),
    Primitive.DIV: _ieee(np.divide),
    Primitive.MIN: _ieee(np.minimum),
    Primitive.MAX: _ieee(np.maximum),
    Primitive.LESS: _ieee(np.less),
    Primitive.SELECT: _ieee(np.where),
    Primitive.NEG: _ieee(np.negative),
    Primitive.ABS: _ieee(np.abs),
    Primitive.FLOOR: _ieee(np.floor),
    Primitive.SQRT: _ieee(np.sqrt),
    **_SERIES,
}
"""Every primitive that computes, on float32 arrays or numbers."""
