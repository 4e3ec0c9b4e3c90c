"""matmul's references against scalar loops, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import Dense, MatMul
from npuc.ops.example import floats
from npuc.reference import matmul_needs_wide
from tests.unit.npuc.ops.test_integer_values import codes, held, requantised, stored

MODES = list(Rounding)
FLOAT_CASES = list(MatMul.examples())


def quantised(a: tuple[int, ...], b: tuple[int, ...], *quants: Quant) -> MatMul:
    shape = MatMul([floats("a", *a), floats("b", *b)]).result.tensor.dims
    qa, qb, qy = quants
    values = [
        Value("a", stored(a, qa.scale, qa.zero_point)),
        Value("b", stored(b, qb.scale, qb.zero_point)),
    ]
    op = MatMul(values, result_types=[stored(shape, qy.scale, qy.zero_point)])
    op.verify()
    return op


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "case", FLOAT_CASES, ids=lambda op: "x".join(map(str, op.result.tensor.shape))
)
def test_codes_equal_the_loop(case: MatMul, mode: Rounding) -> None:
    rng = np.random.default_rng(1)
    qa, qb, qy = (Quant.per_tensor(s, z) for s, z in ((0.031, -7), (0.017, 90), (0.06, 3)))
    op = quantised(case.a.tensor.dims, case.b.tensor.dims, qa, qb, qy)
    a, b = codes(case.a.tensor.dims, rng), codes(case.b.tensor.dims, rng)
    (y,) = op.reference([a, b], mode)
    batch = y.shape[:-2]
    wide = [np.broadcast_to(x, (*batch, *x.shape[-2:])).astype(int) for x in (a, b)]
    both = float(np.float32(qa.scale) * np.float32(qb.scale))
    real = float(np.float32(both) / np.float32(qy.scale)) if mode is Rounding.EVEN else None
    for place in np.ndindex(y.shape):
        row, column = wide[0][place[:-1]], wide[1][(*batch_of(place), slice(None), place[-1])]
        total = sum((int(p) + 7) * (int(q) - 90) for p, q in zip(row, column, strict=True))
        scale = both / qy.scale if real is None else real
        assert y[place] == held(requantised(total, scale, mode) + 3), place


def batch_of(place: tuple[int, ...]) -> tuple[int, ...]:
    return place[:-2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [33_025, 33_026])
def test_c24_sums_of_two_activations_are_exact_at_the_extremes(depth: int, mode: Rounding) -> None:
    # 255 * 255 * 33,025 is the largest such sum that int32 holds.
    far = Quant.per_tensor(1.0, 127)
    op = quantised((1, depth), (depth, 1), far, Quant.per_tensor(2.0**-31, 127),
                   Quant.per_tensor(2.0**-6, -1))  # fmt: skip
    low = np.full((1, depth), -128, np.int8)
    assert matmul_needs_wide(depth, far, far) is (depth > 33_025)
    assert op.reference([low, low.T], mode)[0].tolist() == [[64 - 1]]


def test_float_products_are_those_of_numpy() -> None:
    rng = np.random.default_rng(2)
    for op in FLOAT_CASES:
        a, b = rng.normal(size=op.a.tensor.dims), rng.normal(size=op.b.tensor.dims)
        assert np.allclose(op.reference([a, b], Rounding.DOUBLE)[0], a @ b)


@pytest.mark.parametrize("rank", [3, 4])
def test_a_dense_layer_of_more_dims_is_one_of_its_rows(rank: int) -> None:
    rng = np.random.default_rng(3)
    shape, quant = (2, 3, 4, 9)[-rank:], Quant((0.01, 0.02), (0, 0), 0)
    weights = TensorType((2, 9), DType.I8, quant)
    x, w = codes(shape, rng), codes((2, 9), rng)
    found = []
    for dims in (shape, (x.size // 9, 9)):
        values = [Value("x", stored(dims, 0.05, 3)), Value("w", weights)]
        op = Dense(values, result_types=[stored((*dims[:-1], 2), 0.07, -4)])
        op.verify()
        found.append(op.reference([x.reshape(dims), w], Rounding.DOUBLE)[0])
    assert np.array_equal(found[0].reshape(-1, 2), found[1])
