"""Rounding rules of the ABI: from an accumulator and a real scale to a quantised value.

Compiler reference and firmware kernels share this file and nothing else of arithmetic. Every
function is exact: int64 in, int64 out, no libm, the same bits on every machine.

Sources: design.md section 4; gemmlowp's ``fixedpoint.h`` (the names here are its names); the
LiteRT 8-bit quantisation specification.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Rounding
from npuabi.errors import AbiError, ErrorCode

__all__ = [
    "ADD_LEFT_SHIFT",
    "ADD_LEFT_SHIFT_16",
    "INT32_MAX",
    "INT32_MIN",
    "MAX_SHIFT",
    "MIN_SHIFT",
    "MOST_TERMS",
    "AddParameters",
    "SoftmaxParameters",
    "add_parameters",
    "apply",
    "exp_on_negative_values",
    "float_bits",
    "fused_multiply_add",
    "get_reciprocal",
    "log_of_q12",
    "log_real",
    "log_softmax_parameters",
    "multiplier_of",
    "one_over_one_plus_x",
    "quantize_multiplier",
    "real_of",
    "real_words",
    "requantise",
    "requantise_even",
    "requantise_narrow",
    "requantise_real",
    "rescale_to_q12",
    "round_half_away",
    "rounding_divide_by_pot",
    "saturating_left_shift",
    "scale_of",
    "softmax_parameters",
    "srdhm",
]

Ints = NDArray[np.int64]

INT32_MAX = (1 << 31) - 1
INT32_MIN = -(1 << 31)
MIN_SHIFT, MAX_SHIFT = -31, 30
"""Shifts that a Q31 multiplier may come with; positive shifts left."""
ADD_LEFT_SHIFT = 20
"""Headroom in bits of an int8 ADD's operands (LiteRT)."""
ADD_LEFT_SHIFT_16 = 15
"""The same of an int16 ADD."""
MOST_TERMS = 4095
"""Terms of a softmax on codes, each at most 1, whose Q12.19 sum int32 holds (gemmlowp)."""

_EVEN_MAX = 2.0**31 - 128
_NARROW_LIMIT, _NARROW_MAX = 0x7FFF0000, 0x7FFF
_SUM_MAX = 1 << 47
_LOW_31 = INT32_MAX
_SOFTMAX_INTEGER_BITS = 5
_ACCUMULATION_INTEGER_BITS = 12


