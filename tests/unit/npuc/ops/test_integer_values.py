"""Integer references against scalar loops over Python ints, written from the specifications."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import (
    Add,
    AvgPool2d,
    Clip,
    Concat,
    Conv2d,
    Dense,
    Dequantize,
    GlobalAvgPool,
    MaxPool2d,
    Quantize,
    Relu,
    Softmax,
)
from npuc.reference import accumulator_bound, clamp_codes, fits_int32, softmax_table
from tests.exact import add_even

MODES = list(Rounding)
INT32 = (-(2**31), 2**31 - 1)


# --- the oracle: one number at a time ---------------------------------------------------------


def away(numerator: int, denominator: int) -> int:
    """Return numerator / denominator, half away from zero; denominator > 0."""
    whole = (2 * abs(numerator) + denominator) // (2 * denominator)
    return whole if numerator >= 0 else -whole


def requantised(acc: int, real: float, mode: Rounding) -> int:
    """Return acc * real in one rounding mode (design.md section 4)."""
    if mode is Rounding.EVEN:
        return round(float(np.float32(acc) * np.float32(real)))
    fraction, shift = math.frexp(real)
    q31 = math.floor(fraction * 2**31 + 0.5)
    if q31 == 2**31:
        q31, shift = 2**30, shift + 1
    if mode is Rounding.SINGLE:
        return (acc * q31 + (1 << (30 - shift))) >> (31 - shift)
    shifted = min(max(acc << max(shift, 0), INT32[0]), INT32[1])
    high = (shifted * q31 + (1 << 30)) >> 31
    return away(high, 1 << max(-shift, 0))


def scale_of(x: float, w: float, y: float, mode: Rounding) -> float:
    if mode is Rounding.EVEN:
        return float(np.float32(np.float32(x) * np.float32(w)) / np.float32(y))
    return x * w / y


def held(value: int, low: int = -128, high: int = 127) -> int:
    return min(max(value, low), high)


def added(a: int, qa: Quant, b: int, qb: Quant, qo: Quant, mode: Rounding) -> int:
    """Return LiteRT's int8 ADD of two codes, unclamped; for EVEN ONNX Runtime's."""
    x, y = a - qa.zero_point, b - qb.zero_point
    if mode is Rounding.EVEN:
        ra, rb = (float(np.float32(q.scale) / np.float32(qo.scale)) for q in (qa, qb))
        return add_even(a, b, (ra, rb), (qa.zero_point, qb.zero_point, qo.zero_point))
    twice = 2 * max(qa.scale, qb.scale)
    left_part = requantised(x << 20, qa.scale / twice, mode)
    right_part = requantised(y << 20, qb.scale / twice, mode)
    total = requantised(left_part + right_part, twice / (2**20 * qo.scale), mode)
    return total + qo.zero_point


# --- building quantised ops -------------------------------------------------------------------


def stored(shape: Sequence[int], scale: float, zero_point: int) -> TensorType:
    return TensorType(tuple(shape), DType.I8, Quant.per_tensor(scale, zero_point))


def codes(shape: Sequence[int], rng: np.random.Generator) -> Array:
    return rng.integers(-128, 128, tuple(shape)).astype(np.int8)


def unary(cls: type[Op], x: TensorType, y: TensorType, attributes: dict[str, Any]) -> Op:
    op = cls([Value("x", x)], attributes, result_types=[y])
    op.verify()
    return op


# --- convolution ------------------------------------------------------------------------------

CONVS = [
    pytest.param(e, id=str(i))
    for i, e in enumerate(Conv2d.examples())
    if e.residual is None and e.result.tensor.elements * e.weights.tensor.elements < 60_000
]


def conv_sum(op: Conv2d, x: Array, w: Array, place: tuple[int, ...]) -> int:
    """Return sum((x - zp) * w) of one output element."""
    n, o, row, column = place
    zero_point = op.x.tensor.quant.zero_point if op.x.tensor.quant else 0
    depth = w.shape[1]
    first = o // (w.shape[0] // op.group) * depth
    top, left = op.window.pads[:2]
    total = 0
    for i, ky, kx in product(range(depth), range(w.shape[2]), range(w.shape[3])):
        y = row * op.strides[0] + ky * op.dilations[0] - top
        z = column * op.strides[1] + kx * op.dilations[1] - left
        if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
            total += (int(x[n, first + i, y, z]) - zero_point) * int(w[o, i, ky, kx])
    return total


def quantised_conv(float_op: Conv2d, rng: np.random.Generator) -> Conv2d:
    """Return *float_op* on int8, with per-channel weights and a bias."""
    outputs = float_op.weights.tensor.dims[0]
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.001, 0.02, outputs))
    w = float_op.weights.tensor.with_quant(DType.I8, Quant(scales, (0,) * outputs, 0))
    x = stored(float_op.x.tensor.dims, 0.0371, 11)
    bias = TensorType(
        (outputs,), DType.I32, Quant(tuple(0.0371 * s for s in scales), (0,) * outputs, 0)
    )
    y = stored(float_op.result.tensor.dims, 0.0513, -7)
    values = [Value("x", x), Value("w", w), Value("b", bias)]
    op = Conv2d(values, float_op.attributes, result_types=[y])
    op.verify()
    return op


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("example", CONVS)
def test_conv2d_equals_the_loop(example: Conv2d, mode: Rounding) -> None:
    rng = np.random.default_rng(3)
    op = quantised_conv(example, rng)
    x, w = codes(op.x.tensor.dims, rng), codes(op.weights.tensor.dims, rng)
    bias = rng.integers(-9000, 9000, (w.shape[0],)).astype(np.int32)
    (y,) = op.reference([x, w, bias], mode)
    low, high = (-128, 127) if op.clamp is None else (-7, round(6 / 0.0513) - 7)
    scales = op.weights.tensor.quant.scales if op.weights.tensor.quant else ()
    for place in np.ndindex(y.shape):
        acc = conv_sum(op, x, w, place) + int(bias[place[1]])
        real = scale_of(0.0371, scales[place[1]], 0.0513, mode)
        assert y[place] == held(requantised(acc, real, mode) - 7, low, high), place
    assert y.dtype == np.int8


@pytest.mark.parametrize("mode", MODES)
def test_a_residual_is_added_to_the_int8_result(mode: Rounding) -> None:
    rng = np.random.default_rng(4)
    inner, other, final = (Quant.per_tensor(s, z) for s, z in ((0.09, 4), (0.021, -9), (0.06, 2)))
    attributes = {
        "inner_scale": 0.09, "inner_zp": 4, "inner_clamp": (-4.0, 4.0), "clamp": (0.0, 5.0),
    }  # fmt: skip
    shape = (1, 5, 3, 4)
    weights = TensorType((5, 3, 1, 1), DType.I8, Quant.per_tensor(0.004, 0))
    values = [
        Value("x", stored((1, 3, 3, 4), 0.05, -20)),
        Value("w", weights),
        None,
        Value("r", stored(shape, other.scale, other.zero_point)),
    ]
    op = Conv2d(values, attributes, result_types=[stored(shape, 0.06, 2)])
    op.verify()
    x, w, r = codes((1, 3, 3, 4), rng), codes((5, 3, 1, 1), rng), codes(shape, rng)
    (y,) = op.reference([x, w, None, r], mode)
    real = scale_of(0.05, 0.004, 0.09, mode)
    for place in np.ndindex(y.shape):
        first = held(requantised(conv_sum(op, x, w, place), real, mode) + 4, 4 - 44, 4 + 44)
        total = added(first, inner, int(r[place]), other, final, mode)
        assert y[place] == held(total, 2, 2 + 83), place


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("per_channel", [True, False])
def test_dense_equals_the_loop(mode: Rounding, per_channel: bool) -> None:
    rng = np.random.default_rng(5)
    scales = (0.003, 0.0017, 0.011) if per_channel else (0.003,)
    weights = Quant(scales, (0,) * len(scales), 0 if per_channel else None)
    values = [
        Value("x", stored((2, 9), 0.1, 3)),
        Value("w", TensorType((3, 9), DType.I8, weights)),
        Value("b", TensorType((3,), DType.I32)),
    ]
    op = Dense(values, result_types=[stored((2, 3), 0.2, -1)])
    op.verify()
    x, w = codes((2, 9), rng), codes((3, 9), rng)
    bias = np.array([5, -700, 33], np.int32)
    (y,) = op.reference([x, w, bias], mode)
    for n, o in np.ndindex(2, 3):
        acc = int(bias[o]) + sum((int(x[n, k]) - 3) * int(w[o, k]) for k in range(9))
        real = scale_of(0.1, scales[o if per_channel else 0], 0.2, mode)
        if mode is Rounding.DOUBLE:
            # LiteRT's reference kernel keeps the scale in float64.
            code = math.floor(abs(acc * real) + 0.5) * (1 if acc >= 0 else -1)
        else:
            code = requantised(acc, real, mode)
        assert y[n, o] == held(code - 1)


# --- element by element -----------------------------------------------------------------------

ALL_CODES = np.arange(-128, 128).astype(np.int8)


@pytest.mark.parametrize("mode", MODES)
def test_add_equals_the_formula_for_every_pair_of_codes(mode: Rounding) -> None:
    qa, qb, qo = (Quant.per_tensor(s, z) for s, z in ((0.1, 5), (0.037, -128), (0.09, -3)))
    a, b = np.repeat(ALL_CODES, 256), np.tile(ALL_CODES, 256)
    types = [stored(a.shape, q.scale, q.zero_point) for q in (qa, qb, qo)]
    op = Add([Value("a", types[0]), Value("b", types[1])], result_types=[types[2]])
    op.verify()
    (y,) = op.reference([a, b], mode)
    picks = np.random.default_rng(6).choice(a.size, 4000, replace=False)
    for i in picks:
        assert y[i] == held(added(int(a[i]), qa, int(b[i]), qb, qo, mode)), (a[i], b[i])


@pytest.mark.parametrize("mode", MODES)
def test_c29_add_rescales_both_operands(mode: Rounding) -> None:
    values = [Value("a", stored((1,), 0.1, 0)), Value("b", stored((1,), 0.05, 0))]
    op = Add(values, result_types=[stored((1,), 0.1, -3)])
    a, b = np.array([100], np.int8), np.array([50], np.int8)
    assert op.reference([a, b], mode)[0].tolist() == [122]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("cls", "attributes", "low", "high"),
    [
        (Relu, {}, -20, 127),
        (Clip, {"min": -1.0, "max": 6.0}, -20 - 17, -20 + 103),
        (Clip, {"min": 6.0, "max": 0.0}, -20, -20),
    ],
)
def test_relu_and_clip_rescale_and_clamp(
    cls: type[Op], attributes: dict[str, Any], low: int, high: int, mode: Rounding
) -> None:
    op = unary(cls, stored((256,), 0.11, 7), stored((256,), 0.058, -20), attributes)
    (y,) = op.reference([ALL_CODES], mode)
    # LiteRT's RELU family divides the scales in float32.
    ratio = float(np.float32(0.11) / np.float32(0.058))
    steps = [rescaled(int(q) - 7, 0.11, 0.058, ratio, mode) for q in ALL_CODES]
    assert y.tolist() == [held(step - 20, low, high) for step in steps]


def rescaled(centred: int, x: float, y: float, ratio: float, mode: Rounding) -> int:
    """Return *centred* codes of scale x in steps of y; EVEN through the float32 real value."""
    if mode is not Rounding.EVEN:
        return requantised(centred, ratio, mode)
    return round(float(np.float32(centred) * np.float32(x) / np.float32(y)))


@pytest.mark.parametrize("mode", MODES)
def test_relu_with_tied_parameters_only_clamps(mode: Rounding) -> None:
    op = unary(Relu, stored((256,), 0.11, 7), stored((256,), 0.11, 7), {})
    assert np.array_equal(op.reference([ALL_CODES], mode)[0], np.maximum(ALL_CODES, 7))


@pytest.mark.parametrize("mode", MODES)
def test_concat_rescales_only_pieces_with_other_parameters(mode: Rounding) -> None:
    same, other = stored((256,), 0.05, -1), stored((256,), 0.0237, 60)
    op = Concat(
        [Value("a", other), Value("b", same)], {"axis": 0}, result_types=[stored((512,), 0.05, -1)]
    )
    op.verify()
    (y,) = op.reference([ALL_CODES, ALL_CODES], mode)
    steps = [rescaled(int(q) - 60, 0.0237, 0.05, 0.0237 / 0.05, mode) for q in ALL_CODES]
    assert y[:256].tolist() == [held(step - 1) for step in steps]
    assert np.array_equal(y[256:], ALL_CODES)


@pytest.mark.parametrize("mode", MODES)
def test_quantize_and_dequantize_use_float32(mode: Rounding) -> None:
    scale = float(np.float32(0.05))
    x = np.concatenate([np.random.default_rng(7).normal(size=500), [0.075, -0.125, 1e30, -np.inf]])
    op = Quantize([Value("x", TensorType(x.shape))], {"scale": scale, "zero_point": -3})
    op.verify()
    (q,) = op.reference([x], mode)
    for value, code in zip(x, q, strict=True):
        steps = (
            float(np.float32(value) / np.float32(scale))
            if abs(value) < 1e9
            else math.copysign(1e6, value)
        )
        away_code = math.copysign(math.floor(abs(steps) + 0.5), steps)
        whole = round(steps) if mode is Rounding.EVEN else int(away_code)
        assert code == held(whole - 3)
    back = Dequantize([op.result])
    (real,) = back.reference([q], mode)
    assert real.dtype == np.float32
    assert np.array_equal(real, (q.astype(np.float32) + np.float32(3)) * np.float32(scale))


def test_quantize_rounds_halves_by_the_mode() -> None:
    op = Quantize([Value("x", TensorType((4,)))], {"scale": 1.0})
    halves = np.array([0.5, 1.5, -0.5, -2.5])
    assert op.reference([halves], Rounding.DOUBLE)[0].tolist() == [1, 2, -1, -3]
    assert op.reference([halves], Rounding.EVEN)[0].tolist() == [0, 2, 0, -2]


def test_what_is_no_number_has_the_code_of_zero_and_infinities_saturate() -> None:
    op = Quantize([Value("x", TensorType((3,)))], {"scale": 1.0, "zero_point": 7})
    x = np.array([np.nan, np.inf, -np.inf])
    assert op.reference([x], Rounding.DOUBLE)[0].tolist() == [7, 127, -128]


# --- pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("example", list(AvgPool2d.examples()))
def test_average_pool_equals_the_loop(example: AvgPool2d, mode: Rounding) -> None:
    zero_point = -13
    kind = stored(example.x.tensor.dims, 0.1, zero_point)
    out = stored(example.result.tensor.dims, 0.1, zero_point)
    op = unary(AvgPool2d, kind, out, example.attributes)
    assert isinstance(op, AvgPool2d)
    x = codes(kind.dims, np.random.default_rng(8))
    (y,) = op.reference([x], mode)
    for place in np.ndindex(y.shape):
        taps = pooled(op, x, place, zero_point)
        if mode is Rounding.EVEN:
            assert y[place] == held(mean_even(taps, 0.1, zero_point)), place
        else:
            assert y[place] == away(sum(taps), len(taps)), place


def mean_even(taps: list[int], scale: float, zero_point: int) -> int:
    """Return ONNX Runtime's mean: real values added one by one in float32."""
    total = np.float32(0)
    for code in taps:
        total += np.float32(code - zero_point) * np.float32(scale)
    mean = total / np.float32(len(taps)) / np.float32(scale)
    return round(float(mean + np.float32(zero_point)))


