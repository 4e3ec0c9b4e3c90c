"""CONV and DEPTHWISE against sums and rounding one number at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import Layout, Opcode, Rounding, ToaFlag
from npuabi.errors import AbiError, ErrorCode
from npuabi.fixedpoint import add_parameters, multiplier_of, real_words
from npufw.kernels.base import Sums
from npufw.kernels.sums import EXACT, cuts_of, exact_product
from tests.builders import params, params_words
from tests.exact import add_even
from tests.unit.npufw.bench import Call, Operand, operand, requantise, words

Array = NDArray[Any]
BRICKS = Layout.OIHW16I16O


def codes(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


class Case:
    """A random convolution of 1 to 33 channels and 1 to 20 pixels a side."""

    def __init__(self, seed: int, *, depthwise: bool = False) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.rounding = list(Rounding)[seed % 3]
        self.c, self.o = (int(n) for n in rng.integers(1, 34, 2))
        self.o = self.c if depthwise else self.o
        self.kernel, self.stride, self.dilation = (
            tuple(rng.integers(1, high, 2).tolist()) for high in (5, 4, 3)
        )
        self.pads = tuple(rng.integers(0, 3, 4).tolist())
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        low = [max(1, r - self.pads[i] - self.pads[i + 2]) for i, r in enumerate(reach)]
        self.size = [int(rng.integers(n, max(21, n + 1))) for n in low]
        self.out = [
            (self.size[i] + self.pads[i] + self.pads[i + 2] - reach[i]) // self.stride[i] + 1
            for i in (0, 1)
        ]
        self.n = int(rng.integers(1, 3))
        self.depthwise = depthwise
        self.x = codes(rng, self.n, self.c, *self.size)
        self.w = codes(rng, 1 if depthwise else self.o, self.c, *self.kernel)
        self.bias = rng.integers(-20000, 20000, self.o)
        pairs = [multiplier_of(float(s), self.rounding) for s in rng.uniform(1e-4, 3e-3, self.o)]
        self.multiplier, self.shift = np.array([p[0] for p in pairs]), [p[1] for p in pairs]
        self.zero, self.out_zero = (int(z) for z in rng.integers(-128, 128, 2))
        self.clamp = tuple(sorted(rng.integers(-128, 128, 2).tolist()))

    def sums(self) -> Array:
        """sum((x - zero) * w) + bias by loops over output pixels, in int64."""
        n, oh, ow = self.n, *self.out
        padded = np.full((n, self.c, self.size[0] + 40, self.size[1] + 40), self.zero, np.int64)
        top, left = self.pads[:2]
        padded[:, :, top : top + self.size[0], left : left + self.size[1]] = self.x
        sums = np.zeros((n, self.o, oh, ow), np.int64)
        (dh, dw), (kh, kw) = self.dilation, self.kernel
        for i in range(oh):
            for j in range(ow):
                h, w = i * self.stride[0], j * self.stride[1]
                taps = (
                    padded[:, :, h : h + kh * dh : dh, w : w + kw * dw : dw][:, :, :kh, :kw]
                    - self.zero
                )
                if self.depthwise:
                    sums[:, :, i, j] = (taps * self.w[0].astype(np.int64)).sum(axis=(2, 3))
                else:
                    sums[:, :, i, j] = np.einsum("nchw,ochw->no", taps, self.w.astype(np.int64))
        return sums + self.bias[None, :, None, None]

    def scaled(self, sums: Array) -> Array:
        out = np.empty(sums.shape, np.int64)
        for (n, o, i, j), acc in np.ndenumerate(sums):
            out[n, o, i, j] = requantise(
                int(acc), int(self.multiplier[o]), self.shift[o], self.rounding
            )
        return out

    def call(self, operands: dict[str, Operand] | None = None, **more: Any) -> Call:
        plain = not self.depthwise and self.c < 16 and self.n == 1
        weights = BRICKS if not plain else Layout.OIHW16O
        head = more.pop("head", {"output_zero_point": self.out_zero})
        fields = {
            "kernel": self.kernel,
            "stride": self.stride,
            "dilation": self.dilation,
            "pads": self.pads,
            "clamp": self.clamp,
            "groups": self.c if self.depthwise else 1,
            "rounding": self.rounding,
            **more,
        }
        made = {
            "input": operand(self.x, layout=Layout.NHWC if plain else Layout.NCHW16C),
            "weights": operand(self.w, layout=Layout.NCHW16C if self.depthwise else weights),
            "parameters": words(
                params_words(
                    params(input_zero_point=self.zero, **head),
                    self.bias,
                    self.multiplier,
                    np.array(self.shift),
                )
            ),
            "output": operand((self.n, self.o, *self.out)),
        }
        opcode = Opcode.DEPTHWISE if self.depthwise else Opcode.CONV
        return Call(opcode, {**made, **(operands or {})}, **fields)


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("seed", range(36))
def test_every_output_equals_sums_and_rounding_done_one_by_one(seed: int, depthwise: bool) -> None:
    case = Case(seed, depthwise=depthwise)
    expected = np.clip(case.scaled(case.sums()) + case.out_zero, *case.clamp)
    np.testing.assert_array_equal(case.call().run(), expected)


@pytest.mark.parametrize("depthwise", [False, True])
def test_a_toa_that_says_real_scales_in_float64(depthwise: bool) -> None:
    case = Case(5, depthwise=depthwise)
    case.clamp = (-128, 127)
    reals = [0.0013 * (o + 1) for o in range(case.o)]
    # A tie below zero, which this rule rounds away from it: -384 / 256.
    (case.w[0, 1] if depthwise else case.w[1])[...] = 0
    case.bias[1], reals[1], case.out_zero = -384, 2.0**-8, 0
    pairs = [real_words(real) for real in reals]
    case.multiplier, case.shift = np.array([p[0] for p in pairs]), [p[1] for p in pairs]
    products = case.sums() * np.array(reals)[:, None, None]
    away = np.copysign(np.floor(np.abs(products) + 0.5), products)
    flags = ToaFlag.CLEAR | ToaFlag.WRITE | ToaFlag.REAL
    result = case.call(flags=flags).run()
    assert result is not None
    np.testing.assert_array_equal(result, np.clip(away, *case.clamp))
    assert np.all(result[:, 1] == -2)


@pytest.mark.parametrize("seed", range(12))
def test_a_fused_residual_is_the_convolution_and_then_the_add(seed: int) -> None:
    case = Case(seed)
    other = codes(case.rng, case.n, case.o, *case.out)
    inner_zero, other_zero, low, high = 3, -7, -100, 110
    found = add_parameters(0.05, 0.09, 0.11, case.rounding)
    head = {
        "inner_zero_point": inner_zero,
        "residual_zero_point": other_zero,
        "output_zero_point": case.out_zero,
        "inner_low": low,
        "inner_high": high,
        **{name: getattr(found, name) for name in found.__slots__},
    }
    inner = np.clip(case.scaled(case.sums()) + inner_zero, low, high)
    expected = [
        added(int(a), int(b), (inner_zero, other_zero, case.out_zero), found, case.rounding)
        for a, b in zip(inner.ravel(), other.ravel(), strict=True)
    ]
    whole = ToaFlag.CLEAR | ToaFlag.WRITE | ToaFlag.RESIDUAL
    call = case.call({"residual": operand(other)}, head=head, flags=whole)
    clamped = np.clip(np.array(expected).reshape(inner.shape), *case.clamp)
    np.testing.assert_array_equal(call.run(), clamped)


def added(a: int, b: int, zeros: tuple[int, int, int], found: Any, rounding: Rounding) -> int:
    """Return the sum of two codes, unclamped; *zeros* are the zero points of a, b, the result."""
    if rounding is Rounding.EVEN:
        ra, rb = (
            float(np.int32(m).view(np.float32))
            for m in (found.input_multiplier, found.residual_multiplier)
        )
        return add_even(a, b, (ra, rb), zeros)
    left, right = (a - zeros[0]) << 20, (b - zeros[1]) << 20
    one = requantise(left, found.input_multiplier, found.input_shift, rounding)
    two = requantise(right, found.residual_multiplier, found.residual_shift, rounding)
    return requantise(one + two, found.output_multiplier, found.output_shift, rounding) + zeros[2]


@pytest.mark.parametrize("wide", [False, True])
def test_ranges_of_k_add_up_to_the_whole_convolution(wide: bool) -> None:
    case = Case(3)
    case.n, case.c, case.o, case.size, case.out = 1, 33, 16, [4, 7], [4, 7]
    case.kernel = case.stride = case.dilation = (1, 1)
    case.pads = (0, 0, 0, 0)
    case.x, case.w = codes(case.rng, 1, 33, 4, 7), codes(case.rng, 16, 33, 1, 1)
    case.bias = case.bias[:1].repeat(16)
    case.multiplier, case.shift = case.multiplier[:1].repeat(16), case.shift[:1] * 16
    expected = np.clip(case.scaled(case.sums()) + case.out_zero, *case.clamp)
    x, w, sums, width = case.x, case.w, Sums(), ToaFlag.WIDE if wide else ToaFlag(0)
    result = None
    for start, end in ((0, 16), (16, 32), (32, 33)):
        case.x, case.w, case.c = x[:, start:end], w[:, start:end], end - start
        flags = width | (ToaFlag.CLEAR if start == 0 else ToaFlag.WRITE if end == 33 else 0)
        operands = {
            "input": operand(case.x),
            "weights": operand(case.w, layout=BRICKS),
        }
        result = case.call(operands, sums=sums, flags=flags).run()
        assert (result is None) == (end < 33)
    np.testing.assert_array_equal(result, expected)


def test_a_stripe_reads_its_input_anew_whatever_ran_before() -> None:
    case, sums = Case(9), Sums()
    for _ in range(2):
        for x in (case.x, -1 - case.x):
            case.x = x
            expected = np.clip(case.scaled(case.sums()) + case.out_zero, *case.clamp)
            np.testing.assert_array_equal(case.call(sums=sums).run(), expected)
    # The same bytes under another zero point, which the pads hold.
    case.zero += 1
    expected = np.clip(case.scaled(case.sums()) + case.out_zero, *case.clamp)
    np.testing.assert_array_equal(case.call(sums=sums).run(), expected)


@pytest.mark.parametrize("k", [1023, 1024, 4608, 65_793])
def test_products_are_exact_at_the_extremes_of_int8(k: int) -> None:
    rows = np.full((2, k), -128, np.float32)
    rows[1] = 127
    weights = np.full((k, 3), -128, np.float32)
    weights[:, 1], weights[1::2, 2] = 127, 127
    starts = cuts_of(weights)
    expected = rows.astype(np.int64) @ weights.astype(np.int64)
    np.testing.assert_array_equal(exact_product(rows, weights, starts), expected)
    for start, end in zip(starts, [*starts[1:], k], strict=True):
        assert np.abs(weights[start:end]).sum(axis=0).max() * 128 < EXACT


def test_small_weights_need_no_cut_of_k() -> None:
    assert cuts_of(np.full((60_000, 1), 2, np.float32)) == [0]
    assert len(cuts_of(np.full((60_000, 1), 127, np.float32))) >= math.ceil(60_000 * 127 / 2**17)


def test_sums_beyond_int32_wrap_unless_the_toa_is_wide() -> None:
    case = Case(0)
    case.bias = np.full(case.o, 2**31 - 1)
    case.out_zero, case.clamp = 0, (-128, 127)
    wrapped = (case.sums() + 2**31) % 2**32 - 2**31
    expected = np.clip(case.scaled(wrapped), -128, 127)
    np.testing.assert_array_equal(case.call().run(), expected)


RULES = [
    ({"groups": 2}, ErrorCode.BAD_WINDOW, "groups are lowered"),
    ({"kernel": (9, 9)}, ErrorCode.BAD_DIMS, "weights are"),
    ({"stride": (0, 1)}, ErrorCode.BAD_WINDOW, "at least 1"),
    ({"pads": (9, 9, 9, 9)}, ErrorCode.BAD_DIMS, "output rows"),
    ({"clamp": (5, 4)}, ErrorCode.BAD_SCALE, "no range of i8"),
    ({"clamp": (-129, 4)}, ErrorCode.BAD_SCALE, "no range of i8"),
    ({"flags": ToaFlag.CLEAR | ToaFlag.WRITE | ToaFlag.RESIDUAL}, ErrorCode.BAD_OPERANDS, "flag"),
    ({"flags": ToaFlag.CLEAR}, ErrorCode.BAD_PRECISION, "the accumulators hold 1024"),
]


@pytest.mark.parametrize(("change", "code", "text"), RULES)
def test_a_convolution_that_breaks_a_rule_is_refused_by_its_name(
    change: dict[str, Any], code: ErrorCode, text: str
) -> None:
    with pytest.raises(AbiError, match=text) as caught:
        Case(37).call(**change).run()
    assert caught.value.code is code


def test_a_shift_out_of_range_is_refused_when_the_toa_runs() -> None:
    case = Case(0)
    case.shift = [40] * case.o
    with pytest.raises(AbiError, match="a channel's shift is outside") as caught:
        case.call().run()
    assert caught.value.code is ErrorCode.BAD_MULTIPLIER
