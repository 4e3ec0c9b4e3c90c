"""Rounding rules against literal scalar arithmetic in Python's unbounded ints."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.enums import Rounding
from npuabi.errors import AbiError, ErrorCode
from npuabi.fixedpoint import (
    INT32_MAX,
    INT32_MIN,
    add_parameters,
    apply,
    exp_on_negative_values,
    float_bits,
    fused_multiply_add,
    get_reciprocal,
    multiplier_of,
    one_over_one_plus_x,
    quantize_multiplier,
    real_of,
    real_words,
    requantise_narrow,
    requantise_real,
    rescale_to_q12,
    round_half_away,
    rounding_divide_by_pot,
    scale_of,
    softmax_parameters,
    srdhm,
)
from tests.exact import fma

DOUBLE, SINGLE, EVEN = Rounding.DOUBLE, Rounding.SINGLE, Rounding.EVEN
EDGES = (INT32_MIN, INT32_MIN + 1, -(1 << 30), -1, 0, 1, 1 << 30, INT32_MAX - 1, INT32_MAX)
int32 = st.one_of(st.integers(INT32_MIN, INT32_MAX), st.sampled_from(EDGES))
shifts = st.integers(-31, 30)


# --- the literal rules, one number at a time, as their sources write them ------------------------


def truncated(a: int, b: int) -> int:
    """C's division of a by b > 0."""
    return a // b if a >= 0 else -(-a // b)


def literal_srdhm(a: int, b: int) -> int:
    if a == b == INT32_MIN:
        return INT32_MAX
    nudge = 1 << 30 if a * b >= 0 else 1 - (1 << 30)
    return truncated(a * b + nudge, 1 << 31)


def literal_divide(x: int, exponent: int) -> int:
    mask = (1 << exponent) - 1
    remainder = x & mask
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if remainder > threshold else 0)


def literal_double(x: int, multiplier: int, shift: int) -> int:
    shifted = min(max(x << max(shift, 0), INT32_MIN), INT32_MAX)
    return literal_divide(literal_srdhm(shifted, multiplier), max(-shift, 0))


def literal_single(x: int, multiplier: int, shift: int) -> int:
    return (x * multiplier + (1 << (30 - shift))) >> (31 - shift)


# --- requantisation ------------------------------------------------------------------------------


def test_twenty_thousand_random_triples_equal_the_literal_forms() -> None:
    generator = np.random.default_rng(44)
    size = 20_000
    acc = generator.integers(INT32_MIN, INT32_MAX + 1, size) >> generator.integers(0, 31, size)
    multiplier = generator.integers(0, INT32_MAX + 1, size)
    # Ties of both roundings: an accumulator whose product is a half exactly.
    acc[::7] = (2 * generator.integers(-(1 << 12), 1 << 12, acc[::7].size) + 1) << 4
    multiplier[::7] = 1 << 30 - generator.integers(0, 8, acc[::7].size)
    shift = generator.integers(-31, 31, size)
    triples = list(zip(acc.tolist(), multiplier.tolist(), shift.tolist(), strict=True))
    assert apply(acc, multiplier, shift, DOUBLE).tolist() == [literal_double(*t) for t in triples]
    assert apply(acc, multiplier, shift, SINGLE).tolist() == [literal_single(*t) for t in triples]
    right = np.minimum(shift, 0)
    triples = list(zip(acc.tolist(), multiplier.tolist(), right.tolist(), strict=True))
    assert apply(acc, multiplier, right, SINGLE).tolist() == [literal_single(*t) for t in triples]


@settings(max_examples=300, deadline=None)
@given(int32, int32, shifts)
def test_double_and_single_equal_their_literal_forms(x: int, multiplier: int, shift: int) -> None:
    assert apply(x, multiplier, shift, DOUBLE) == literal_double(x, multiplier, shift)
    assert apply(x, multiplier, shift, SINGLE) == literal_single(x, multiplier, shift)


