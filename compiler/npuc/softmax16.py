"""Softmax of int16 codes, as LiteRT's reference kernel has it: two tables with straight lines.

The tables are those of exp on [-10, 0] and of 1 / (1 + x) on [0, 1], 513 entries each; the blob
holds them, so that the device needs no libm. ONNX Runtime has no int16 softmax: all rounding modes
follow LiteRT's rule, EVEN with the roundings of DOUBLE.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from functools import cache

import numpy as np
from numpy.typing import NDArray

from npuabi import fixedpoint
from npuabi.enums import Rounding
from npuabi.fixedpoint import round_half_away
from npuc.ir.core import Array

__all__ = ["RESULT_SCALE", "input_multiplier", "softmax16_codes", "softmax16_tables"]

RESULT_SCALE = 1.0 / 32768
"""The result's scale; its zero point is 0."""

_LOW, _HIGH = -32768, 32767
_STEPS = 512
_EXP_REACH = 10.0
"""Differences beyond this give the smallest power in the table."""

Ints = NDArray[np.int64]


@cache
def softmax16_tables() -> tuple[Ints, Ints]:
    """Return the tables of exp and of the reciprocal; read-only."""
    context = Context(prec=28)
    powers = _table(-_EXP_REACH, 0.0, lambda x: float(context.exp(Decimal(x))))
    shares = _table(0.0, 1.0, lambda x: 1.0 / (1.0 + x))
    return powers, shares


def _table(first: float, last: float, function: Callable[[float], float]) -> Ints:
    """Return LiteRT's LUTPopulate: Q0.15 entries less half the error in the middle of each step."""
    span = _HIGH - _LOW
    scale = (last - first) / span
    zero_point = _HIGH if last == 0.0 else _LOW
    start, end = scale * (_LOW - zero_point), scale * (_HIGH - zero_point)
    step = (end - start) / _STEPS
    inverse = (span + 1) / (2.0 / span * _HIGH - 2.0 / span * _LOW)
    entries = []
    for i in range(_STEPS):
        x = start + i * step
        value = round_half_away(function(x) * inverse)
        line = round_half_away((function(start + (i + 1) * step) * inverse + value) / 2)
        middle = round_half_away(function(x + step / 2) * inverse)
        entries.append(value - round_half_away((line - middle) / 2))
    entries.append(round_half_away(function(end) * inverse))
    table = np.clip(np.array(entries, np.int64), _LOW, _HIGH)
    table.flags.writeable = False
    return table


def input_multiplier(scale: float) -> tuple[int, int]:
    """Return multiplier and shift that take code differences to steps of 10 / 65535."""
    return fixedpoint.quantize_multiplier(scale / (_EXP_REACH / (_HIGH - _LOW)))


def softmax16_codes(x: Array, scale: float, axis: int, rounding: Rounding) -> Array:
    """Return int16 codes of the softmax along *axis* of int16 codes *x*."""
    powers, shares = softmax16_tables()
    codes = x.astype(np.int64)
    below = codes - codes.max(axis=axis, keepdims=True, initial=_LOW)
    mode = Rounding.DOUBLE if rounding is Rounding.EVEN else rounding
    scaled = fixedpoint.requantise(below, *input_multiplier(scale), mode)
    parts = _looked_up(powers, np.clip(scaled + _HIGH, _LOW, _HIGH))
    total = parts.sum(axis=axis, keepdims=True)
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)
    # The sum becomes 1.16 bits: x = sum - 1 runs over the codes, from -32768 on.
    normal = (_shifted(total, 31 - bits) + (1 << 13)) >> 14
    share = _looked_up(shares, np.clip(normal - (1 << 16) + _LOW, _LOW, _HIGH))
    right = bits - 1
    y = (parts * share + (np.int64(1) << (right - 1))) >> right
    return np.asarray(np.clip(y, 0, _HIGH), np.int16)


def _shifted(values: Ints, left: Ints) -> Ints:
    return np.asarray(np.left_shift(values, left))


def _looked_up(table: Ints, codes: Ints) -> Ints:
    place, rest = (codes - _LOW) // 128, codes % 128
    base = table[place]
    return np.asarray(base + ((table[place + 1] - base) * rest + 64) // 128)
