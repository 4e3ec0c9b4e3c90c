"""EVAL, LOOKUP and the kernels of two tensors of codes, against loops over Python numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Opcode, Primitive, Rounding
from npuabi.errors import AbiError, ErrorCode
from npuabi.fixedpoint import add_parameters, get_reciprocal, multiplier_of, quantize_multiplier
from npuabi.postfix import Instruction, decode, encode, lane_ops
from npufw.kernels.primitives import PRIMITIVES
from tests.builders import params, params_words
from tests.unit.npufw.bench import Call, operand, requantise, words

Array = NDArray[Any]
P = Primitive
LAYOUTS = [Layout.NCHW, Layout.NHWC, Layout.NCHW16C]
KINDS: dict[DType, Any] = {
    DType.I8: np.int8,
    DType.I16: np.int16,
    DType.F16: np.float16,
    DType.F32: np.float32,
}
BOTH = pytest.mark.parametrize("dtype", [DType.I8, DType.I16])
INTEGER_MODES = pytest.mark.parametrize("mode", [Rounding.DOUBLE, Rounding.SINGLE])


def codes(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    limits = np.iinfo(KINDS[dtype])
    made = rng.integers(limits.min, limits.max + 1, shape)
    extreme = rng.integers(0, 6, shape) == 0
    return np.where(extreme, rng.choice([limits.min, limits.max], shape), made).astype(KINDS[dtype])


def head(*tail: int, **fields: Any) -> Any:
    row = np.concatenate([params_words(params(**fields)), np.array(tail, np.int64).astype("<i4")])
    return words(row)


def steps(*program: Primitive | float) -> list[Instruction]:
    return [
        Instruction(p) if isinstance(p, Primitive) else Instruction(P.CONSTANT, p) for p in program
    ]


def evaluated(program: list[Instruction], operands: dict[str, Any], **more: Any) -> Array:
    fields = {k: v for k, v in more.items() if k.endswith("zero_point")}
    rest = {k: v for k, v in more.items() if k not in fields}
    given = {**operands, "parameters": head(*encode(program).tolist(), **fields)}
    result = Call(Opcode.EVAL, given, groups=lane_ops(program), **rest).run()
    assert result is not None
    return result


# --- programs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([], "leaves 0 numbers"),
        ([P.X, P.X], "leaves 2 numbers"),
        ([P.ADD], "takes from an empty stack at step 0"),
        ([P.X, P.SELECT], "takes from an empty stack at step 1"),
        ([P.X] * 9 + [P.ADD] * 8, "holds more than 8 numbers at step 8"),
        ([P.CONSTANT], "ends before its last constant"),
        ([0], "has no primitive 0"),
        ([P.X, 99], "has no primitive 99"),
    ],
)
def test_a_program_that_does_not_work_out_is_refused(row: list[int], expected: str) -> None:
    with pytest.raises(AbiError, match=expected) as caught:
        decode(np.array(row, np.int32))
    assert caught.value.code is ErrorCode.BAD_FIELD


def test_a_program_survives_its_words() -> None:
    program = steps(P.X, 0.1, P.MUL, P.Y, P.POW, -math.inf, P.MAX)
    kept = decode(encode(program))
    assert [i.primitive for i in kept] == [i.primitive for i in program]
    assert [i.constant for i in kept] == [float(np.float32(i.constant)) for i in program]


def test_every_primitive_that_computes_has_a_kernel_and_its_arity() -> None:
    assert set(PRIMITIVES) == set(P) - {P.CONSTANT, P.X, P.Y}


EXACT: dict[Primitive, Any] = {
    P.EXP: np.exp,
    P.EXPM1: np.expm1,
    P.LOG: np.log,
    P.LOG1P: np.log1p,
    P.TANH: np.tanh,
    P.SQRT: np.sqrt,
    P.ERF: np.vectorize(math.erf),
    P.ERFC: np.vectorize(math.erfc),
}


@pytest.mark.parametrize("primitive", EXACT)
def test_series_are_within_ten_units_in_the_last_place(primitive: Primitive) -> None:
    rng = np.random.default_rng(primitive)
    parts = [rng.normal(0, s, 400) for s in (1e-3, 0.1, 1.0, 3.0, 20.0)]
    x = np.concatenate([*parts, [0.0, -0.0]]).astype(np.float32)
    if primitive in (P.LOG, P.LOG1P, P.SQRT):
        x = np.abs(x)
    with np.errstate(all="ignore"):
        exact = EXACT[primitive](x.astype(np.float64))
    found = evaluated(
        steps(P.X, primitive),
        {
            "input": operand(x[None, :, None, None], dtype=DType.F32),
            "output": operand((1, x.size, 1, 1), dtype=DType.F32),
        },
    ).ravel()
    normal = np.isfinite(exact) & (np.abs(exact) > 1e-37)
    step = np.spacing(np.abs(exact[normal]).astype(np.float32))
    assert (np.abs(found[normal].astype(np.float64) - exact[normal]) / step).max() <= 10
    assert np.array_equal(found[~np.isfinite(exact)], exact[~np.isfinite(exact)].astype(np.float32))


# --- eval -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
def test_eval_broadcasts_and_rounds_numbers_once(dtype: DType, layout: Layout) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(0, 3, (2, 19, 3, 5)).astype(KINDS[dtype])
    y = rng.normal(0, 3, (1, 19, 1, 1)).astype(np.float32)
    operands = {
        "input": operand(x, dtype=dtype, layout=layout),
        "residual": operand(y, dtype=DType.F32, layout=layout),
        "output": operand(x.shape, dtype=dtype, layout=layout),
    }
    found = evaluated(steps(P.X, P.Y, P.MUL, P.Y, 3.0, P.DIV, P.SUB), operands)
    expected = x.astype(np.float32) * y - y / np.float32(3)
    assert np.array_equal(found, expected.astype(KINDS[dtype]))


@BOTH
@pytest.mark.parametrize("mode", Rounding)
def test_eval_of_codes_rounds_by_the_mode_and_holds_the_clamp(mode: Rounding, dtype: DType) -> None:
    x = codes(np.random.default_rng(2), dtype, 1, 17, 4, 3)
    operands = {"input": operand(x, dtype=dtype), "output": operand(x.shape, dtype=dtype)}
    zero = 3 if dtype is DType.I8 else 0
    found = evaluated(
        steps(P.X, 0.5, P.MUL),
        operands,
        rounding=mode,
        clamp=(-100, 90),
        input_zero_point=zero,
        output_zero_point=-2 * zero,
    )
    for place in np.ndindex(*x.shape):
        half = (int(x[place]) - zero) / 2
        away = math.floor(abs(half) + 0.5) * (1 if half > 0 else -1)
        whole = round(half) if mode is Rounding.EVEN else away
        assert found[place] == min(90, max(-100, whole - 2 * zero))


def test_eval_makes_no_number_the_zero_point_and_ends_of_infinities() -> None:
    x = np.array([-1.0, 0.0, 4.0], np.float32).reshape(1, 3, 1, 1)
    operands = {"input": operand(x, dtype=DType.F32), "output": operand((1, 3, 1, 1))}
    found = evaluated(steps(P.X, P.LOG), operands, output_zero_point=5)
    assert found.ravel().tolist() == [5, -128, 6]
    found = evaluated(steps(1.0, P.X, P.DIV), operands, output_zero_point=5)
    assert found.ravel().tolist() == [4, 127, 5]


def test_eval_refuses_a_program_of_other_cost_or_without_its_second_operand() -> None:
    x = np.zeros((1, 3, 1, 1), np.float32)
    operands = {
        "input": operand(x, dtype=DType.F32),
        "output": operand(x.shape, dtype=DType.F32),
        "parameters": head(*encode(steps(P.X, P.EXP)).tolist()),
    }
    with pytest.raises(AbiError, match="groups is 7, the program takes 8"):
        Call(Opcode.EVAL, operands, groups=7).run()
    operands["parameters"] = head(*encode(steps(P.Y)).tolist())
    with pytest.raises(AbiError, match="reads a second operand"):
        Call(Opcode.EVAL, operands, groups=1).run()


# --- lookup -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lookup_takes_the_entry_of_each_byte(layout: Layout) -> None:
    rng = np.random.default_rng(3)
    table, x = codes(rng, DType.I8, 256), codes(rng, DType.I8, 2, 33, 3, 5)
    operands = {
        "input": operand(x, layout=layout),
        "output": operand(x.shape, layout=layout),
        "parameters": head(*table.view("<i4").tolist()),
    }
    found = Call(Opcode.LOOKUP, operands).run()
    assert found is not None
    assert all(found[i] == table[int(x[i]) % 256] for i in np.ndindex(*x.shape))


def test_lookup_of_i16_draws_a_line_between_entries() -> None:
    rng = np.random.default_rng(4)
    table, x = codes(rng, DType.I16, 513), codes(rng, DType.I16, 1, 40, 5, 5)
    operands = {
        "input": operand(x, dtype=DType.I16),
        "output": operand(x.shape, dtype=DType.I16),
        "parameters": head(*np.append(table, np.int16(0)).view("<i4").tolist()),
    }
    found = Call(Opcode.LOOKUP, operands).run()
    assert found is not None
    for place in np.ndindex(*x.shape):
        index, rest = divmod(int(x[place]) + 32768, 128)
        low, high = int(table[index]), int(table[index + 1])
        assert found[place] == low + math.floor((high - low) * rest / 128 + 0.5)


@pytest.mark.parametrize(("form", "bits"), [(2, 9), (3, 8)])
def test_lookup_of_sigmoid_and_tanh_is_symmetric(form: int, bits: int) -> None:
    rng = np.random.default_rng(11)
    table = np.sort(rng.integers(32768, 65536, 256)).astype(np.uint16)
    x = codes(rng, DType.I16, 1, 40, 5, 5)
    operands = {
        "input": operand(x, dtype=DType.I16),
        "output": operand(x.shape, dtype=DType.I16),
        "parameters": head(*table.view("<i4").tolist(), input_multiplier=20000, input_shift=-13),
    }
    found = Call(Opcode.LOOKUP, operands, kernel=(form, 1)).run()
    assert found is not None
    for place in np.ndindex(*x.shape):
        scaled = (int(x[place]) * 20000 + 4096) >> 13
        index, rest = divmod(abs(scaled), 1 << bits)
        if index >= 255:
            value = 0x7FFF << 10 if form == 2 else 0xFFFF << 8
        else:
            low, high = int(table[index]), int(table[index + 1])
            value = (low << bits) + rest * (high - low)
        if form == 2:
            expected = (value + 512 if scaled >= 0 else (1 << 25) - value + 511) >> 10
        else:
            value -= 1 << 23
            expected = (value + 128 if scaled >= 0 else -value + 127) >> 8
        assert found[place] == expected


# --- pairs of codes ---------------------------------------------------------------------------


class Pair:
    """Two random tensors, the second one broadcast along rows, and their zero points."""

    def __init__(self, dtype: DType, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.a, self.b = codes(rng, dtype, 2, 19, 3, 5), codes(rng, dtype, 2, 19, 1, 5)
        narrow = dtype is DType.I8
        self.za, self.zb, self.zo = (int(z) * narrow for z in rng.integers(-128, 128, 3))
        self.scales = np.exp(rng.uniform(-5, -1, 3)).astype(np.float32).astype(np.float64).tolist()

    def run(self, opcode: Opcode, mode: Rounding, **fields: int) -> Array:
        limits = np.iinfo(KINDS[self.dtype])
        operands = {
            "input": operand(self.a, dtype=self.dtype),
            "residual": operand(self.b, dtype=self.dtype),
            "output": operand(self.a.shape, dtype=self.dtype),
            "parameters": head(
                input_zero_point=self.za,
                residual_zero_point=self.zb,
                output_zero_point=self.zo,
                **fields,
            ),
        }
        if opcode in (Opcode.MINIMUM, Opcode.MAXIMUM):
            del operands["parameters"]
        clamp = (int(limits.min), int(limits.max))
        found = Call(opcode, operands, rounding=mode, clamp=clamp).run()
        assert found is not None
        return found

    def check(self, found: Array, rule: Any) -> None:
        limits = np.iinfo(KINDS[self.dtype])
        wide = np.broadcast_to(self.b, self.a.shape)
        for place in np.ndindex(*self.a.shape):
            value = rule(int(self.a[place]) - self.za, int(wide[place]) - self.zb) + self.zo
            assert found[place] == min(limits.max, max(limits.min, value)), place


@BOTH
@INTEGER_MODES
def test_sub_scales_both_operands_and_the_difference(mode: Rounding, dtype: DType) -> None:
    pair = Pair(dtype, 5)
    sa, sb, so = pair.scales
    found = add_parameters(sa, sb, so, mode)
    left = 20 if dtype is DType.I8 else 15
    out = quantize_multiplier(2 * max(sa, sb) / ((1 << left) * so))
    one = (found.input_multiplier, found.input_shift)
    two = (found.residual_multiplier, found.residual_shift)
    names = ("input", "residual", "output")
    fields = {
        f"{name}_{word}": value
        for name, pairs in zip(names, (one, two, out), strict=True)
        for word, value in zip(("multiplier", "shift"), pairs, strict=True)
    }
    result = pair.run(Opcode.SUB, mode, left_shift=left, **fields)
    pair.check(
        result,
        lambda x, y: requantise(
            requantise(x << left, *one, mode) - requantise(y << left, *two, mode), *out, mode
        ),
    )


@BOTH
@pytest.mark.parametrize("mode", Rounding)
def test_mul_rescales_the_product(mode: Rounding, dtype: DType) -> None:
    pair = Pair(dtype, 6)
    scale = 0.01 if dtype is DType.I8 else 3e-5
    multiplier, shift = multiplier_of(scale, mode)
    result = pair.run(Opcode.MUL, mode, output_multiplier=multiplier, output_shift=shift)
    factor = np.float32(scale)

    def rule(x: int, y: int) -> int:
        if mode is not Rounding.EVEN:
            return requantise(x * y, multiplier, shift, mode)
        return int(np.rint(np.float32(x * y) * factor + np.float32(pair.zo))) - pair.zo

    pair.check(result, rule)


@BOTH
@INTEGER_MODES
def test_div_multiplies_by_the_reciprocal_and_saturates_at_zero(
    mode: Rounding, dtype: DType
) -> None:
    pair = Pair(dtype, 7)
    pair.b[:, :3] = pair.zb
    pair.a[:, 1] = pair.za
    multiplier, shift = quantize_multiplier(13.7)

    def rule(x: int, y: int) -> int:
        if y == 0:
            return (x > 0) * 99999 - (x < 0) * 99999
        x, y = (-x, -y) if y < 0 else (x, y)
        reciprocal, bits = get_reciprocal(y, 31)
        room = 31 - (x if x >= 0 else ~x).bit_length()
        high = ((x << room) * int(reciprocal) + (1 << 30)) >> 31
        return requantise(high, multiplier, shift - int(bits) - room, mode)

    pair.check(pair.run(Opcode.DIV, mode, output_multiplier=multiplier, output_shift=shift), rule)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("opcode", "rule"), [(Opcode.MINIMUM, min), (Opcode.MAXIMUM, max)])
def test_minimum_and_maximum_compare_what_is_stored(
    opcode: Opcode, rule: Any, dtype: DType
) -> None:
    rng = np.random.default_rng(8)
    x, y = (rng.normal(0, 40, shape).astype(KINDS[dtype]) for shape in ((2, 17, 3, 1), (17, 3, 4)))
    operands = {
        "input": operand(x, dtype=dtype),
        "residual": operand(y[None], dtype=dtype),
        "output": operand((2, 17, 3, 4), dtype=dtype),
    }
    found = Call(opcode, operands).run()
    assert found is not None
    wide = np.broadcast_to(x, found.shape)
    assert all(found[i] == rule(wide[i], y[i[1:]]) for i in np.ndindex(*found.shape))


@BOTH
@INTEGER_MODES
@pytest.mark.parametrize("slopes", [True, False])
def test_prelu_has_a_scale_for_each_side(slopes: bool, mode: Rounding, dtype: DType) -> None:
    rng = np.random.default_rng(9)
    x, slope = codes(rng, dtype, 1, 19, 3, 5), codes(rng, DType.I8, 1, 19, 1, 1)
    zx, zs, zo = (11, -5, 7) if dtype is DType.I8 else (0, -5, 0)
    above, below = quantize_multiplier(0.6), quantize_multiplier(0.013)
    operands = {
        "input": operand(x, dtype=dtype),
        "output": operand(x.shape, dtype=dtype),
        "parameters": head(
            input_zero_point=zx,
            residual_zero_point=zs if slopes else 0,
            output_zero_point=zo,
            input_multiplier=above[0],
            input_shift=above[1],
            residual_multiplier=-below[0],
            residual_shift=below[1],
        ),
    }
    if slopes:
        operands["residual"] = operand(slope)
    limits = np.iinfo(KINDS[dtype])
    clamp = (int(limits.min), int(limits.max))
    found = Call(Opcode.PRELU, operands, rounding=mode, clamp=clamp).run()
    assert found is not None
    for place in np.ndindex(*x.shape):
        value = int(x[place]) - zx
        factor = int(slope[0, place[1], 0, 0]) - zs if slopes else 1
        negative = requantise(value * factor, -below[0], below[1], mode)
        expected = requantise(value, *above, mode) if value >= 0 else negative
        assert found[place] == min(limits.max, max(limits.min, expected + zo))


@pytest.mark.parametrize("opcode", [Opcode.SUB, Opcode.DIV, Opcode.PRELU])
def test_opcodes_without_a_rule_for_even_are_refused(opcode: Opcode) -> None:
    with pytest.raises(AbiError, match="no rule for rounding even") as caught:
        Pair(DType.I8, 10).run(opcode, Rounding.EVEN)
    assert caught.value.code is ErrorCode.BAD_PRECISION