def test_all_corners_of_the_domain_equal_the_literal_forms() -> None:
    for multiplier in EDGES:
        for shift in range(-31, 31):
            double = [literal_double(x, multiplier, shift) for x in EDGES]
            single = [literal_single(x, multiplier, shift) for x in EDGES]
            assert apply(EDGES, multiplier, shift, DOUBLE).tolist() == double
            assert apply(EDGES, multiplier, shift, SINGLE).tolist() == single


@settings(max_examples=300, deadline=None)
@given(st.integers(-(1 << 46), 1 << 46), st.integers(0, INT32_MAX), st.integers(-31, 8))
def test_wide_sums_follow_the_same_rule_without_the_int32_bounds(
    x: int, multiplier: int, shift: int
) -> None:
    high = math.floor(Fraction((x << max(shift, 0)) * multiplier, 1 << 31) + Fraction(1, 2))
    double = literal_divide(high, max(-shift, 0))
    assert apply(x, multiplier, shift, DOUBLE, wide=True) == double
    assert apply(x, multiplier, shift, SINGLE, wide=True) == literal_single(x, multiplier, shift)


@settings(max_examples=300, deadline=None)
@given(int32, st.integers(0, INT32_MAX), shifts)
def test_wide_and_narrow_agree_where_nothing_saturates(x: int, multiplier: int, shift: int) -> None:
    if INT32_MIN <= x << max(shift, 0) <= INT32_MAX:
        wide = apply(x, multiplier, shift, DOUBLE, wide=True)
        assert wide == apply(x, multiplier, shift, DOUBLE)


