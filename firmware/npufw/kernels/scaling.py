"""Requantisation in float64: from exact sums to codes, at a few passes over the array.

With M = multiplier * 2^(shift - 31) and e = -shift, the rules of ``npuabi.fixedpoint`` are

    SINGLE  y = floor(acc * M + 1/2)
    DOUBLE  y = floor(acc * M + 1/2 + d), d = 2^-(e+1), negative where acc is (0 for e = 0)

and the zero point enters below the floor. Float64 gives the same y, or the same side of the clamp:
M and the constant are exact, and the true value is a multiple of g = 2^-(31+e). Where it lies
beyond +-257 both sides are clamped alike, for rounding keeps order. Else the product is off by at
most 2^-45, the sum by 2^-46, together below 2^-44 <= g for e <= 13: not enough to reach the next
integer from below, and a true integer less the constant is a float64, so it is met exactly.
A shift to the left, one of more than 13 or a negative multiplier takes the integer form.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Rounding
from npuabi.errors import AbiError, ErrorCode
from npuabi.fixedpoint import scale_of

__all__ = ["closed", "closed_form_holds", "scaled_even"]

_MAX_RIGHT_SHIFT = 13


def closed_form_holds(multiplier: NDArray[np.int64], shift: NDArray[np.int64]) -> bool:
    """Return whether :func:`closed` is exact for these channels."""
    in_range = shift.min() >= -_MAX_RIGHT_SHIFT and shift.max() <= 0
    return bool(in_range and multiplier.min() >= 0)


def closed(
    sums: NDArray[np.float64],
    multiplier: NDArray[np.int64],
    shift: NDArray[np.int64],
    rounding: Rounding,
    zero_point: int,
    *,
    low: int,
) -> NDArray[np.float64]:
    """Return *sums* scaled by DOUBLE or SINGLE, plus *zero_point*; not clamped, and overwritten.

    *sums* (..., O) are integers of int32. *low* is the end of the clamp: at the zero point or above
    it no negative sum shows, so its rounding needs no care.
    """
    factor = np.ldexp(multiplier.astype(np.float64), shift - 31)
    sums *= factor
    constant = zero_point + 0.5
    if rounding is Rounding.SINGLE:
        sums += constant
        return np.floor(sums, out=sums)
    nudge = np.where(shift < 0, np.ldexp(0.5, shift), 0.0)
    if low >= zero_point:
        sums += nudge + constant
        return np.floor(sums, out=sums)
    signed = np.copysign(nudge, sums)
    signed += constant
    sums += signed
    return np.floor(sums, out=sums)


def scaled_even(
    sums: NDArray[np.float64], multiplier: NDArray[np.int64], zero_point: int
) -> NDArray[np.float32]:
    """Return rint(float32(sum) * float32 scale) plus *zero_point*; not clamped.

    Raises AbiError (BAD_MULTIPLIER) for a scale that is negative or not finite.
    """
    scale = scale_of(multiplier)
    if not (np.isfinite(scale) & (scale >= 0)).all():
        raise AbiError(ErrorCode.BAD_MULTIPLIER, "a float32 scale is negative or not finite")
    with np.errstate(over="ignore"):
        real = sums.astype(np.float32)
        real *= scale
    np.rint(real, out=real)
    real += np.float32(zero_point)
    return real