def pooled(op: AvgPool2d, x: Array, place: tuple[int, ...], zero_point: int) -> list[int]:
    """Return the codes of one window's taps that count, row by row."""
    n, c, row, column = place
    top, left, bottom, right = op.window.pads
    height, width = x.shape[2:]
    taps = []
    for ky, kx in product(range(op.kernel_shape[0]), range(op.kernel_shape[1])):
        y = row * op.strides[0] + ky * op.dilations[0] - top
        z = column * op.strides[1] + kx * op.dilations[1] - left
        if 0 <= y < height and 0 <= z < width:
            taps.append(int(x[n, c, y, z]))
        elif op.count_include_pad and y < height + bottom and z < width + right:
            taps.append(zero_point)
    return taps


@pytest.mark.parametrize("mode", MODES)
def test_global_average_pool_equals_the_loop(mode: Rounding) -> None:
    op = unary(GlobalAvgPool, stored((2, 9, 3, 4), 0.1, 21), stored((2, 9, 1, 1), 0.1, 21), {})
    x = codes((2, 9, 3, 4), np.random.default_rng(9))
    (y,) = op.reference([x], mode)
    for n, c in np.ndindex(2, 9):
        total = sum(int(v) for v in x[n, c].ravel())
        expected = away(total, 12)
        if mode is Rounding.EVEN:
            scale = np.float32(0.1)
            factor = scale / (scale * np.float32(12))
            expected = round(float(np.float32(total - 12 * 21) * factor)) + 21
        assert y[n, c, 0, 0] == expected