def literal_narrow(x: int, multiplier: int, shift: int) -> int:
    """LiteRT's MultiplyByQuantizedMultiplier(int64, int32, int)."""
    reduced = (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    return (x * reduced + (1 << (14 - shift))) >> (15 - shift)


@given(st.integers(-(1 << 47), 1 << 47), st.integers(0, INT32_MAX), st.integers(-31, 14))
def test_sums_of_int16_take_a_multiplier_of_16_bits(x: int, multiplier: int, shift: int) -> None:
    for mode in (DOUBLE, SINGLE):
        assert requantise_narrow(x, multiplier, shift, mode) == literal_narrow(x, multiplier, shift)


def test_multipliers_near_one_and_shifts_beyond_litert_saturate() -> None:
    edge = 0x7FFF0000
    assert literal_narrow(1 << 20, edge - 1, 0) == (1 << 20) - 32
    for multiplier in (edge - (1 << 15) - 1, edge - 1, edge, INT32_MAX):
        assert requantise_narrow(1 << 20, multiplier, 0, DOUBLE) == literal_narrow(
            1 << 20, multiplier, 0
        )
    # 2^47 is the largest sum: a shift of 20 is one of 14 behind six to the left.
    assert requantise_narrow(1 << 46, 1 << 30, 20, DOUBLE) == literal_narrow(1 << 47, 1 << 30, 14)
    assert requantise_narrow(-3, 1 << 30, 20, DOUBLE) == literal_narrow(-3 << 6, 1 << 30, 14)
    assert requantise_narrow(3, float_bits(0.5), 0, EVEN) == 2
    with pytest.raises(AbiError, match="shifts are from"):
        requantise_narrow(1, 1, 31, DOUBLE)


def test_each_mode_gives_its_own_value_on_the_known_disagreements() -> None:
    assert apply(7984, 1583594044, -9, SINGLE) == 11
    assert apply(7984, 1583594044, -9, DOUBLE) == 12
    assert apply(1, 1 << 30, -1, SINGLE) == 0
    assert apply(1, 1 << 30, -1, DOUBLE) == 1


def test_the_worked_example_needs_all_three_modes() -> None:
    # 585 times a scale that is just above 6.5 in float64 and just 6.5 in float32.
    real = 6.5000005 / 585
    for rounding in (DOUBLE, SINGLE):
        assert apply(585, *multiplier_of(real, rounding), rounding) == 7
    half = np.float32(6.5) / np.float32(585)
    assert np.float32(585) * half == np.float32(6.5)
    assert apply(585, *multiplier_of(float(half), EVEN), EVEN) == 6


def test_double_and_single_differ_by_one_at_the_known_rate() -> None:
    acc = np.random.default_rng(8).integers(-(1 << 20), 1 << 20, 400_000)
    for shift, rate in ((-1, 0.25), (-8, 1 / 512)):
        multiplier = 1518500250
        gap = apply(acc, multiplier, shift, DOUBLE) - apply(acc, multiplier, shift, SINGLE)
        assert set(np.unique(gap)) <= {-1, 0, 1}
        assert abs(np.count_nonzero(gap) / acc.size - rate) < rate / 5


def test_even_rounds_the_float32_product_to_the_even_neighbour() -> None:
    acc = np.array([1, 3, 5, -1, -3, -5, 1 << 24, (1 << 24) + 1])
    got = apply(acc, float_bits(0.5), 0, EVEN)
    assert got.tolist() == [0, 2, 2, 0, -2, -2, 1 << 23, 1 << 23]


def test_even_holds_its_result_inside_int32() -> None:
    got = apply([INT32_MAX, INT32_MIN], float_bits(3e38), 0, EVEN)
    assert got.tolist() == [(1 << 31) - 128, INT32_MIN]


def test_multipliers_broadcast_over_channels() -> None:
    acc = np.arange(-60, 60).reshape(1, 3, 40)
    pairs = [quantize_multiplier(scale) for scale in (0.3, 0.01, 1.7)]
    multiplier, shift = (np.array(column).reshape(3, 1) for column in zip(*pairs, strict=True))
    got = apply(acc, multiplier, shift, DOUBLE)
    for channel, pair in enumerate(pairs):
        assert got[0, channel].tolist() == [literal_double(int(x), *pair) for x in acc[0, channel]]


def test_shifts_and_scales_out_of_range_are_refused_by_code() -> None:
    for shift in (-32, 31, [0, 99]):
        for rounding in (DOUBLE, SINGLE):
            with pytest.raises(AbiError) as refusal:
                apply(1, 1, shift, rounding)
            assert refusal.value.code is ErrorCode.BAD_MULTIPLIER
    for scale in (math.nan, math.inf, -0.5):
        with pytest.raises(AbiError) as refusal:
            apply(1, float_bits(scale), 0, EVEN)
        assert refusal.value.code is ErrorCode.BAD_MULTIPLIER


def test_inputs_are_left_as_they_were() -> None:
    acc = np.arange(-50, 50)
    for rounding in (DOUBLE, SINGLE, EVEN):
        apply(acc, float_bits(0.7), -3 if rounding is not EVEN else 0, rounding)
    assert acc.tolist() == list(range(-50, 50))


@settings(max_examples=300, deadline=None)
@given(int32, int32, st.integers(0, 31))
def test_the_building_blocks_equal_their_literal_forms(a: int, b: int, exponent: int) -> None:
    assert srdhm(a, b) == literal_srdhm(a, b)
    assert rounding_divide_by_pot(a, exponent) == literal_divide(a, exponent)


# --- multipliers ---------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.floats(2**-31, 2**29, exclude_max=True))
def test_a_multiplier_is_its_scale_within_two_to_the_minus_31(real: float) -> None:
    multiplier, shift = quantize_multiplier(real)
    assert 1 << 30 <= multiplier <= INT32_MAX
    made = Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert abs(made / Fraction(real) - 1) <= Fraction(1, 1 << 31)


def test_a_scale_of_about_a_255th_keeps_its_float64_multiplier() -> None:
    # C26: in float32 the multiplier drifts; in float64 it is the scale to the last bit.
    multiplier, shift = quantize_multiplier(0.1 * 0.0039215689 / 0.1)
    assert abs(multiplier * 2.0 ** (shift - 31) / 0.0039215689 - 1) < 2**-31
    drifted = float(np.float32(0.1) * np.float32(0.0039215689) / np.float32(0.1))
    assert quantize_multiplier(drifted) != (multiplier, shift)


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (0.0, (0, 0)),
        (1.0, (1 << 30, 1)),
        (0.5, (1 << 30, 0)),
        (math.nextafter(1.0, 0.0), (1 << 30, 1)),
        (2.0**-32, (1 << 30, -31)),
        (2.0**-33, (0, 0)),
        (5e-324, (0, 0)),
        (2.0**40, (INT32_MAX, 30)),
    ],
)
def test_multipliers_at_the_ends_of_the_range(real: float, expected: tuple[int, int]) -> None:
    assert quantize_multiplier(real) == expected