# --- scales -----------------------------------------------------------------------------------


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return (Q31 multiplier, shift) with real = multiplier * 2^(shift - 31).

    frexp, round to 31 bits half away from zero, halve when that gives 2^31. A shift below -31
    makes both zero; one above 30 saturates. Raises ValueError for negative or non-finite scales.
    """
    if not (math.isfinite(real) and real >= 0):
        raise ValueError(f"a scale is finite and not negative, got {real}")
    fraction, shift = math.frexp(real)
    q31 = math.floor(fraction * (1 << 31) + 0.5)
    if q31 == 1 << 31:
        q31, shift = q31 >> 1, shift + 1
    if q31 == 0 or shift < MIN_SHIFT:
        return 0, 0
    return (q31, shift) if shift <= MAX_SHIFT else (INT32_MAX, MAX_SHIFT)


def multiplier_of(real: float, rounding: Rounding) -> tuple[int, int]:
    """Return the two ints that a parameters tensor holds for the scale *real*.

    DOUBLE and SINGLE: Q31 multiplier and shift. EVEN: the bits of float32(real), and 0; the
    caller computes *real* in float32 there, (x * w) / y.
    """
    if rounding is not Rounding.EVEN:
        return quantize_multiplier(real)
    if not (math.isfinite(real) and real >= 0):
        raise ValueError(f"a scale is finite and not negative, got {real}")
    return float_bits(real), 0


def float_bits(real: float) -> int:
    """Return the bits of float32(real) as a signed 32-bit int."""
    return int(np.float32(real).view(np.int32))


def scale_of(multiplier: Any) -> NDArray[np.float32]:
    """Return the float32 scales whose bits are *multiplier* (rounding EVEN)."""
    return np.asarray(multiplier, np.int64).astype(np.int32).view(np.float32)


def real_words(real: float) -> tuple[int, int]:
    """Return the low and the high word of float64 *real*, as signed 32-bit ints."""
    low, high = np.array([real], "<f8").view("<i4").tolist()
    return low, high


def real_of(low: Any, high: Any) -> NDArray[np.float64]:
    """Return the float64 numbers of such words."""
    words = np.stack(np.broadcast_arrays(low, high), axis=-1).astype("<i4")
    return np.ascontiguousarray(words).view("<f8")[..., 0].astype(np.float64)


# --- requantisation ---------------------------------------------------------------------------


def apply(acc: Any, multiplier: Any, shift: Any, rounding: Rounding, *, wide: bool = False) -> Ints:
    """Return *acc* rescaled, without zero point or clamp.

    *multiplier* and *shift* are what :func:`multiplier_of` gives, scalars or arrays that
    broadcast. *acc* lies in int32; *wide* takes 64-bit sums (below 2^47) by the same rule in wider
    integers: DOUBLE then does not saturate to int32. Raises AbiError (BAD_MULTIPLIER) when shift
    or scale is out of range.
    """
    if rounding is Rounding.EVEN:
        return requantise_even(acc, scale_of(multiplier))
    return requantise(acc, multiplier, shift, rounding, wide=wide)


def requantise(
    acc: Any, multiplier: Any, shift: Any, rounding: Rounding, *, wide: bool = False
) -> Ints:
    """Return *acc* * *multiplier* * 2^(*shift* - 31), rounded once (SINGLE) or twice (DOUBLE)."""
    x, m = np.asarray(acc, np.int64), np.asarray(multiplier, np.int64)
    s = np.asarray(shift, np.int64)
    if s.size and (s.min() < MIN_SHIFT or s.max() > MAX_SHIFT):
        detail = f"shifts are from {MIN_SHIFT} to {MAX_SHIFT}, got {s.min()} to {s.max()}"
        raise AbiError(ErrorCode.BAD_MULTIPLIER, detail)
    right = np.maximum(-s, 0)
    if rounding is Rounding.SINGLE:
        plain = not wide and s.size and s.max() <= 0
        return _single_int32(x, m, right) if plain else _single(_shifted_left(x, s), m, right)
    if wide:
        return rounding_divide_by_pot(_wide_high_mul(_shifted_left(x, s), m), right)
    x = saturating_left_shift(x, np.maximum(s, 0))
    if m.size and m.min() >= 0:
        return _double_closed(x, m, right)
    return rounding_divide_by_pot(srdhm(x, m), right)


def requantise_narrow(acc: Any, multiplier: Any, shift: Any, rounding: Rounding) -> Ints:
    """Return 64-bit sums of int16 activations rescaled, without zero point or clamp.

    DOUBLE and SINGLE are LiteRT's MultiplyByQuantizedMultiplier(int64): the Q31 multiplier reduced
    to 16 bits, one rounding, halves up. EVEN is :func:`requantise_even`. *acc* lies below 2^47; a
    shift above 14, which LiteRT does not take, shifts it left first and saturates it there. Raises
    AbiError (BAD_MULTIPLIER) when shift or scale is out of range.
    """
    if rounding is Rounding.EVEN:
        return requantise_even(acc, scale_of(multiplier))
    x, m = np.asarray(acc, np.int64), np.asarray(multiplier, np.int64)
    s = np.asarray(shift, np.int64)
    if s.size and (s.min() < MIN_SHIFT or s.max() > MAX_SHIFT):
        detail = f"shifts are from {MIN_SHIFT} to {MAX_SHIFT}, got {s.min()} to {s.max()}"
        raise AbiError(ErrorCode.BAD_MULTIPLIER, detail)
    reduced = np.where(m < _NARROW_LIMIT, (m + (1 << 15)) >> 16, _NARROW_MAX)
    left, right = np.maximum(s - 14, 0), np.maximum(15 - s, 1)
    most = np.right_shift(np.int64(_SUM_MAX), left)
    total = np.asarray(np.clip(x, -most, most) << left) * reduced
    return np.asarray((total + np.left_shift(np.int64(1), right - 1)) >> right)


def requantise_even(acc: Any, scale: Any) -> Ints:
    """Return rint(float32(acc) * float32(scale)), held within the int32 range.

    Raises AbiError (BAD_MULTIPLIER) for a scale that is negative or not finite.
    """
    factor = np.asarray(scale, np.float32)
    if not (np.isfinite(factor) & (factor >= 0)).all():
        raise AbiError(ErrorCode.BAD_MULTIPLIER, "a float32 scale is negative or not finite")
    with np.errstate(over="ignore"):
        real = np.asarray(acc, np.int64).astype(np.float32) * factor
    held = np.clip(np.rint(real), np.float32(INT32_MIN), np.float32(_EVEN_MAX))
    return np.asarray(held, np.int64)


def requantise_real(acc: Any, scale: Any) -> Ints:
    """Return float64(acc) * *scale* rounded half away from zero, held within the int32 range.

    LiteRT's reference FULLY_CONNECTED. *acc* lies below 2^53, *scale* is float64. Raises AbiError
    (BAD_MULTIPLIER) for a scale that is negative or not finite.
    """
    factor = np.asarray(scale, np.float64)
    if not (np.isfinite(factor) & (factor >= 0)).all():
        raise AbiError(ErrorCode.BAD_MULTIPLIER, "a float64 scale is negative or not finite")
    with np.errstate(over="ignore"):
        real = np.asarray(np.asarray(acc, np.int64).astype(np.float64) * factor)
    held = np.clip(real, float(INT32_MIN), float(INT32_MAX))
    return np.asarray(round_half_away(held), np.int64)


def fused_multiply_add(a: Any, b: Any, c: Any) -> NDArray[np.float32]:
    """Return float32 a * b + c, rounded once. *a* is a whole number below 2^29, b and c float32.

    The product is exact in float64; where the sum is not, its last bit is made odd on the side of
    the truth, so that the rounding to float32 sees no false tie (Boldo and Melquiond, 2008).
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    added = np.asarray(c, np.float64)
    total = np.asarray(product + added)
    back = total - product
    error = (product - (total - back)) + (added - back)
    if error.any():
        even = total.view(np.int64) & 1 == 0
        inexact = np.isfinite(error) & (error != 0) & even
        nearer = np.nextafter(total, np.copysign(np.inf, error))
        total = np.where(inexact, nearer, total)
    with np.errstate(over="ignore"):
        return np.asarray(total, np.float32)


