"""Numerics of reductions that references and lowering share: exact sums, the scale of a mean.

LiteRT's MEAN and SUM (QuantizedMeanOrSum in reference/reduce.h): the scale input / output, in
float64, becomes a Q31 multiplier; a mean divides that multiplier by the count, in integers. EVEN
has no quantised peer: float32(sum of q - zp) * (x / (y * count)), each step in float32, then
halves to even; ONNX Runtime adds in float32, where the order of the terms shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuabi import fixedpoint
from npuabi.enums import DType, Rounding
from npuc.ir.core import Array
from npuc.ir.types import Quant

__all__ = ["Reduction", "reduced_codes", "reduced_factor", "sums_are_wide"]

_MOST_SHIFT = 32
_LIMITS = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A sum or a mean of ``count`` codes, from and to these parameters."""

    count: int
    mean: bool
    source: Quant
    target: Quant


def reduced_factor(reduction: Reduction, rounding: Rounding) -> tuple[int, int]:
    """Return the multiplier and shift that turn the sum of q - zp into output codes."""
    x, y = np.float32(reduction.source.scale), np.float32(reduction.target.scale)
    if rounding is Rounding.EVEN:
        divisor = y * np.float32(reduction.count) if reduction.mean else y
        return fixedpoint.multiplier_of(float(x / divisor), rounding)
    multiplier, shift = fixedpoint.quantize_multiplier(float(x) / float(y))
    if not reduction.mean:
        return multiplier, shift
    bits = min(reduction.count.bit_length() - 1, _MOST_SHIFT, 31 + shift)
    return (multiplier << bits) // reduction.count, shift - bits


def sums_are_wide(reduction: Reduction, dtype: DType) -> bool:
    """Return whether the sum of q - zp may leave int32."""
    low, high = _LIMITS[dtype]
    zero = reduction.source.zero_point
    return reduction.count * max(high - zero, zero - low) > np.iinfo(np.int32).max


def reduced_codes(
    x: Array, axes: Sequence[int], reduction: Reduction, rounding: Rounding, dtype: DType
) -> Array:
    """Return the codes of the sums or means of codes *x* over *axes*, which stay as 1."""
    centred = x.astype(np.int64) - reduction.source.zero_point
    sums = centred.sum(axis=tuple(axes), keepdims=True)
    wide = sums_are_wide(reduction, dtype)
    factor = reduced_factor(reduction, rounding)
    scaled = fixedpoint.apply(sums, *factor, rounding, wide=wide)
    result: Array = np.clip(scaled + reduction.target.zero_point, *_LIMITS[dtype])
    return result.astype(dtype.numpy)
