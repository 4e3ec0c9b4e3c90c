"""Norms: the rule on codes against scalar loops, accuracy against float64, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import GroupNorm, InstanceNorm, LayerNorm

MODES = list(Rounding)
KINDS: list[type[Op]] = [LayerNorm, InstanceNorm, GroupNorm]
CASES = [pytest.param(e, id=f"{c.NAME}-{i}") for c in KINDS for i, e in enumerate(c.examples())]
DTYPES = [DType.I8, DType.I16]


def rows_of(op: Any, shape: tuple[int, ...]) -> Any:
    """Return the number of the row that each element belongs to."""
    places = np.indices(shape)
    if isinstance(op, LayerNorm):
        axis = op.axis % len(shape)
        return np.ravel_multi_index(tuple(places[:axis]), shape[:axis]) if axis else places[0] * 0
    if isinstance(op, InstanceNorm):
        return places[0] * shape[1] + places[1]
    return places[0] * op.num_groups + places[1] // (shape[1] // op.num_groups)


def quantised(example: Any, dtype: DType, rng: np.random.Generator) -> tuple[Any, list[Array]]:
    """Return *example* on codes, and random contents of its operands."""
    scale = 1 if dtype is DType.I8 else 1 / 256
    zero = (11, -7) if dtype is DType.I8 else (0, 0)
    source, target = (
        Quant.per_tensor(s * scale, z) for s, z in zip((0.04, 0.03), zero, strict=True)
    )
    dims = example.x.tensor.dims
    x = Value("x", TensorType(dims, dtype, source))
    op = type(example)(
        [x, *example.inputs[1:]], example.attributes, result_types=[TensorType(dims, dtype, target)]
    )
    op.verify()
    limits = np.iinfo(dtype.numpy)
    codes = rng.integers(limits.min, limits.max + 1, dims).astype(x.tensor.numpy)
    return op, [codes, *(rng.normal(1, 0.5, v.tensor.dims).astype("f4") for v in op.inputs[1:])]


def affine(op: Any, arrays: list[Array], shape: tuple[int, ...]) -> list[Array]:
    """Return gamma and beta of every element."""
    found = [*arrays[1:], np.zeros(1, "f4")][:2]
    along = (-1,) + (1,) * (len(shape) - 2)
    if not isinstance(op, LayerNorm):
        found = [v.reshape(along) for v in found]
    return [np.broadcast_to(v, shape).astype(float) for v in found]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("example", CASES)
def test_codes_equal_the_loop(example: Any, mode: Rounding, dtype: DType) -> None:
    op, arrays = quantised(example, dtype, np.random.default_rng(4))
    (y,) = op.reference(arrays, mode)
    x, rows = arrays[0], rows_of(op, y.shape)
    gamma, beta = affine(op, arrays, y.shape)
    source, target = (float(np.float32(v.tensor.quant.scale)) for v in (op.x, op.result))
    low, high = np.iinfo(y.dtype).min, np.iinfo(y.dtype).max
    for row in range(int(rows.max()) + 1):
        members = [int(v) for v in x[rows == row]]
        n, total = len(members), sum(members)
        power = n * sum(v * v for v in members) - total * total
        root = math.sqrt(float(power) + op.epsilon * n * n / (source * source))
        for place in np.argwhere(rows == row)[:40]:
            at = tuple(place)
            unit = float(n * int(x[at]) - total) * (1 / root)
            steps = unit * (gamma[at] / target) + beta[at] / target
            away = math.copysign(math.floor(abs(steps) + 0.5), steps)
            whole = round(steps) if mode is Rounding.EVEN else int(away)
            code = min(max(whole + op.result.tensor.quant.zero_point, low), high)
            assert y[at] == code, at


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("example", CASES)
def test_codes_are_the_nearest_to_float64(example: Any, dtype: DType) -> None:
    op, arrays = quantised(example, dtype, np.random.default_rng(5))
    (y,) = op.reference(arrays, Rounding.DOUBLE)
    source, target = (v.tensor.quant for v in (op.x, op.result))
    real = type(op)([Value("x", TensorType(op.x.tensor.dims)), *op.inputs[1:]], op.attributes)
    numbers = (arrays[0].astype(float) - source.zero_point) * source.scale
    (exact,) = real.reference([numbers, *arrays[1:]], Rounding.DOUBLE)
    limits = np.iinfo(y.dtype)
    steps = np.clip(exact / target.scale + target.zero_point, limits.min, limits.max)
    assert np.abs(y - steps).max() <= 0.5 + 1e-3


def test_a_row_of_equal_codes_gives_beta_even_without_epsilon() -> None:
    values = [Value("x", TensorType((1, 4), DType.I8, Quant.per_tensor(0.1, 3))),
              Value("g", TensorType((4,))), Value("b", TensorType((4,)))]  # fmt: skip
    result = TensorType((1, 4), DType.I8, Quant.per_tensor(0.5, -1))
    op = LayerNorm(values, {"epsilon": 0.0}, result_types=[result])
    arrays = [np.full((1, 4), 77, np.int8), np.ones(4, "f4"), np.array([0, 1, -1, 2], "f4")]
    assert op.reference(arrays, Rounding.DOUBLE)[0].tolist() == [[-1, 1, -3, 3]]


def test_the_longest_rows_of_int16_are_exact() -> None:
    # n * Q is below 2^63 up to 92,681 codes of -2^15.
    dims = (1, 92_681)
    values = [Value("x", TensorType(dims, DType.I16, Quant.per_tensor(1.0, 0))),
              Value("g", TensorType((1,)))]  # fmt: skip
    op = LayerNorm(values, result_types=[TensorType(dims, DType.I16, Quant.per_tensor(1e-2, 0))])
    x = np.full(dims, -32768, np.int16)
    x[0, :2] = 32767
    (y,) = op.reference([x, np.ones(1)], Rounding.DOUBLE)
    part = 2 / 92_681
    high, low = math.sqrt((1 - part) / part), -math.sqrt(part / (1 - part))
    assert y[0, :3].tolist() == [round(high * 100), round(high * 100), round(low * 100)]
    assert op.broken_limits() == []