def saturating_left_shift(x: Any, shift: Any) -> Ints:
    """Return x * 2^shift, saturated to int32; *x* in int32, *shift* from 0 to 31."""
    shifted = np.left_shift(np.asarray(x, np.int64), shift)
    return np.asarray(np.clip(shifted, INT32_MIN, INT32_MAX))


def srdhm(a: Any, b: Any) -> Ints:
    """Return gemmlowp's SaturatingRoundingDoublingHighMul of int32 values, ties up.

    Its nudge of 2^30 (or 1 - 2^30 and truncation for a negative product) is floor(ab / 2^31 + 1/2).
    """
    high = np.asarray(np.multiply(a, b, dtype=np.int64))
    high += 1 << 30
    high >>= 31
    np.minimum(high, INT32_MAX, out=high)
    return high


def rounding_divide_by_pot(x: Any, exponent: Any) -> Ints:
    """Return x / 2^exponent, half away from zero; *exponent* from 0 to 62."""
    value, e = np.asarray(x, np.int64), np.asarray(exponent, np.int64)
    half = np.left_shift(np.int64(1), e) >> 1
    borrow = np.asarray((value >> 63) & -(e > 0).astype(np.int64))
    borrow = np.asarray(borrow + value)
    borrow += half
    borrow >>= e
    return borrow


def _shifted_left(x: Ints, shift: Ints) -> Ints:
    return np.asarray(x << np.maximum(shift, 0)) if shift.size and shift.max() > 0 else x


def _wide_high_mul(x: Ints, m: Ints) -> Ints:
    # x * m has up to 93 bits: x = high * 2^31 + low keeps each product below 2^63.
    return np.asarray((x >> 31) * m + (((x & _LOW_31) * m + (1 << 30)) >> 31))


