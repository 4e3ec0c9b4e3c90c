"""Functions of one tensor: each op's expression, tables and codes against its real function.

Every registered op is under test; nothing here names one, but where its codes have a rule of their
own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Primitive, Rounding
from npuc import exact
from npuc.expression import X, numbers, power, program
from npuc.ir.core import REGISTRY, Array, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops.pointwise import Unary
from npuc.pointwise_codes import signed_multiplier

MODES = list(Rounding)
EACH = [
    pytest.param(cls, dict(variant), id=f"{name}-{n}")
    for name, cls in sorted(REGISTRY.items())
    if issubclass(cls, Unary)
    for n, variant in enumerate(cls.VARIANTS)
]
OWN_RULES = {"abs": 0.76, "leaky_relu": 0.76, "hard_swish": 2.0, "rsqrt": 1.01, "sqrt": 1.01}
"""Ops whose codes round twice, are a fixed-point kernel's, or cut off: how far they may be from the
real value; others half a step, but for float32 rounding."""


def codes_op(cls: type[Unary], attributes: Any, dtype: DType, seed: int) -> Unary:
    """Return an instance on all codes of *dtype*, with random parameters."""
    rng = np.random.default_rng(seed)
    wide = dtype is DType.I16
    points = (0, 0) if wide else rng.integers(-128, 128, 2).tolist()
    scales = np.exp(rng.uniform(-4, -1.5, 2)).astype(np.float32) / np.float32(128 if wide else 1)
    source, target = (Quant.per_tensor(float(s), z) for s, z in zip(scales, points, strict=True))
    shape = (65536 if wide else 256,)
    stored = TensorType(shape, dtype, cls.FIXED.get(dtype, target))
    op = cls([Value("x", TensorType(shape, dtype, source))], attributes, result_types=[stored])
    op.verify()
    return op


def real_steps(op: Unary, q: Array) -> Array:
    """Return the exact result in output steps, zero point included, infinities beyond all codes."""
    source, target = op.x.tensor.quant, op.result.tensor.quant
    assert source is not None
    assert target is not None
    x = (q.astype(np.float64) - source.zero_point) * source.scale
    with np.errstate(all="ignore"):
        y = op.real(np.clip(x, *op.domain))
    return np.nan_to_num(y / target.scale, posinf=1e6, neginf=-1e6) + target.zero_point


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("cls", "attributes"), EACH)
def test_i8_codes_are_the_rounded_function(
    cls: type[Unary], attributes: Any, mode: Rounding
) -> None:
    q = np.arange(-128, 128).astype(np.int8)
    for seed in range(4):
        op = codes_op(cls, attributes, DType.I8, seed)
        (found,) = op.reference([q], mode)
        assert found.dtype == np.int8
        # Float32 arithmetic moves what is next to a tie.
        bound = 0.501 if mode is Rounding.EVEN else OWN_RULES.get(cls.NAME, 0.501)
        assert np.abs(found - np.clip(real_steps(op, q), -128, 127)).max() <= bound


def bends(steps: Array) -> Array:
    """Return how far the straight line over each 128 codes is from *steps*."""
    ends = np.append(steps[::128], steps[-1])
    line = ends[:-1, None] + np.diff(ends)[:, None] * np.arange(128) / 128
    return np.asarray(np.abs(steps.reshape(-1, 128) - line).max(axis=1))


@pytest.mark.parametrize(("cls", "attributes"), EACH)
def test_i16_codes_follow_the_function(cls: type[Unary], attributes: Any) -> None:
    q = np.arange(-32768, 32768).astype(np.int16)
    op = codes_op(cls, attributes, DType.I16, 1)
    steps = real_steps(op, q)
    held = np.clip(steps, -32768, 32767)
    # As far as a straight line over 128 codes, or over the next ones, is from the function.
    bend = np.maximum(bends(steps), bends(held))
    wide = np.maximum(bend, np.maximum(np.roll(bend, 1), np.roll(bend, -1)))
    for mode in MODES:
        (found,) = op.reference([q], mode)
        assert found.dtype == np.int16
        assert (np.abs(found - held) <= np.repeat(3.0 + 1.5 * wide, 128)).all()


@pytest.mark.parametrize(("cls", "attributes"), EACH)
def test_the_expression_is_the_function(cls: type[Unary], attributes: Any) -> None:
    op = cls([Value("x", TensorType((4000,)))], attributes)
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(0, s, 1000) for s in (0.01, 1.0, 4.0, 10.0)]).astype(np.float32)
    found = numbers(op.expression(X), x).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = op.real(x.astype(np.float64))
    known = np.isfinite(expected) & (np.abs(expected) < 1e38)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    bound = np.maximum(np.abs(expected), np.minimum(np.abs(x), 1.0)) * 2.0**-20
    assert (np.abs(found - expected)[known] <= bound[known]).all()


def test_c34_a_slope_is_off_by_at_most_one_part_in_two_to_the_31() -> None:
    for alpha in (0.1, 0.1015625, 1.0, -1.0, 2.0):
        multiplier, shift = signed_multiplier(alpha)
        assert abs(multiplier * 2.0 ** (shift - 31) / alpha - 1) <= 2.0**-31
    assert signed_multiplier(0.0) == (0, 0)


# --- functions that round once ----------------------------------------------------------------

SERIES = sorted(exact.SERIES)


@pytest.mark.parametrize("primitive", SERIES)
def test_float64_and_decimal_round_to_the_same_float32(
    primitive: Primitive, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(primitive)
    x = rng.normal(0, 3, 25).astype(np.float32)
    if primitive in (Primitive.LOG, Primitive.LOG1P, Primitive.POW):
        x = np.abs(x)
    operands = [x, np.float32(2.7)] if primitive is Primitive.POW else [x]
    quick = exact.ROUNDED[primitive](*operands)
    monkeypatch.setattr(exact, "_DOUBT", 1.0)
    assert np.array_equal(exact.ROUNDED[primitive](*operands), quick)


def test_a_tie_is_seen_exactly() -> None:
    # 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: the middle of two float32.
    x = np.array([1 + 2.0**-12], np.float32)
    assert numbers(power(X, 2.0), x)[0] == np.float32(1 + 2.0**-11)


def test_an_expression_becomes_postfix_in_the_order_it_is_written() -> None:
    steps = [(i.primitive.name, i.constant) for i in program(1.0 - X / 2.0)]
    assert steps == [
        ("CONSTANT", 1.0),
        ("X", 0.0),
        ("CONSTANT", 2.0),
        ("DIV", 0.0),
        ("SUB", 0.0),
    ]


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("log", {}, [-128, -128]),
        ("sqrt", {}, [3, 3]),
        ("rsqrt", {}, [127, 127]),
        ("reciprocal", {}, [127, None]),
        ("pow", {"exponent": -0.5}, [127, 127]),
        ("pow", {"exponent": 0.5}, [3, 3]),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_codes_beyond_the_domain_have_the_code_of_its_end(
    name: str, attributes: Any, expected: list[int | None], mode: Rounding
) -> None:
    stored = TensorType((2,), DType.I8, Quant.per_tensor(0.1, 3))
    op = REGISTRY[name]([Value("x", stored)], attributes, result_types=[stored])
    (found,) = op.reference([np.array([3, -77], np.int8)], mode)
    for code, wanted in zip(found.tolist(), expected, strict=True):
        assert wanted is None or code == wanted


@pytest.mark.parametrize(("name", "attribute"), [("elu", "alpha"), ("pow", "exponent")])
def test_attributes_are_finite_numbers(name: str, attribute: str) -> None:
    with pytest.raises(ValueError, match=f"{attribute} is a finite number, got inf"):
        REGISTRY[name]([Value("x", TensorType((2,)))], {attribute: math.inf})
