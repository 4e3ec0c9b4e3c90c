"""The vector unit's kernels against loops over Python ints."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Opcode, Rounding
from npuabi.errors import AbiError, ErrorCode
from npuabi.fixedpoint import add_parameters, float_bits, multiplier_of, softmax_parameters
from tests.builders import params, params_words
from tests.unit.npufw.bench import Call, operand, requantise, words
from tests.unit.npufw.test_conv_kernels import added

Array = NDArray[Any]
SCALE = 0.0371
LAYOUTS = [Layout.NCHW, Layout.NHWC, Layout.NCHW16C]


def codes(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


def shape_of(rng: np.random.Generator) -> tuple[int, int, int, int]:
    n, c, h, w = (int(rng.integers(1, high)) for high in (3, 34, 21, 21))
    return n, c, h, w


def head(**fields: Any) -> Any:
    return words(params_words(params(**fields)))


class Pool:
    """A random pooling window, ceil mode included, and its taps."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rounding = list(Rounding)[seed % 3]
        self.x = codes(rng, *shape_of(rng))
        self.kernel, self.stride, self.dilation = (
            tuple(rng.integers(1, high, 2).tolist()) for high in (4, 4, 3)
        )
        self.pads = tuple(int(rng.integers(0, self.kernel[i % 2])) for i in range(4))
        self.zero = int(rng.integers(-128, 128))
        ceil = bool(seed % 2)
        self.out = [self.extent(axis, ceil) for axis in (0, 1)]

    def extent(self, axis: int, ceil: bool) -> int:
        reach = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        room = self.x.shape[2 + axis] + self.pads[axis] + self.pads[axis + 2] - reach
        return int(-(-room // self.stride[axis]) if ceil else room // self.stride[axis]) + 1

    @property
    def possible(self) -> bool:
        """Whether every window holds an in-bounds tap."""
        return min(self.out) > 0 and all(
            any(inside for inside, _ in self.taps(axis, i))
            for axis in (0, 1)
            for i in range(self.out[axis])
        )

    def taps(self, axis: int, index: int) -> list[tuple[bool, int]]:
        """(in bounds, position) of the taps that are in bounds or in the pads."""
        size = self.x.shape[2 + axis]
        first = index * self.stride[axis] - self.pads[axis]
        places = [first + k * self.dilation[axis] for k in range(self.kernel[axis])]
        return [(0 <= p < size, p) for p in places if p < size + self.pads[axis + 2]]

    def call(self, opcode: Opcode, **more: Any) -> Call:
        operands = {
            "input": operand(self.x),
            "output": operand((*self.x.shape[:2], *self.out)),
        }
        if opcode is Opcode.AVG_POOL:
            operands["parameters"] = head(input_zero_point=self.zero, input_scale=SCALE)
        window = {
            "kernel": self.kernel,
            "stride": self.stride,
            "dilation": self.dilation,
            "pads": self.pads,
            "rounding": self.rounding,
        }
        return Call(opcode, operands, **{**window, **more})

    def windows(self) -> Any:
        for n, c, i, j in np.ndindex(*self.x.shape[:2], *self.out):
            rows, columns = self.taps(0, i), self.taps(1, j)
            inside = [
                int(self.x[n, c, p, q]) for in_h, p in rows for in_w, q in columns if in_h and in_w
            ]
            yield (n, c, i, j), inside, len(rows) * len(columns)


def mean(inside: list[int], count: int, zero: int, rounding: Rounding) -> int:
    if rounding is Rounding.EVEN:
        total = np.float32(0)
        for code in inside:
            total += np.float32(code - zero) * np.float32(SCALE)
        steps = total / np.float32(count) / np.float32(SCALE)
        return min(127, max(-128, int(np.rint(steps + np.float32(zero)))))
    raw = sum(inside) + (count - len(inside)) * zero
    magnitude = (abs(raw) + count // 2) // count
    return -magnitude if raw < 0 else magnitude


POOLS = [seed for seed in range(40) if Pool(seed).possible]


@pytest.mark.parametrize("seed", POOLS)
def test_max_pool_takes_the_largest_tap_in_bounds(seed: int) -> None:
    pool = Pool(seed)
    result = pool.call(Opcode.MAX_POOL, clamp=(-100, 90)).run()
    assert result is not None
    for place, inside, _ in pool.windows():
        assert result[place] == min(90, max(-100, *inside)), place


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("seed", POOLS)
def test_avg_pool_divides_by_the_taps_that_count(seed: int, include: int) -> None:
    pool = Pool(seed)
    result = pool.call(Opcode.AVG_POOL, groups=include).run()
    assert result is not None
    for place, inside, count in pool.windows():
        counted = count if include else len(inside)
        assert result[place] == mean(inside, counted, pool.zero, pool.rounding), place


def test_a_window_wholly_in_the_padding_is_refused() -> None:
    pool = Pool(0)
    pool.x = pool.x[:, :, :3, :3]
    pool.kernel, pool.stride, pool.dilation = (2, 2), (1, 1), (1, 1)
    pool.pads, pool.out = (2, 0, 0, 0), [4, 2]
    with pytest.raises(AbiError, match="wholly in the padding of the rows") as caught:
        pool.call(Opcode.MAX_POOL).run()
    assert caught.value.code is ErrorCode.BAD_WINDOW


@pytest.mark.parametrize("seed", range(9))
def test_global_avg_pool_is_the_mean_of_each_plane(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounding, zero = list(Rounding)[seed % 3], int(rng.integers(-128, 128))
    x = codes(rng, *shape_of(rng))
    operands = {
        "input": operand(x),
        "parameters": head(
            input_zero_point=zero, output_zero_point=zero, input_scale=SCALE, output_scale=SCALE
        ),
        "output": operand((*x.shape[:2], 1, 1)),
    }
    result = Call(Opcode.GLOBAL_AVG_POOL, operands, rounding=rounding).run()
    assert result is not None
    for n, c in np.ndindex(*x.shape[:2]):
        plane = x[n, c].ravel().tolist()
        expected = mean(plane, len(plane), zero, rounding)
        if rounding is Rounding.EVEN:
            scale, centred = np.float32(SCALE), np.float32(sum(plane) - zero * len(plane))
            factor = scale / (scale * np.float32(len(plane)))
            expected = round(float(centred * factor)) + zero
        assert result[n, c, 0, 0] == expected


@pytest.mark.parametrize("seed", range(18))
def test_add_scales_both_operands_and_repeats_dims_of_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounding = list(Rounding)[seed % 3]
    # From 4,096 codes on pairs are looked up.
    a = codes(rng, *(shape_of(rng) if seed % 8 < 5 else (1, 17, 16, 16)))
    b = codes(rng, *(1 if rng.random() < 0.4 else n for n in a.shape))
    sa, sb, so = rng.uniform(0.01, 0.2, 3).tolist()
    za, zb, zo = (int(z) for z in rng.integers(-128, 128, 3))
    found = add_parameters(sa, sb, so, rounding)
    zeros = {"input_zero_point": za, "residual_zero_point": zb, "output_zero_point": zo}
    parameters = head(**zeros, **{n: getattr(found, n) for n in found.__slots__})
    operands = {
        "input": operand(a, layout=LAYOUTS[seed % 3]),
        "parameters": parameters,
        "residual": operand(b, layout=LAYOUTS[seed // 3 % 3]),
        "output": operand(a.shape, layout=Layout.NCHW16C),
    }
    result = Call(Opcode.ADD, operands, rounding=rounding, clamp=(-90, 120)).run()
    pairs = zip(a.ravel().tolist(), np.broadcast_to(b, a.shape).ravel().tolist(), strict=True)
    expected = [added(p, q, (za, zb, zo), found, rounding) for p, q in pairs]
    np.testing.assert_array_equal(result, np.clip(expected, -90, 120).reshape(a.shape))


def test_add_with_unequal_scales_gives_the_worked_example() -> None:
    # C29: 100 * .1 + 50 * .05 at s = .1, zp = -3 is 122.
    for rounding in Rounding:
        found = add_parameters(0.1, 0.05, 0.1, rounding)
        fields = {n: getattr(found, n) for n in found.__slots__}
        operands = {
            "input": operand(np.full((1, 1, 1, 1), 100, np.int8)),
            "parameters": head(output_zero_point=-3, **fields),
            "residual": operand(np.full((1, 1, 1, 1), 50, np.int8)),
            "output": operand((1, 1, 1, 1)),
        }
        result = Call(Opcode.ADD, operands, rounding=rounding).run()
        assert result is not None
        assert result.item() == 122


@pytest.mark.parametrize("seed", range(12))
def test_rescale_requantises_each_code_into_any_layout(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounding, x = list(Rounding)[seed % 3], codes(rng, *shape_of(rng))
    ratio = float(rng.uniform(0.1, 3))
    multiplier, shift = multiplier_of(ratio, rounding)
    operands = {
        "input": operand(x, layout=LAYOUTS[seed % 3]),
        "parameters": head(
            input_zero_point=9,
            output_zero_point=-4,
            input_multiplier=multiplier,
            input_shift=shift,
            input_scale=ratio * SCALE,
            output_scale=SCALE,
        ),
        "output": operand(x.shape, layout=LAYOUTS[seed // 3 % 3]),
    }
    result = Call(Opcode.RESCALE, operands, rounding=rounding, clamp=(-4, 100)).run()
    if rounding is Rounding.EVEN:
        into, out = np.float32(ratio * SCALE), np.float32(SCALE)
        scaled = [round(float(np.float32(q - 9) * into / out)) - 4 for q in x.ravel().tolist()]
    else:
        scaled = [requantise(q - 9, multiplier, shift, rounding) - 4 for q in x.ravel().tolist()]
    np.testing.assert_array_equal(result, np.clip(scaled, -4, 100).reshape(x.shape))


@pytest.mark.parametrize("lanes", [(0, 0), (5, 0), (0, 9), (7, 13)])
@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_copy_moves_elements_between_layouts_and_lanes(
    source: Layout, target: Layout, lanes: tuple[int, int]
) -> None:
    x = codes(np.random.default_rng(1), 2, 19, 3, 5)
    first, second = (
        {"layout": layout, "lane": lane if layout is Layout.NCHW16C else 0}
        for layout, lane in zip((source, target), lanes, strict=True)
    )
    operands = {"input": operand(x, **first), "output": operand(x.shape, **second)}
    np.testing.assert_array_equal(Call(Opcode.COPY, operands).run(), x)


def test_copy_reshapes_in_row_major_order_and_repeats_dims_of_one() -> None:
    x = codes(np.random.default_rng(2), 1, 20, 3, 2)
    reshaped = {"input": operand(x), "output": operand((1, 120, 1, 1))}
    np.testing.assert_array_equal(Call(Opcode.COPY, reshaped).run(), x.reshape(1, 120, 1, 1))
    one = {"input": operand(x[:, :, :1]), "output": operand((2, 20, 7, 2))}
    expected = np.broadcast_to(x[:, :, :1], (2, 20, 7, 2))
    np.testing.assert_array_equal(Call(Opcode.COPY, one).run(), expected)
    wrong = {"input": operand(x), "output": operand((1, 20, 4, 2))}
    with pytest.raises(AbiError, match=r"\(1,20,3,2\) neither repeats nor reshapes to"):
        Call(Opcode.COPY, wrong).run()


@pytest.mark.parametrize("rounding", Rounding)
def test_quantize_divides_in_float32_and_rounds_as_the_mode_says(rounding: Rounding) -> None:
    scale = np.float32(0.05)
    ties = (np.arange(-200, 200) + 0.5).astype(np.float32) * scale
    edges = [0.0, -0.0, 1e38, -1e38, math.inf, -math.inf, 1e-45, 0.49999997 * float(scale)]
    x = np.concatenate([ties, np.array(edges, np.float32)]).reshape(1, -1, 2, 2)
    operands = {
        "input": operand(x, dtype=DType.F32, layout=Layout.NCHW),
        "parameters": head(output_scale=float(scale), output_zero_point=-3),
        "output": operand(x.shape),
    }
    result = Call(Opcode.QUANTIZE, operands, rounding=rounding).run()
    with np.errstate(over="ignore"):
        quotients = [float(v / scale) for v in x.ravel()]
    expected = [whole(min(1e9, max(-1e9, q)), rounding) - 3 for q in quotients]
    np.testing.assert_array_equal(result, np.clip(expected, -128, 127).reshape(x.shape))


def whole(value: float, rounding: Rounding) -> int:
    if rounding is Rounding.EVEN:
        return round(value)
    floor = math.floor(abs(value))
    magnitude = floor + (abs(value) - floor >= 0.5)
    return -magnitude if value < 0 else magnitude


def test_dequantize_multiplies_in_float32() -> None:
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 32, 2, 4)
    operands = {
        "input": operand(x),
        "parameters": head(input_scale=0.1, input_zero_point=5),
        "output": operand(x.shape, dtype=DType.F32, layout=Layout.NCHW),
    }
    result = Call(Opcode.DEQUANTIZE, operands).run()
    expected = (x.astype(np.float32) - np.float32(5)) * np.float32(0.1)
    np.testing.assert_array_equal(result, expected)


def softmax(x: Array, scale: float, axis: int, rounding: Rounding) -> Array:
    found = softmax_parameters(scale, rounding)
    fields = {n: getattr(found, n) for n in found.__slots__}
    row = params_words(params(**fields))
    if rounding is Rounding.EVEN:
        table = [float_bits(round(math.exp(-d * scale) * 2**30) / 2**30) for d in range(256)]
        row = np.concatenate([row, np.array(table, np.int32)])
    operands = {"input": operand(x), "parameters": words(row), "output": operand(x.shape)}
    result = Call(Opcode.SOFTMAX, operands, kernel=(axis, 0), rounding=rounding).run()
    assert result is not None
    return result


@pytest.mark.parametrize("rounding", Rounding)
def test_softmax_of_a_sure_winner_saturates_and_does_not_wrap(rounding: Rounding) -> None:
    # C05: real logits [100, 0, 0, 0].
    x = np.array([100, 0, 0, 0], np.int8).reshape(1, 4, 1, 1)
    assert softmax(x, 1.0, 1, rounding).ravel().tolist() == [127, -128, -128, -128]


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax_is_within_one_code_of_the_real_one_along_its_axis(
    axis: int, rounding: Rounding
) -> None:
    x = codes(np.random.default_rng(axis), 2, 19, 6, 5)
    real = np.exp(x.astype(np.float64) * 0.03)
    expected = real / real.sum(axis=axis, keepdims=True) * 256 - 128
    result = softmax(x, 0.03, axis, rounding)
    assert np.abs(result - np.clip(expected, -128, 127)).max() <= 1


def test_softmax_refuses_an_axis_that_is_none() -> None:
    with pytest.raises(AbiError, match="is the axis, 0 to 3, got 4"):
        softmax(np.zeros((1, 4, 1, 1), np.int8), 0.1, 4, Rounding.DOUBLE)


def test_softmax_runs_over_as_many_terms_as_its_sum_holds_and_no_more() -> None:
    """All terms are 1, the most that each can be: the Q12.19 sum of 4,095 does not wrap."""
    most = softmax(np.zeros((1, 1, 1, 4095), np.int8), 0.1, 3, Rounding.DOUBLE)
    assert (most == -128).all()
    with pytest.raises(AbiError, match="has more than 4095 elements"):
        softmax(np.zeros((1, 1, 1, 4096), np.int8), 0.1, 3, Rounding.DOUBLE)


def test_parameters_without_their_head_are_refused() -> None:
    x = np.zeros((1, 4, 1, 1), np.int8)
    operands = {
        "input": operand(x),
        "parameters": words(np.zeros(15, np.int32)),
        "output": operand(x.shape),
    }
    with pytest.raises(AbiError, match=r"parameters are \(1,1,1,15\)"):
        Call(Opcode.RESCALE, operands).run()
