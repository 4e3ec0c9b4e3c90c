"""Reductions, argmax and log_softmax: rules on codes against scalar loops, shapes, refusals."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.logsoftmax import RESULTS
from npuc.ops import ArgMax, LogSoftmax, ReduceMax, ReduceMean, ReduceSum
from npuc.ops.example import floats
from tests.unit.npuc.ops.test_integer_values import away, held

MODES = list(Rounding)
DTYPES = [DType.I8, DType.I16]
SUMS = [pytest.param(e, id=f"{c.NAME}-{i}")
        for c in (ReduceMean, ReduceSum) for i, e in enumerate(c.examples())]  # fmt: skip


def quantised(example: Any, dtype: DType, target: Quant | None = None) -> Any:
    """Return *example* on codes, with parameters of its own or those given."""
    step = 1 if dtype is DType.I8 else 1 / 256
    zero = (11, -7) if dtype is DType.I8 else (0, 0)
    source = Quant.per_tensor(0.04 * step, zero[0])
    x = Value("x", TensorType(example.x.tensor.dims, dtype, source))
    made = target or Quant.per_tensor(0.03 * step, zero[1])
    result = TensorType(example.result.tensor.dims, dtype, made)
    op = type(example)([x], example.attributes, result_types=[result])
    op.verify()
    return op


def contents(op: Any, seed: int) -> Any:
    limits = np.iinfo(op.x.tensor.numpy)
    rng = np.random.default_rng(seed)
    made = rng.integers(limits.min, limits.max + 1, op.x.tensor.dims)
    return made.astype(op.x.tensor.numpy)


def scaled(total: int, count: int, ratio: float, mode: Rounding, mean: bool) -> int:
    """Return LiteRT's sum or mean: the multiplier of *ratio*, divided by the count in integers."""
    fraction, shift = math.frexp(ratio)
    q31 = math.floor(fraction * 2**31 + 0.5)
    if mean:
        bits = min(count.bit_length() - 1, 32, 31 + shift)
        q31, shift = (q31 << bits) // count, shift - bits
    if mode is Rounding.SINGLE:
        return (total * q31 + (1 << (30 - shift))) >> (31 - shift)
    high = ((total << max(shift, 0)) * q31 + (1 << 30)) >> 31
    return away(high, 1 << max(-shift, 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("example", SUMS)
def test_sums_and_means_equal_the_loop(example: Any, mode: Rounding, dtype: DType) -> None:
    op = quantised(example, dtype)
    x = contents(op, 6)
    (y,) = op.reference([x], mode)
    kept = y.reshape(op.kept)
    source, target = op.x.tensor.quant, op.result.tensor.quant
    mean, limits = isinstance(op, ReduceMean), np.iinfo(y.dtype)
    for place in np.ndindex(kept.shape):
        at = tuple(slice(None) if i in op.reduced else p for i, p in enumerate(place))
        members = [int(v) - source.zero_point for v in np.ravel(x[at])]
        total, count = sum(members), len(members)
        small, large = np.float32(source.scale), np.float32(target.scale)
        if mode is Rounding.EVEN:
            scale = small / (large * np.float32(count)) if mean else small / large
            code = round(float(np.float32(total) * scale))
        else:
            code = scaled(total, count, float(small) / float(large), mode, mean)
        expected = held(code + target.zero_point, int(limits.min), int(limits.max))
        assert kept[place] == expected, place


@pytest.mark.parametrize(
    "example", list(ReduceMax.examples()), ids=lambda op: str(op.result.tensor)
)
def test_maxima_are_codes_of_the_operand(example: Any) -> None:
    op = quantised(example, DType.I8, Quant.per_tensor(0.04, 11))
    x = contents(op, 7)
    (y,) = op.reference([x], Rounding.EVEN)
    assert np.array_equal(y.reshape(op.kept), x.max(axis=op.reduced, keepdims=True))


def test_argmax_takes_the_first_or_the_last_of_equal_elements() -> None:
    x = np.array([[3, 9, 9, 1], [-5, -5, -5, -5]], np.int8)
    for last, expected in ((0, [1, 0]), (1, [2, 3])):
        op = ArgMax([floats("x", 2, 4)], {"axis": -1, "keepdims": 0, "select_last_index": last})
        assert op.result.tensor.dtype is DType.I64
        assert op.reference([x], Rounding.DOUBLE)[0].tolist() == expected


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ({}, (1, 1, 1)),
        ({"keepdims": 0}, ()),
        ({"axes": []}, (1, 1, 1)),
        ({"noop_with_empty_axes": 1}, (2, 3, 4)),
        ({"axes": [-1, 0]}, (1, 3, 1)),
        ({"axes": [1], "keepdims": 0}, (2, 4)),
    ],
)
def test_axes_say_what_is_reduced(attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    op = ReduceSum([floats("x", 2, 3, 4)], attributes)
    (y,) = op.reference([x], Rounding.DOUBLE)
    assert op.result.tensor.shape == y.shape == shape
    assert y.sum() == x.sum()


# --- log_softmax ------------------------------------------------------------------------------


def log_softmax(dtype: DType, scale: float, shape: tuple[int, ...], axis: int) -> Op:
    zero = 5 if dtype is DType.I8 else 0
    x = Value("x", TensorType(shape, dtype, Quant.per_tensor(scale, zero)))
    op = LogSoftmax([x], {"axis": axis}, result_types=[TensorType(shape, dtype, RESULTS[dtype])])
    op.verify()
    return op


@pytest.mark.parametrize("scale", [0.003, 0.05, 0.7])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_log_softmax_is_within_a_step_of_float64(
    mode: Rounding, dtype: DType, scale: float
) -> None:
    step = scale if dtype is DType.I8 else scale / 256
    op = log_softmax(dtype, step, (6, 33, 4), 1)
    x = contents(op, 8)
    (y,) = op.reference([x], mode)
    real = x.astype(np.float64) * step
    below = real - real.max(axis=1, keepdims=True)
    exact = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    result, limits = RESULTS[dtype], np.iinfo(y.dtype)
    steps = np.clip(exact / result.scale + result.zero_point, limits.min, limits.max)
    assert np.abs(y - steps).max() <= (1 if mode is not Rounding.EVEN else 0.5 + 1e-6)


@pytest.mark.parametrize(
    ("dtype", "mode"), [(DType.I8, Rounding.EVEN), *((DType.I16, mode) for mode in MODES)]
)
def test_log_softmax_by_tables_equals_the_loop(dtype: DType, mode: Rounding) -> None:
    scale = 0.02 if dtype is DType.I8 else 0.0003
    op = log_softmax(dtype, scale, (40,), 0)
    x = contents(op, 9)
    (y,) = op.reference([x], mode)
    powers = []
    for q in x:
        high, low = divmod(int(x.max()) - int(q), 256)
        pair = [float((Decimal(-v) * Decimal(scale)).exp()) for v in (256 * high, low)]
        powers.append(round(pair[0] * pair[1] * 2**40))
    log = math.log(sum(powers) * 2.0**-40)
    for q, code in zip(x, y, strict=True):
        steps = (-((int(x.max()) - int(q)) * scale) - log) / RESULTS[dtype].scale
        near = round(steps) if mode is Rounding.EVEN else math.floor(abs(steps) + 0.5) * -1
        assert abs(steps - math.floor(steps) - 0.5) > 1e-9, "a tie that libm decides"
        low = -128 if dtype is DType.I8 else -32768
        assert code == max(near + RESULTS[dtype].zero_point, low)


@pytest.mark.parametrize("mode", MODES)
def test_a_sure_winner_has_logarithm_0(mode: Rounding) -> None:
    op = log_softmax(DType.I8, 1.0, (1, 4), -1)
    x = np.array([[100, 0, 0, 0]], np.int8)
    assert op.reference([x], mode)[0].tolist() == [[127, -128, -128, -128]]
