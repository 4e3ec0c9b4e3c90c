"""Quantisation parameters from ranges and weights, and the codes that they give.

Every scale is a float32 number held as a Python float, so that the text, the compiler and the
device see the same value. real = (q - zero_point) * scale.
"""

from __future__ import annotations

import math

import numpy as np

from npuabi.enums import DType
from npuc.ir.core import Array
from npuc.ir.types import Quant
from npuc.reference import round_half_away

__all__ = [
    "CODE_HIGH",
    "CODE_LOW",
    "SMALLEST_SCALE",
    "WEIGHT_HIGH",
    "WIDE_HIGH",
    "activation_quant",
    "bias_codes",
    "bias_limit",
    "channel_quant",
    "least_scale",
    "weight_codes",
    "wide_quant",
]

CODE_LOW, CODE_HIGH = -128, 127
WEIGHT_HIGH = 127
WIDE_HIGH = 32767
SMALLEST_SCALE = 2.0**-100
"""Ranges whose scale would be below this count as zero: their multipliers would vanish."""

_BIAS_LIMITS = {DType.I8: 2**30, DType.I16: 2**46}
"""Largest |bias| that is made: half of what sums may be, the other half is for the products."""


def bias_limit(dtype: DType) -> int:
    """Return the largest |bias| of a layer whose input is *dtype*."""
    return _BIAS_LIMITS[dtype]


def activation_quant(low: float, high: float) -> Quant:
    """Return int8 parameters per tensor for values in [low, high].

    The range is widened to hold 0, which becomes a code exactly. A range too small for a scale
    (a tensor that is always zero) gets scale 1.
    """
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    scale = float(np.float32((high - low) / (CODE_HIGH - CODE_LOW)))
    if scale < SMALLEST_SCALE:
        return Quant.per_tensor(1.0, 0)
    point = int(round_half_away(CODE_LOW - low / scale))
    return Quant.per_tensor(scale, min(max(point, CODE_LOW), CODE_HIGH))


def wide_quant(quant: Quant) -> Quant:
    """Return the int16 parameters of what *quant* holds as int8: symmetric, as wide a range."""
    low, high = CODE_LOW - quant.zero_point, CODE_HIGH - quant.zero_point
    return Quant.per_tensor(float(np.float32(max(-low, high) * quant.scale / WIDE_HIGH)), 0)


def channel_quant(weights: Array) -> Quant:
    """Return symmetric int8 parameters for each index of axis 0: scale = max|w| / 127.

    A channel without weights gets scale 0: the caller must choose one, see ``least_scale``.
    """
    peaks = np.abs(weights.reshape(len(weights), -1)).max(axis=1, initial=0.0)
    scales = [float(np.float32(float(p) / WEIGHT_HIGH)) for p in peaks]
    kept = tuple(s if s >= SMALLEST_SCALE else 0.0 for s in scales)
    return Quant(kept, (0,) * len(kept), axis=0)


def least_scale(bias: float, input_scale: float, limit: int) -> float:
    """Return the smallest float32 weight scale whose bias stays within *limit* units."""
    exact = abs(bias) / (input_scale * limit)
    rounded = np.float32(exact)
    if float(rounded) < exact:
        rounded = np.nextafter(rounded, np.float32(math.inf))
    return float(rounded)


def weight_codes(weights: Array, quant: Quant) -> Array:
    """Return int8 codes of weights with symmetric parameters on axis 0.

    They lie in [-127, 127] under the scales of ``channel_quant``; frozen scales may give -128.
    """
    scales = np.asarray(quant.scales).reshape(-1, *[1] * (weights.ndim - 1))
    codes = round_half_away(np.asarray(weights, np.float64) / scales)
    result: Array = np.clip(codes, CODE_LOW, CODE_HIGH).astype(np.int8)
    return result


def bias_codes(bias: Array, input_scale: float, quant: Quant, dtype: DType) -> Array:
    """Return the bias: half away of b / (input_scale * weight_scale), in float64.

    It is int32 where the input is int8, and int64 where it is int16.
    """
    units = input_scale * np.asarray(quant.scales)
    whole = round_half_away(np.asarray(bias, np.float64) / units)
    return whole.astype(np.int32 if dtype is DType.I8 else np.int64)
