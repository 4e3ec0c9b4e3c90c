"""REDUCE, ARGMAX and LOG_SOFTMAX against loops, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Opcode, Precision, Rounding
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import log_softmax_parameters, multiplier_of, real_words
from npufw.errors import FirmwareError
from tests.builders import params, params_words
from tests.unit.npufw.bench import Call, operand, requantise, words

Array = NDArray[Any]
LAYOUTS = [Layout.NCHW, Layout.NHWC, Layout.NCHW16C]
PRECISION = {
    DType.I8: Precision.INT8,
    DType.I16: Precision.INT16,
    DType.F16: Precision.FP16,
    DType.F32: Precision.FP32,
}
CLAMPS = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}
SUM, MAX = 1, 2


def numbers(rng: np.random.Generator, dims: tuple[int, ...], dtype: DType) -> Array:
    if dtype in (DType.F16, DType.F32):
        return rng.normal(0.3, 1.0, dims).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return rng.integers(limits.min, limits.max + 1, dims).astype(dtype.numpy)


class Case:
    """Random dims, of which some are reduced, in one of the layouts."""

    def __init__(self, seed: int, dtype: DType) -> None:
        rng = np.random.default_rng(seed)
        self.dtype, self.rounding, self.layout = dtype, list(Rounding)[seed % 3], LAYOUTS[seed % 3]
        self.dims = tuple(int(v) for v in rng.integers(1, (4, 35, 6, 9)))
        axes = rng.choice(4, int(rng.integers(1, 5)), replace=False)
        self.out = tuple(1 if i in axes else d for i, d in enumerate(self.dims))
        self.x = numbers(rng, self.dims, dtype)
        self.count = math.prod(self.dims) // math.prod(self.out)
        self.zero = int(rng.integers(-100, 100)) if dtype is DType.I8 else 0
        self.real = float(rng.uniform(0.1, 0.9)) / math.sqrt(self.count)

    def call(self, kind: int, out: DType | None = None, **more: Any) -> Call:
        multiplier, shift = multiplier_of(self.real, self.rounding)
        head = params(output_zero_point=3, input_multiplier=multiplier, input_shift=shift)
        floats = self.dtype in (DType.F16, DType.F32)
        tail = (
            np.array(real_words(float(self.count)), np.int32)
            if floats
            else np.array([-self.count * self.zero], np.int64).view(np.int32)
        )
        kept = out or self.dtype
        operands = {
            "input": operand(self.x, dtype=self.dtype, layout=self.layout),
            "parameters": words(np.concatenate([params_words(head), tail])),
            "output": operand(self.out, dtype=kept, layout=self.layout),
        }
        fields = {"kernel": (kind, 0), "clamp": CLAMPS.get(kept, (0, 0)), **more}
        return Call(
            Opcode.REDUCE,
            operands,
            rounding=self.rounding,
            precision=PRECISION[self.dtype],
            **fields,
        )

    def members(self, place: tuple[int, ...]) -> list[Any]:
        at = tuple(slice(None) if n == 1 else p for p, n in zip(place, self.out, strict=True))
        return np.ravel(self.x[at]).tolist()


@pytest.mark.parametrize("dtype", [DType.I8, DType.I16])
@pytest.mark.parametrize("seed", range(9))
def test_sums_of_codes_equal_the_loop(seed: int, dtype: DType) -> None:
    case = Case(seed, dtype)
    result = case.call(SUM).run()
    assert result is not None
    factor = multiplier_of(case.real, case.rounding)
    for place in np.ndindex(*case.out):
        total = sum(v - case.zero for v in case.members(place))
        low, high = CLAMPS[dtype]
        code = requantise(total, *factor, case.rounding) + 3
        assert result[place] == min(max(code, low), high), place


@pytest.mark.parametrize("dtype", list(PRECISION))
@pytest.mark.parametrize("seed", range(3))
def test_maxima_and_raw_sums_equal_the_loop(seed: int, dtype: DType) -> None:
    case = Case(seed, dtype)
    largest = case.call(MAX).run()
    raw = None if dtype in (DType.F16, DType.F32) else case.call(SUM, DType.I64).run()
    assert largest is not None
    for place in np.ndindex(*case.out):
        assert largest[place] == max(case.members(place))
        assert raw is None or raw[place] == sum(case.members(place))


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
@pytest.mark.parametrize("seed", range(4))
def test_means_of_floats_stay_within_the_stated_bound(seed: int, dtype: DType) -> None:
    case = Case(seed, dtype)
    result = case.call(SUM).run()
    assert result is not None
    for place in np.ndindex(*case.out):
        members = np.array(case.members(place), np.float64)
        exact = members.mean()
        half = float(np.spacing(abs(np.array(exact, dtype.numpy)))) / 2
        bound = 4 * case.count * 2.0**-24 * abs(members).mean() + half
        assert abs(float(result[place]) - exact) <= bound


@pytest.mark.parametrize("dtype", list(PRECISION))
@pytest.mark.parametrize("axis", range(4))
def test_argmax_finds_the_first_or_the_last(axis: int, dtype: DType) -> None:
    rng = np.random.default_rng(axis)
    x = rng.integers(-3, 4, (3, 19, 4, 5)).astype(dtype.numpy)
    out = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    for last in (0, 1):
        operands = {"input": operand(x, dtype=dtype), "output": operand(out, dtype=DType.I64)}
        call = Call(Opcode.ARGMAX, operands, kernel=(axis, last), precision=PRECISION[dtype])
        result = call.run()
        assert result is not None
        for place in np.ndindex(*out):
            lines = np.moveaxis(x, axis, -1)
            line = [float(v) for v in lines[without(place, axis)]]
            best = [i for i, v in enumerate(line) if v == max(line)]
            assert result[place] == best[-1 if last else 0]


def without(place: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return place[:axis] + place[axis + 1 :]


@pytest.mark.parametrize("mode", [Rounding.DOUBLE, Rounding.SINGLE])
@pytest.mark.parametrize("axis", range(4))
def test_log_softmax_of_codes_is_within_a_step(axis: int, mode: Rounding) -> None:
    rng = np.random.default_rng(axis)
    x, scale = numbers(rng, (3, 20, 4, 7), DType.I8), 0.06
    found = log_softmax_parameters(scale, mode)
    fields = {name: getattr(found, name) for name in type(found).__slots__}
    head = params(output_zero_point=127, input_scale=scale, output_scale=1 / 16, **fields)
    operands = {"input": operand(x), "parameters": words(params_words(head)),
                "output": operand(x.shape)}  # fmt: skip
    result = Call(Opcode.LOG_SOFTMAX, operands, rounding=mode, kernel=(axis, 0)).run()
    assert result is not None
    real = x.astype(np.float64) * scale
    below = real - real.max(axis=axis, keepdims=True)
    exact = below - np.log(np.exp(below).sum(axis=axis, keepdims=True))
    assert np.abs(np.clip(exact * 16 + 127, -128, 127) - result).max() <= 1


@pytest.mark.parametrize(
    ("kind", "out", "fields", "code"),
    [
        (3, None, {}, ErrorCode.BAD_WINDOW),
        (SUM, DType.F32, {"clamp": (0, 0)}, ErrorCode.BAD_DTYPE),
        (MAX, DType.I32, {}, ErrorCode.BAD_DTYPE),
        (SUM, None, {"kernel": (1, 2)}, ErrorCode.BAD_WINDOW),
    ],
)
def test_reductions_that_make_no_sense_are_refused(
    kind: int, out: DType | None, fields: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(FirmwareError) as caught:
        Case(1, DType.I8).call(kind, out, **fields).run()
    assert caught.value.code is code