def _double_closed(x: Ints, m: Ints, right: Ints) -> Ints:
    # Both roundings in one shift, for m >= 0 and int32 x: 2^30 enters at the first, half of
    # 2^right at the second, less one for a negative x. That one also meets a negative x whose
    # high product is 0, where it changes nothing. Below 2^62 + 2^61 + 2^30: no overflow.
    half = np.left_shift(np.int64(1), right) >> 1
    total = np.asarray((x >> 63) & -((right > 0).astype(np.int64) << 31))
    total = np.asarray(total + x * m)
    total += (half << 31) + (1 << 30)
    total >>= right + 31
    return total


def _single_int32(x: Ints, m: Ints, right: Ints) -> Ints:
    total = np.asarray(x * m)
    total = np.asarray(total + np.left_shift(np.int64(1), right + 30))
    total >>= right + 31
    return total


def _single(x: Ints, m: Ints, right: Ints) -> Ints:
    # (x * m + 2^(30 + right)) >> (31 + right): the half enters at bit 30 when right is 0, else
    # after floor(x * m / 2^31), which nests exactly in the outer floor.
    low = (x & _LOW_31) * m + ((right == 0).astype(np.int64) << 30)
    floor = (x >> 31) * m + (low >> 31)
    return np.asarray((floor + (np.left_shift(np.int64(1), right) >> 1)) >> right)


@overload
def round_half_away(x: float) -> int: ...
@overload
def round_half_away(x: NDArray[Any]) -> NDArray[Any]: ...
def round_half_away(x: float | NDArray[Any]) -> int | NDArray[Any]:
    """Return *x* rounded half away from zero: an int for a number, same dtype for an array.

    A number must be finite. C's ``round``, without its libm.
    """
    whole = np.trunc(x)
    rounded = whole + np.copysign(np.abs(x - whole) >= 0.5, x).astype(np.asarray(x).dtype)
    return rounded if isinstance(x, np.ndarray) else int(rounded)


# --- parameters of ADD and softmax ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AddParameters:
    """The multipliers of an ADD, named as in the OpParams record."""

    left_shift: int
    input_multiplier: int
    input_shift: int
    residual_multiplier: int
    residual_shift: int
    output_multiplier: int
    output_shift: int