@pytest.mark.parametrize("real", [-1.0, math.nan, math.inf])
def test_scales_that_make_no_sense_are_refused(real: float) -> None:
    for rounding in Rounding:
        with pytest.raises(ValueError, match="finite and not negative"):
            multiplier_of(real, rounding)


def test_even_multipliers_are_float32_bits_and_back() -> None:
    bits, shift = multiplier_of(0.1, EVEN)
    assert (bits, shift) == (0x3DCCCCCD, 0)
    assert scale_of(bits) == np.float32(0.1)


def test_half_goes_away_from_zero_for_numbers_and_arrays() -> None:
    assert [round_half_away(x) for x in (2.5, -2.5, 0.49999999999999994, -0.5)] == [3, -3, 0, -1]
    got = round_half_away(np.array([0.5, -1.5, 8388607.5, -0.4], np.float32))
    assert got.dtype == np.float32
    assert got.tolist() == [1, -2, 8388608, 0]


# --- ADD and softmax -----------------------------------------------------------------------------


def test_add_multipliers_are_those_of_the_litert_kernel() -> None:
    made = add_parameters(0.5, 0.25, 1.0, DOUBLE)
    assert made.left_shift == 20
    assert (made.input_multiplier, made.input_shift) == quantize_multiplier(0.5)
    assert (made.residual_multiplier, made.residual_shift) == quantize_multiplier(0.25)
    assert (made.output_multiplier, made.output_shift) == quantize_multiplier(2.0**-20)


def test_an_int16_add_has_15_bits_of_headroom() -> None:
    found = add_parameters(0.5, 0.25, 1.0, DOUBLE, headroom=15)
    assert (found.left_shift, found.output_multiplier) == (15, 1 << 30)
    assert found.output_shift == quantize_multiplier(2.0**-15)[1]


def test_add_multipliers_for_even_are_float32_ratios() -> None:
    made = add_parameters(0.1, 0.3, 0.7, EVEN)
    assert scale_of(made.input_multiplier) == np.float32(0.1) / np.float32(0.7)
    assert scale_of(made.residual_multiplier) == np.float32(0.3) / np.float32(0.7)
    assert made.left_shift == made.input_shift == made.residual_shift == 0


def test_softmax_parameters_are_those_of_the_litert_kernel() -> None:
    made = softmax_parameters(0.1, DOUBLE)
    assert (made.input_multiplier, made.input_shift) == quantize_multiplier(0.1 * 2**26)
    assert made.diff_min == -math.floor(31 * 2.0**26 / 2.0**made.input_shift)
    capped = softmax_parameters(1000.0, DOUBLE)
    assert (capped.input_multiplier, capped.input_shift) == (INT32_MAX, 30)


def test_a_softmax_scale_below_the_format_is_refused() -> None:
    with pytest.raises(ValueError, match=r"above 2\^-26"):
        softmax_parameters(2.0**-27, DOUBLE)


def test_the_exponential_is_within_its_format_of_the_real_one() -> None:
    raw = -np.unique(np.geomspace(1, 31 * 2.0**26, 20_000).astype(np.int64))
    real = np.exp(raw / 2.0**26)
    # Its Taylor series stops before (1/8)^5 / 120.
    assert np.abs(exp_on_negative_values(raw) / 2.0**31 - real).max() < 2.6e-7
    assert exp_on_negative_values(0) == INT32_MAX