def test_an_average_pool_over_the_whole_plane_is_a_global_one() -> None:
    x = codes((2, 9, 3, 4), np.random.default_rng(9))
    kind, out = stored(x.shape, 0.1, 21), stored((2, 9, 1, 1), 0.1, 21)
    for mode in MODES:
        one = unary(AvgPool2d, kind, out, {"kernel_shape": (3, 4)}).reference([x], mode)
        other = unary(GlobalAvgPool, kind, out, {}).reference([x], mode)
        assert np.array_equal(one[0], other[0])


def test_max_pool_copies_codes_and_padding_never_wins() -> None:
    kind = stored((1, 1, 2, 2), 0.1, 100)
    attributes = {"kernel_shape": (2, 2), "pads": (1, 1, 0, 0)}
    op = unary(MaxPool2d, kind, kind, attributes)
    x = np.array([[-128, -120], [-125, -119]], np.int8)[None, None]
    assert op.reference([x], Rounding.DOUBLE)[0][0, 0].tolist() == [[-128, -120], [-125, -119]]


# --- softmax ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_c05_a_sure_winner_saturates_at_127(mode: Rounding) -> None:
    op = unary(Softmax, stored((1, 4), 100 / 127, 0), stored((1, 4), 1 / 256, -128), {})
    x = np.array([[127, 0, 0, 0]], np.int8)
    assert op.reference([x], mode)[0].tolist() == [[127, -128, -128, -128]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [0.003, 0.05, 0.7])