def add_parameters(
    sa: float, sb: float, so: float, rounding: Rounding, *, headroom: int = ADD_LEFT_SHIFT
) -> AddParameters:
    """Return the multipliers of an ADD of scales *sa* + *sb* -> *so*.

    DOUBLE, SINGLE: LiteRT's: both inputs over twice the larger scale, the sum back to *so*, with
    *headroom* bits below: 20 for int8, 15 for int16. EVEN: float32 sa / so and sb / so, no
    headroom, output factor 1.
    """
    if rounding is Rounding.EVEN:
        a, b = (multiplier_of(float(np.float32(s) / np.float32(so)), rounding) for s in (sa, sb))
        left, output = 0, multiplier_of(1.0, rounding)
    else:
        twice = 2.0 * max(sa, sb)
        a, b = quantize_multiplier(sa / twice), quantize_multiplier(sb / twice)
        left, output = headroom, quantize_multiplier(twice / ((1 << headroom) * so))
    return AddParameters(
        left_shift=left,
        input_multiplier=a[0],
        input_shift=a[1],
        residual_multiplier=b[0],
        residual_shift=b[1],
        output_multiplier=output[0],
        output_shift=output[1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxParameters:
    """How softmax scales differences from the maximum to Q5.26; named as in OpParams."""

    input_multiplier: int
    input_shift: int
    diff_min: int


def softmax_parameters(scale: float, rounding: Rounding) -> SoftmaxParameters:
    """Return LiteRT's softmax parameters for an input of *scale*, beta 1.

    Differences below ``diff_min`` give zero. EVEN has a float rule and uses none of them. Raises
    ValueError when the scale is too small for Q5.26 (2^-26 or less).
    """
    if rounding is Rounding.EVEN:
        return SoftmaxParameters(input_multiplier=0, input_shift=0, diff_min=-255)
    fraction_bits = 31 - _SOFTMAX_INTEGER_BITS
    top = (1 << (31 if rounding is Rounding.DOUBLE else 30)) - 1.0
    real = min(scale * (1 << fraction_bits), top)
    if not real > 1:
        raise ValueError(f"the scale of a softmax input is above 2^-{fraction_bits}, got {scale}")
    multiplier, shift = quantize_multiplier(real)
    radius = ((1 << _SOFTMAX_INTEGER_BITS) - 1) * (1 << fraction_bits) >> shift
    return SoftmaxParameters(input_multiplier=multiplier, input_shift=shift, diff_min=-radius)


# --- gemmlowp's exponential and reciprocal ----------------------------------------------------

_EXP_MINUS_ONE_EIGHTH, _ONE_THIRD = 1895147668, 715827883
_EXP_STEPS = (
    (24, 1672461947),
    (25, 1302514674),
    (26, 790015084),
    (27, 290630308),
    (28, 39332535),
    (29, 720401),
    (30, 242),
)
"""(bit of a Q5.26 magnitude, Q0.31 of exp(-2^(bit - 26)))."""
_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540


def exp_on_negative_values(a: Any) -> Ints:
    """Return exp(a) in Q0.31 for *a* in Q5.26, from -32 to 0 (gemmlowp, same bits)."""
    raw = np.asarray(a, np.int64)
    quarter = 1 << 24
    part = (raw & (quarter - 1)) - quarter
    result = _exp_on_last_quarter(saturating_left_shift(part, _SOFTMAX_INTEGER_BITS))
    remainder = part - raw
    for bit, factor in _EXP_STEPS:
        result = np.where(remainder & (1 << bit), srdhm(result, factor), result)
    return np.where(raw == 0, INT32_MAX, result)


def _exp_on_last_quarter(a: Ints) -> Ints:
    # Taylor series around -1/8 for a in [-1/4, 0), Q0.31.
    x = a + (1 << 28)
    x2 = srdhm(x, x)
    x3 = srdhm(x2, x)
    x4_over_4 = rounding_divide_by_pot(srdhm(x2, x2), 2)
    series = rounding_divide_by_pot(srdhm(x4_over_4 + x3, _ONE_THIRD) + x2, 1)
    return _EXP_MINUS_ONE_EIGHTH + srdhm(_EXP_MINUS_ONE_EIGHTH, x + series)


def rescale_to_q12(x: Any) -> Ints:
    """Return a Q0.31 value in Q12.19, the format in which softmax sums."""
    return rounding_divide_by_pot(x, _ACCUMULATION_INTEGER_BITS)


def one_over_one_plus_x(a: Any) -> Ints:
    """Return 1 / (1 + a) in Q0.31 for *a* in Q0.31, from 0 to 1 (gemmlowp, same bits)."""
    # Half of (a + 1), rounded half away from zero; then three Newton-Raphson steps in Q2.29.
    half = (np.asarray(a, np.int64) + INT32_MAX + 1) >> 1
    x = _48_OVER_17 + srdhm(half, _MINUS_32_OVER_17)
    for _ in range(3):
        rest = (1 << 29) - srdhm(half, x)
        x = x + saturating_left_shift(srdhm(x, rest), 2)
    return saturating_left_shift(x, 1)


def get_reciprocal(x: Any, integer_bits: int = _ACCUMULATION_INTEGER_BITS) -> tuple[Ints, Ints]:
    """Return (Q0.31 reciprocal, bits over unit) of *x* > 0 with *integer_bits* integer bits.

    1 / x = reciprocal * 2^-bits (LiteRT's GetReciprocal, same bits).
    """
    raw = np.asarray(x, np.int64)
    headroom = 32 - np.frexp(raw.astype(np.float64))[1].astype(np.int64)
    return one_over_one_plus_x((raw << headroom) - (1 << 31)), integer_bits - headroom


# --- log softmax ------------------------------------------------------------------------------

_LOG_2, _SQRT_HALF, _SQRT_SQRT_HALF = 1488522236, 1518500250, 1805811301
_ALPHA_N, _ALPHA_D, _ALPHA_I, _ALPHA_F = 117049297, 127690142, 1057819769, 638450708
_ONE_QUARTER = 1 << 29
_LOG_INTEGER_BITS = _SOFTMAX_INTEGER_BITS + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSoftmaxParameters:
    """Those of softmax, and how a Q5.26 number is turned back into a difference of codes."""

    input_multiplier: int
    input_shift: int
    diff_min: int
    output_multiplier: int
    output_shift: int


def log_softmax_parameters(scale: float, rounding: Rounding) -> LogSoftmaxParameters:
    """Return LiteRT's LOG_SOFTMAX parameters for an input of *scale*.

    EVEN has a float rule and uses none of them. Raises ValueError as softmax_parameters does.
    """
    found = softmax_parameters(scale, rounding)
    back = (0, 0)
    if rounding is not Rounding.EVEN:
        back = quantize_multiplier((1 << (31 - found.input_shift)) / found.input_multiplier)
    return LogSoftmaxParameters(
        input_multiplier=found.input_multiplier,
        input_shift=found.input_shift,
        diff_min=found.diff_min,
        output_multiplier=back[0],
        output_shift=back[1],
    )


def log_of_q12(x: Any) -> Ints:
    """Return the logarithm in Q5.26 of *x* >= 1 in Q12.19.

    LiteRT's log_x_for_x_greater_than_or_equal_to_1, same bits: x = 2^z * r with r near
    sqrt(sqrt(1/2)), and a rational function of r.
    """
    raw = np.asarray(x, np.int64)
    bits = 31 - _LOG_INTEGER_BITS
    quarter = rounding_divide_by_pot(_ONE_QUARTER, _LOG_INTEGER_BITS)
    head_a = _leading_zeros(raw)
    r_a = saturating_left_shift(srdhm(saturating_left_shift(raw, head_a - 1), _SQRT_HALF), 1)
    z_a = _times_pot(_ACCUMULATION_INTEGER_BITS - head_a, bits) + quarter
    head_b = _leading_zeros(srdhm(raw, _SQRT_HALF)) - 1
    r_b = saturating_left_shift(raw, head_b)
    z_b = _times_pot(_ACCUMULATION_INTEGER_BITS - head_b, bits) - quarter
    r, z = np.minimum(r_a, r_b), np.maximum(z_a, z_b)
    p = rounding_divide_by_pot(r + _SQRT_SQRT_HALF, 1)
    q = 2 * (r - _SQRT_SQRT_HALF)
    square = srdhm(q, q)
    num = srdhm(q, r) + srdhm(srdhm(q, square), _ALPHA_N)
    den = srdhm(p, _ALPHA_I + q + srdhm(_ALPHA_D, square)) + srdhm(_ALPHA_F, q)
    ratio = srdhm(rounding_divide_by_pot(num, _LOG_INTEGER_BITS), one_over_one_plus_x(den))
    return saturating_left_shift(srdhm(z, _LOG_2) + ratio, 1)


def _leading_zeros(x: Ints) -> Ints:
    return 32 - np.frexp(x.astype(np.float64))[1].astype(np.int64)


def _times_pot(x: Ints, exponent: int) -> Ints:
    return np.asarray(np.clip(x << exponent, INT32_MIN, INT32_MAX))


_LN_2_HIGH, _LN_2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_SERIES = tuple(range(23, 1, -2))


def log_real(x: Any) -> NDArray[np.float64]:
    """Return the natural logarithm of float64 *x* > 0, the same on every machine.

    x = m * 2^e, m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1): e * ln 2 + 2 * (s + s^3 / 3 +
    s^5 / 5 + ...) up to s^23, from the smallest term; within two units of the last place.
    """
    m, e = np.frexp(np.asarray(x, np.float64))
    small = m < 0.7071067811865476
    m, e = np.where(small, 2 * m, m), (e - small).astype(np.float64)
    s = (m - 1) / (m + 1)
    square = s * s
    series = np.zeros_like(s)
    for power in _SERIES:
        series = (series + 1.0 / power) * square
    return np.asarray(e * _LN_2_HIGH + (e * _LN_2_LOW + (s + s * series) * 2))