def literal_exp(a: int) -> int:
    """gemmlowp's exp_on_negative_values for Q5.26, one number at a time."""
    if a == 0:
        return INT32_MAX
    part = a % (1 << 24) - (1 << 24)
    x = (part << 5) + (1 << 28)
    x2 = literal_srdhm(x, x)
    inner = literal_divide(literal_srdhm(x2, x2), 2) + literal_srdhm(x2, x)
    series = literal_divide(literal_srdhm(inner, 715827883) + x2, 1)
    result = 1895147668 + literal_srdhm(1895147668, x + series)
    steps = [round(math.exp(-(2.0**power)) * 2**31) for power in range(-2, 5)]
    for bit, factor in enumerate(steps, start=24):
        if part - a >> bit & 1:
            result = literal_srdhm(result, factor)
    return result


@settings(max_examples=300, deadline=None)
@given(st.integers(-(31 << 26), 0))
def test_the_exponential_equals_its_literal_form(a: int) -> None:
    assert exp_on_negative_values(a) == literal_exp(a)


def literal_reciprocal(a: int) -> int:
    """gemmlowp's one_over_one_plus_x_for_x_in_0_1."""
    half = truncated(a + INT32_MAX + 1, 2)
    x = round(48 / 17 * 2**29) + literal_srdhm(half, round(-32 / 17 * 2**29))
    for _ in range(3):
        x += literal_srdhm(x, (1 << 29) - literal_srdhm(half, x)) << 2
    return min(x << 1, INT32_MAX)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, INT32_MAX))
def test_the_reciprocal_equals_its_literal_form(a: int) -> None:
    assert one_over_one_plus_x(a) == literal_reciprocal(a)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, INT32_MAX))
def test_a_reciprocal_times_its_number_is_one(x: int) -> None:
    reciprocal, bits = get_reciprocal(x)
    made = float(reciprocal) / 2**31 * 2.0 ** -float(bits) * (x / 2**19)
    assert abs(made - 1) < 1e-6
    assert bits == 12 - (32 - x.bit_length())


def test_a_sum_of_one_in_q12_is_a_half_million() -> None:
    assert rescale_to_q12(INT32_MAX) == 1 << 19


# --- float rules ----------------------------------------------------------------------------------

singles = st.floats(width=32, min_value=-(2.0**40), max_value=2.0**40)


@given(st.integers(-255, 255), singles, singles)
@settings(max_examples=400)
def test_a_fused_multiply_add_rounds_once(a: int, b: float, c: float) -> None:
    assert fused_multiply_add(a, np.float32(b), np.float32(c)) == fma(a, b, c)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("tail", [2.0**-60, -(2.0**-60)])
def test_a_tie_of_float32_that_float64_cannot_see_past_is_broken_by_the_tail(
    tail: float, sign: int
) -> None:
    half = np.float32((1 + 2.0**-23) / 2 + 2.0**-24)
    b, c = np.float32(sign * tail), np.float32(sign * (1 + 2.0**-23))
    assert fused_multiply_add(1, b, c) == fma(1, float(b), float(c))
    large = sign * (1 + 2.0**-22) * 2.0**23
    for middle in (0.5, 1.5, -0.5):
        odd = fused_multiply_add(3, np.float32(sign * half), np.float32(large + middle))
        assert odd == fma(3, float(np.float32(sign * half)), float(np.float32(large + middle)))


@given(st.floats(min_value=0, allow_infinity=False))
def test_two_words_hold_a_float64(real: float) -> None:
    low, high = real_words(real)
    assert INT32_MIN <= min(low, high) <= max(low, high) <= INT32_MAX
    assert real_of(np.array([low, 0]), np.array([high, 0])).tolist() == [real, 0.0]


@given(int32, st.floats(min_value=0, max_value=2.0**20))
def test_a_float64_scale_rounds_the_float64_product_half_away(acc: int, real: float) -> None:
    product = Fraction(float(acc) * real)
    away = math.floor(abs(product) + Fraction(1, 2)) * (1 if acc >= 0 else -1)
    assert int(requantise_real(acc, real)) == min(max(away, INT32_MIN), INT32_MAX)


@pytest.mark.parametrize("real", [-1.0, math.nan, math.inf])
def test_a_float64_scale_that_is_none_is_refused(real: float) -> None:
    with pytest.raises(AbiError) as refusal:
        requantise_real(1, real)
    assert refusal.value.code is ErrorCode.BAD_MULTIPLIER