def test_integer_softmax_is_within_one_code_of_the_real_one(mode: Rounding, scale: float) -> None:
    op = unary(Softmax, stored((64, 10), scale, 5), stored((64, 10), 1 / 256, -128), {})
    x = codes((64, 10), np.random.default_rng(10))
    powers = np.exp((x.astype(np.float64) - 5) * scale)
    real = np.clip(powers / powers.sum(axis=1, keepdims=True) * 256 - 128, -128, 127)
    assert np.abs(op.reference([x], mode)[0] - real).max() <= 1.0


@pytest.mark.parametrize("mode", MODES)
def test_c28_integer_softmax_runs_over_channels(mode: Rounding) -> None:
    kind = stored((1, 3, 2, 2), 0.1, 0)
    op = unary(Softmax, kind, stored((1, 3, 2, 2), 1 / 256, -128), {"axis": 1})
    x = codes((1, 3, 2, 2), np.random.default_rng(11))
    sums = (op.reference([x], mode)[0].astype(np.int64) + 128).sum(axis=1)
    assert np.abs(sums - 256).max() <= 3


def test_softmax_table_sums_are_exact_in_any_order() -> None:
    table = softmax_table(0.037)
    whole = table.astype(np.float64) * 2**30
    assert table.dtype == np.float32
    assert table[0] == 1.0
    assert np.array_equal(whole, np.rint(whole))
    assert np.allclose(table, np.exp(-0.037 * np.arange(256)), rtol=2**-23, atol=2**-30)


