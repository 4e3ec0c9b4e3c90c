"""Functions of one code: 256-entry tables for i8, 513 interpolated entries for i16, or each code.

The compiler computes tables and the blob holds them, so that no device needs a libm. Invariant:
what is no number becomes 0, infinities the end of the range.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import round_half_away
from npuc.expression import Expression, numbers
from npuc.ir.core import Array
from npuc.ir.types import Quant

__all__ = [
    "Function",
    "all_codes",
    "code_limits",
    "coded",
    "looked_up",
    "nodes",
    "rounded",
    "sigmoid_nodes",
]

Function = Callable[[Array], Array]
"""From float32 numbers to float32 numbers."""

_NODES = 512
_LIMITS = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}
_BEYOND = 2.0**40


def code_limits(dtype: DType) -> tuple[int, int]:
    """Return the smallest and the largest code."""
    return _LIMITS[dtype]


@cache
def all_codes() -> Array:
    """Return every i8 code as int64, in the order of its byte; read-only."""
    codes = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
    codes.flags.writeable = False
    return codes


def coded(
    steps: Expression, centred: list[Array], zero_point: int, dtype: DType, mode: Rounding
) -> Array:
    """Return the codes of *steps* at codes less their zero points, before *zero_point* is added."""
    x, *rest = (c.astype(np.float32) for c in centred)
    value = numbers(steps, x, rest[0] if rest else None)
    return rounded(value, zero_point, dtype, mode)


def rounded(value: Array, zero_point: int, dtype: DType, mode: Rounding) -> Array:
    """Return the codes of float32 *value* in output steps: halves away from zero, EVEN to even."""
    known = np.where(np.isnan(value), 0.0, value.astype(np.float64))
    held = np.clip(known, -_BEYOND, _BEYOND)
    whole = np.rint(held) if mode is Rounding.EVEN else round_half_away(held)
    low, high = _LIMITS[dtype]
    return np.asarray(np.clip(whole + zero_point, low, high), dtype.numpy)


def nodes(function: Function, source: Quant, target: Quant) -> Array:
    """Return the 513 int16 entries for i16 codes (LiteRT's LUTPopulate, in every rounding mode).

    Each is the function's value at code -32768 + 128 i less half the error that a straight line
    to the next one makes in the middle.
    """
    low, high = _LIMITS[DType.I16]
    scale, out = np.float32(source.scale), np.float32(target.scale)
    with np.errstate(all="ignore"):
        first, last = scale * np.float32(low), scale * np.float32(high)
        step = (last - first) / np.float32(_NODES)
        inverse = np.float32(high - low + 1) / (out * np.float32(high) - out * np.float32(low))
        starts = first + np.arange(_NODES, dtype=np.float32) * step
        following = first + np.arange(1, _NODES + 1, dtype=np.float32) * step
        value, middle, after, end = (
            _held(function(x), target)
            for x in (starts, starts + step / np.float32(2), following, np.array([last]))
        )
        sample = round_half_away(value * inverse)
        straight = round_half_away((after * inverse + sample) / np.float32(2))
        bias = round_half_away((straight - round_half_away(middle * inverse)) / np.float32(2))
        table = np.concatenate([sample - bias, round_half_away(end * inverse)])
    return np.asarray(np.clip(table, low, high), np.int16)


def _held(values: Array, target: Quant) -> Array:
    """Return *values* with 0 for no number and the ends of the i16 range for infinities."""
    low, high = (np.float32(limit) * np.float32(target.scale) for limit in _LIMITS[DType.I16])
    known = np.where(np.isnan(values), np.float32(0), values)
    return np.where(np.isposinf(known), high, np.where(np.isneginf(known), low, known))


def sigmoid_nodes() -> Array:
    """Return LiteRT's 256 uint16 multiples of 2^-16 for sigmoid(i / 24).

    Each is moved by half the error that a straight line to the next one makes in the middle; the
    last one is the largest. No value lies near a tie, so that float64 gives the same everywhere.
    """
    ends, middles = (65536 / (1 + np.exp(-(np.arange(257) + part) / 24)) for part in (0.0, 0.5))
    error = middles[:-1] - (ends[:-1] + ends[1:]) / 2
    table = np.rint(ends[:-1] + error / 2)
    table[-1] = 65535
    return table.astype(np.uint16)


def looked_up(table: Array, codes: Array) -> Array:
    """Return the entries of *table* at i8 or i16 *codes*; between those of i16 a straight line."""
    if codes.dtype == np.int8:
        return np.asarray(table[codes.view(np.uint8)])
    place = (codes.astype(np.int64) + 32768) // 128
    rest = codes.astype(np.int64) % 128
    base = table[place].astype(np.int64)
    slope = table[place + 1].astype(np.int64) - base
    return np.asarray(base + (slope * rest + 64) // 128, np.int16)
