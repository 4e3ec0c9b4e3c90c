"""Numerics of log_softmax on codes: x - max - log(sum of exp(x - max)) along an axis.

Int8, DOUBLE and SINGLE: LiteRT's reference kernel, in gemmlowp fixed point. EVEN, and int16 in all
modes, which no runtime has: with d = max - q, e = power(d / 256) * power(d % 256) from two float64
tables, the sum of rint(e * 2^40) exact in int64, y = -(d * scale) - log(sum * 2^-40), code =
round(y / output scale) + zero point; halves away from zero, to even for EVEN.
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from npuabi import fixedpoint
from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import round_half_away
from npuc.ir.core import Array
from npuc.ir.types import Quant

__all__ = ["RESULTS", "log_softmax_codes", "power_tables", "uses_tables"]

RESULTS = {
    DType.I8: Quant.per_tensor(16 / 256, 127),
    DType.I16: Quant.per_tensor(16 / 32768, 0),
}
"""Parameters of every result; int8's are LiteRT's, from -255/16 to 0."""

_ENTRIES = 256
_SUM_BITS = 40
_LIMITS = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}


def uses_tables(dtype: DType, rounding: Rounding) -> bool:
    """Return whether the rule with tables holds."""
    return dtype is DType.I16 or rounding is Rounding.EVEN


@lru_cache(maxsize=64)
def power_tables(scale: float) -> NDArray[np.float64]:
    """Return exp(-256 * d * scale) and exp(-d * scale) for d = 0..255, one row each.

    Decimal arithmetic, rounded once, makes them the same on every machine.
    """
    context = Context(prec=40)
    rows = [
        [float(context.exp(context.multiply(Decimal(-d * step), Decimal(scale))))
         for d in range(_ENTRIES)]
        for step in (_ENTRIES, 1)
    ]  # fmt: skip
    return np.array(rows, np.float64)


def log_softmax_codes(
    x: Array, source: Quant, axis: int, rounding: Rounding, dtype: DType
) -> Array:
    """Return the codes of codes *x* in *source*'s parameters, along *axis*."""
    codes = x.astype(np.int64)
    below = codes.max(axis=axis, keepdims=True, initial=_LIMITS[dtype][0]) - codes
    if uses_tables(dtype, rounding):
        steps = _by_tables(below, source.scale, axis, RESULTS[dtype].scale)
        whole = np.rint(steps) if rounding is Rounding.EVEN else round_half_away(steps)
        found = whole.astype(np.int64)
    else:
        found = _fixed(-below, source.scale, axis, rounding)
    result: Array = np.clip(found + RESULTS[dtype].zero_point, *_LIMITS[dtype])
    return result.astype(dtype.numpy)


def _by_tables(below: Array, scale: float, axis: int, output: float) -> Array:
    high, low = power_tables(scale)
    terms = high[below // _ENTRIES] * low[below % _ENTRIES]
    total = np.rint(terms * 2.0**_SUM_BITS).astype(np.int64).sum(axis=axis, keepdims=True)
    log = fixedpoint.log_real(total.astype(np.float64) * 2.0**-_SUM_BITS)
    steps: Array = (-(below.astype(np.float64) * scale) - log) / output
    return steps


def _fixed(differences: Array, scale: float, axis: int, rounding: Rounding) -> Array:
    found = fixedpoint.log_softmax_parameters(scale, rounding)
    factor = found.input_multiplier, found.input_shift
    counted = differences >= found.diff_min
    scaled = fixedpoint.apply(np.where(counted, differences, 0), *factor, rounding)
    powers = fixedpoint.rescale_to_q12(fixedpoint.exp_on_negative_values(scaled))
    log = fixedpoint.log_of_q12(np.where(counted, powers, 0).sum(axis=axis, keepdims=True))
    back = fixedpoint.apply(
        log + fixedpoint.INT32_MIN, found.output_multiplier, found.output_shift, rounding
    )
    least = np.maximum(found.diff_min - 1, back)
    shown = differences > least
    q26 = fixedpoint.apply(np.where(shown, differences, 0), *factor, rounding) - log
    result: Array = np.where(shown, fixedpoint.rounding_divide_by_pot(q26, 22), -255)
    return result