# --- ranges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("scale", "zero_point", "clamp", "expected"),
    [
        (0.05, -128, (0.0, 6.0), (-128, -8)),
        (0.05, -128, None, (-128, 127)),
        (0.1, 3, (0.0, math.inf), (3, 127)),
        (0.1, 3, (-math.inf, -1.0), (-128, -7)),
        (1e-30, 0, (-1e30, 1e30), (-128, 127)),
        (0.1, 0, (50.0, 60.0), (127, 127)),
    ],
)
def test_c10_a_clamp_becomes_codes(
    scale: float, zero_point: int, clamp: Any, expected: tuple[int, int], mode: Rounding
) -> None:
    assert clamp_codes(Quant.per_tensor(scale, zero_point), clamp, mode) == expected


@pytest.mark.parametrize(("depth", "fits"), [(65_793, True), (65_794, False)])
def test_c24_int32_holds_65793_extreme_products(depth: int, fits: bool) -> None:
    weights = np.full((1, depth), -128, np.int8)
    assert fits_int32(weights, None, (-255, 0)) is fits


def test_c24_the_bias_counts() -> None:
    weights = np.full((1, 65_793), -128, np.int8)
    assert fits_int32(weights, np.array([127], np.int32), (-255, 0))
    assert not fits_int32(weights, np.array([128], np.int32), (-255, 0))


def test_c24_partial_sums_count_even_when_the_total_cancels() -> None:
    weights = np.array([[127] * 70_000 + [-127] * 70_000], np.int8)
    low, high = accumulator_bound(weights, None, (0, 255))
    assert (low[0], high[0]) == (-127 * 255 * 70_000, 127 * 255 * 70_000)
    assert not fits_int32(weights, None, (0, 255))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [65_793, 65_794])
def test_c24_extreme_dense_sums_are_exact(depth: int, mode: Rounding) -> None:
    total = 255 * 128 * depth
    scale = 2.0**-31
    values = [
        Value("x", stored((1, depth), 1.0, 127)),
        Value("w", TensorType((1, depth), DType.I8, Quant.per_tensor(scale, 0))),
    ]
    op = Dense(values, result_types=[stored((1, 1), 2.0**-6, -1)])
    x, w = np.full((1, depth), -128, np.int8), np.full((1, depth), -128, np.int8)
    expected = 64 - 1
    assert round(total * scale * 2**6) == 64
    assert op.reference([x, w, None], mode)[0].tolist() == [[expected]]
