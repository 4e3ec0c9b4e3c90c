"""Layers of int16 and of floats: extremes one by one, ranges of K, float bounds, rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Mode, Opcode, Precision, Rounding, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import multiplier_of
from npuabi.records import FloatParams
from npufw.errors import FirmwareError
from npufw.kernels.base import Sums
from tests.builders import params, params_words
from tests.unit.npufw.bench import Call, Operand, operand, words

Array = NDArray[Any]
WHOLE = ToaFlag.CLEAR | ToaFlag.WRITE
LOW, HIGH = -32768, 32767


def narrow(acc: int, multiplier: int, shift: int, rounding: Rounding) -> int:
    """Return LiteRT's MultiplyByQuantizedMultiplier(int64), or the float32 rule, of one sum."""
    if rounding is Rounding.EVEN:
        return int(np.rint(np.float32(acc) * np.int32(multiplier).view(np.float32)))
    reduced = (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    return (acc * reduced + (1 << (14 - shift))) >> (15 - shift)


def wide_words(bias: Array, multiplier: Array, shift: Array) -> Operand:
    """Return the parameters of an int16 layer: 64-bit biases, low words before high words."""
    count = -(-len(bias) // 16)
    blocks = np.zeros((count, 4, 16), np.int32)
    low = (bias & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    for row, values in enumerate((low, bias >> 32, multiplier, shift)):
        padded = np.zeros(count * 16, np.int64)
        padded[: len(bias)] = values
        blocks[:, row] = padded.reshape(count, 16)
    return words(np.concatenate([params_words(params()), blocks.ravel()]))


def float_words(bias: Array, **bounds: float) -> Operand:
    """Return the parameters of a float layer."""
    ends = {"low": -np.inf, "high": np.inf, "inner_low": -np.inf, "inner_high": np.inf}
    head = np.frombuffer(FloatParams(**{**ends, **bounds}).encode(), "<i4")
    padded = np.zeros(-(-len(bias) // 16) * 16, "<f4")
    padded[: len(bias)] = bias
    return words(np.concatenate([head, padded.view("<i4")]))


def conv(x: Array, w: Array, parameters: Operand, dtype: DType, **more: Any) -> Call:
    """Return a 1x1 convolution of N, C, H, W by O, C."""
    kind = DType.I8 if dtype is DType.I16 else dtype
    shape = (x.shape[0], w.shape[0], *x.shape[2:])
    operands = {
        "input": operand(x, dtype=dtype),
        "weights": operand(w[:, :, None, None], dtype=kind, layout=Layout.OIHW16I16O),
        "parameters": parameters,
        "output": operand(shape, dtype=dtype),
        **more.pop("operands", {}),
    }
    fields: dict[str, Any] = {"unit": Unit.MAC, "mode": Mode.WEIGHT_STATIONARY}
    if dtype is DType.I16:
        fields |= {"flags": WHOLE | ToaFlag.WIDE, "clamp": (LOW, HIGH)}
    return Call(Opcode.CONV, operands, **{**fields, **more})


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("depth", [1, 40, 5000])
def test_int16_sums_are_exact_at_the_extremes(depth: int, rounding: Rounding) -> None:
    rng = np.random.default_rng(depth)
    x = rng.choice(np.array([LOW, HIGH, -1, 12345], np.int16), (1, depth, 1, 5))
    w = rng.choice(np.array([-128, 127, 1], np.int8), (18, depth))
    x[..., 0], w[0] = LOW, -128
    bias = rng.integers(-(1 << 45), 1 << 45, 18)
    bias[1:4] = [(1 << 45) + 7, -(1 << 31) - 1, -1]
    scales = 2.0 ** rng.uniform(-30, -14, 18)
    pairs = [multiplier_of(float(s), rounding) for s in scales]
    multiplier, shift = (np.array(column) for column in zip(*pairs, strict=True))
    found = conv(x, w, wide_words(bias, multiplier, shift), DType.I16, rounding=rounding).run()
    sums = np.einsum("nchw,oc->nohw", x.astype(object), w.astype(object))
    assert found is not None
    for (n, o, h, i), total in np.ndenumerate(sums):
        scaled = narrow(int(total) + int(bias[o]), *pairs[o], rounding)
        assert found[n, o, h, i] == max(LOW, min(HIGH, scaled))


def test_ranges_of_k_give_the_bits_of_the_whole_at_int16() -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(LOW, HIGH, (1, 48, 1, 30)).astype(np.int16)
    w = rng.integers(-128, 128, (16, 48)).astype(np.int8)
    parameters = wide_words(
        rng.integers(-(1 << 40), 1 << 40, 16), np.full(16, 1 << 30), np.full(16, -9)
    )
    whole = conv(x, w, parameters, DType.I16).run()
    sums = Sums()
    wide = ToaFlag.WIDE
    parts = [
        (slice(16), ToaFlag.CLEAR),
        (slice(16, 32), ToaFlag(0)),
        (slice(32, 48), ToaFlag.WRITE),
    ]
    for part, flags in parts:
        found = conv(x[:, part], w[:, part], parameters, DType.I16, sums=sums, flags=flags | wide)
        last = found.run()
    assert np.array_equal(np.asarray(last), np.asarray(whole))


@pytest.mark.parametrize("cut", [None, 32])
@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
def test_float_sums_lie_within_their_bound(dtype: DType, cut: int | None) -> None:
    rng = np.random.default_rng(9)
    depth = 300
    x = rng.normal(0, 3, (1, depth, 2, 20)).astype(dtype.numpy)
    w = (rng.normal(0, 1, (20, depth)) * 10.0 ** rng.integers(-3, 2, (20, 1))).astype(dtype.numpy)
    bias = rng.normal(0, 50, 20).astype(np.float32)
    parameters = float_words(bias, low=-40.0, high=1e30)
    if cut is None:
        found = conv(x, w, parameters, dtype, clamp=(0, 0)).run()
    else:
        sums = Sums()
        first = conv(x[:, :cut], w[:, :cut], parameters, dtype, clamp=(0, 0), sums=sums,
                     flags=ToaFlag.CLEAR)  # fmt: skip
        assert first.run() is None
        found = conv(x[:, cut:], w[:, cut:], parameters, dtype, clamp=(0, 0), sums=sums,
                     flags=ToaFlag.WRITE).run()  # fmt: skip
    left, right = x.astype(np.float64), w.astype(np.float64)
    exact = np.einsum("nchw,oc->nohw", left, right) + bias[:, None, None]
    size = np.einsum("nchw,oc->nohw", abs(left), abs(right)) + abs(bias[:, None, None])
    wanted = np.maximum(exact, -40.0)
    half = np.spacing(abs(wanted).astype(dtype.numpy)).astype(np.float64) / 2
    assert (abs(np.asarray(found, np.float64) - wanted) <= 4 * depth * 2.0**-24 * size + half).all()


def test_a_float_residual_is_added_to_the_clamped_result() -> None:
    x, w = np.array([[[[3.0, -2.0]]]], np.float16), np.array([[2.0]], np.float16)
    added = operand(np.array([[[[0.5, 0.25]]]], np.float16), dtype=DType.F16)
    bounds = float_words(np.array([1.0]), inner_low=0.0, low=0.4, high=6.5)
    call = conv(x, w, bounds, DType.F16, operands={"residual": added}, clamp=(0, 0),
                flags=WHOLE | ToaFlag.RESIDUAL)  # fmt: skip
    assert np.asarray(call.run()).ravel().tolist() == [6.5, float(np.float16(0.4))]


def test_fp16_overflows_to_infinity_and_a_nan_stays_one() -> None:
    x, w = np.array([[[[300.0, np.nan]]]], np.float16), np.array([[300.0]], np.float16)
    found = np.asarray(conv(x, w, float_words(np.zeros(1)), DType.F16, clamp=(0, 0)).run())
    assert found[0, 0, 0, 0] == np.inf
    assert np.isnan(found[0, 0, 0, 1])


def i16(**more: Any) -> Call:
    parameters = wide_words(np.zeros(1, np.int64), np.ones(1), np.zeros(1))
    return conv(np.ones((1, 1, 1, 1), np.int16), np.ones((1, 1), np.int8), parameters, DType.I16,
                **more)  # fmt: skip


def f16(**more: Any) -> Call:
    one = np.ones((1, 1, 1, 1), np.float16)
    return conv(one, one[0, 0], float_words(np.zeros(1)), DType.F16, **{"clamp": (0, 0), **more})


def byte_weights() -> dict[str, Operand]:
    return {"weights": operand(np.ones((1, 1, 1, 1), np.int8), layout=Layout.OIHW16I16O)}


RULES: list[tuple[Any, dict[str, Any], ErrorCode, str]] = [
    (i16, {"flags": WHOLE}, ErrorCode.BAD_PRECISION, "sums of i16 are wide"),
    (i16, {"precision": Precision.INT8}, ErrorCode.BAD_PRECISION, "says int8, the operands are"),
    (f16, {"precision": Precision.FP32}, ErrorCode.BAD_PRECISION, "says fp32, the operands are"),
    (f16, {"flags": WHOLE | ToaFlag.WIDE}, ErrorCode.BAD_PRECISION, "neither wide nor real"),
    (f16, {"flags": WHOLE | ToaFlag.REAL}, ErrorCode.BAD_PRECISION, "neither wide nor real"),
    (f16, {"clamp": (0, 1)}, ErrorCode.BAD_SCALE, "no range of f16"),
    (f16, {"operands": byte_weights()}, ErrorCode.BAD_DTYPE, "expected f16 beside f16"),
    (f16, {"operands": {"parameters": words(np.zeros(112, np.int32))}}, ErrorCode.BAD_DIMS,
     "parameters are"),
    (f16, {"operands": {"parameters": float_words(np.zeros(1), low=np.nan)}},
     ErrorCode.BAD_MULTIPLIER, "low is no number"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "change", "code", "text"), RULES)
def test_a_layer_that_breaks_a_rule_of_its_precision_is_refused(
    make: Any, change: dict[str, Any], code: ErrorCode, text: str
) -> None:
    with pytest.raises(FirmwareError) as caught:
        make(**change).run()
    assert caught.value.code is code, caught.value
    assert text in caught.value.detail


def test_what_the_rules_are_held_against_runs() -> None:
    assert np.asarray(i16().run()).tolist() == [[[[0]]]]
    assert np.asarray(f16().run()).tolist() == [[[[1.0]]]]
