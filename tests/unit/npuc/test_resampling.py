"""Where resized elements come from: exact ties, weights that add up, how far codes may be off."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import Resize
from npuc.resampling import COORDINATES, NEAREST, Axis, exact_taps, nearest, whole_taps

PLACES = sorted(COORDINATES)
WHOLE = [Rounding.DOUBLE, Rounding.SINGLE]


def axis(extent: int, result: int, place: str = "half_pixel", **more: Any) -> Axis:
    scale = Fraction(result, extent)
    return Axis(extent=extent, result=result, scale=scale, coordinates=place, **more)


def test_c21_nearest_ties_go_where_the_mode_says() -> None:
    by_half = Axis(extent=3, result=4, scale=Fraction(3, 2), coordinates="half_pixel")
    rows = nearest(by_half, "round_prefer_floor")
    picture = np.arange(9).reshape(3, 3)[np.ix_(rows, rows)]
    assert picture.tolist() == [[0, 0, 1, 2], [0, 0, 1, 2], [3, 3, 4, 5], [6, 6, 7, 8]]
    assert nearest(axis(20, 6), "round_prefer_ceil") == [1, 5, 8, 11, 15, 18]
    assert nearest(axis(20, 6), "round_prefer_floor") == [1, 4, 8, 11, 14, 18]


def test_c21_a_scale_in_float32_is_the_ratio_that_it_stands_for() -> None:
    x = Value("x", TensorType((1, 1, 20, 3)))
    op = Resize([x], {"scales": [0.3], "axes": [2], "nearest_mode": "round_prefer_ceil"})
    assert op.result.tensor.dims == (1, 1, 6, 3)
    (y,) = op.reference([np.arange(20.0)[None, None, :, None].repeat(3, 3)], Rounding.DOUBLE)
    assert y[0, 0, :, 0].tolist() == [1, 5, 8, 11, 15, 18]


@pytest.mark.parametrize("how", sorted(NEAREST))
@pytest.mark.parametrize("place", PLACES)
def test_nearest_rounds_the_exact_position(place: str, how: str) -> None:
    rules = {
        "floor": lambda p: p.__floor__(),
        "ceil": lambda p: p.__ceil__(),
        "round_prefer_floor": lambda p: (p - Fraction(1, 2)).__ceil__(),
        "round_prefer_ceil": lambda p: (p + Fraction(1, 2)).__floor__(),
    }
    for extent, result in ((5, 10), (7, 3), (4, 4), (1, 3), (6, 1), (9, 14)):
        found = nearest(axis(extent, result, place), how)
        for x, position in enumerate(found):
            exact = min(max(rules[how](place_of(place, x, extent, result)), 0), extent - 1)
            assert position == exact


def place_of(place: str, x: int, extent: int, result: int) -> Fraction:
    """Return a position by the formulas of the ONNX page."""
    scale, half = Fraction(result, extent), Fraction(1, 2)
    if place == "align_corners":
        return Fraction(x * (extent - 1), result - 1) if result > 1 else Fraction(0)
    if place == "asymmetric":
        return x / scale
    if place == "pytorch_half_pixel" and result == 1:
        return Fraction(0)
    return (x + half) / scale - half


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(PLACES),
    st.sampled_from(["linear", "cubic"]),
    st.booleans(),
)
def test_weights_of_each_result_add_up_to_one(
    extent: int, result: int, place: str, mode: str, inside: bool
) -> None:
    found = axis(extent, result, place, mode=mode, exclude_outside=inside)
    np.testing.assert_allclose(exact_taps(found).weights.sum(axis=0), 1, atol=1e-12)
    for codes in (256, 65536):
        taps, _ = whole_taps(found, axis(3, 3), codes)
        assert (taps.weights.sum(axis=0) == 1 << taps.bits).all()
        assert taps.positions.min() >= 0
        assert taps.positions.max() < extent


def codes_of(x: Value, op: Resize, rounding: Rounding, codes: Array) -> Array:
    op.verify()
    (found,) = op.reference([codes], rounding)
    assert found.dtype == x.tensor.numpy
    return found.astype(np.int64)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_c22_codes_are_within_one_step_of_the_exact_interpolation(data: st.DataObject) -> None:
    shape = (1, 2, data.draw(st.integers(1, 12)), data.draw(st.integers(1, 30)))
    sizes = [data.draw(st.integers(1, 30)), data.draw(st.integers(1, 90))]
    words: dict[str, Any] = {
        "sizes": sizes,
        "axes": [2, 3],
        "mode": data.draw(st.sampled_from(["linear", "cubic"])),
        "coordinate_transformation_mode": data.draw(st.sampled_from(PLACES)),
    }
    dtype = data.draw(st.sampled_from([DType.I8, DType.I16]))
    limits = np.iinfo(dtype.numpy)
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 16)))
    given_codes = rng.choice([limits.min, limits.max, 0, 1], shape).astype(dtype.numpy)
    x = Value("x", TensorType(shape, dtype, Quant.per_tensor(0.5, 0)))
    real = Resize([Value("x", TensorType(shape))], words)
    (exact,) = real.reference([given_codes.astype(np.float64)], Rounding.DOUBLE)
    exact = np.clip(exact, limits.min, limits.max)
    for rounding in WHOLE if dtype is DType.I16 else list(Rounding):
        op = Resize([x], words)
        error = np.abs(codes_of(x, op, rounding, given_codes) - exact).max()
        assert error <= 1, (rounding, error)


@pytest.mark.parametrize("place", ["align_corners", "half_pixel", "asymmetric"])
@pytest.mark.parametrize(("extent", "scale", "result"), [(2, 2.0, 4), (3, 2.5, 7)])
def test_c22_small_linear_resizes(extent: int, scale: float, result: int, place: str) -> None:
    codes = np.linspace(-128, 127, extent).astype(np.int8).reshape(1, 1, 1, extent)
    words = {"scales": [scale], "axes": [3], "mode": "linear"}
    x = Value("x", TensorType(codes.shape, DType.I8, Quant.per_tensor(1 / 255, -128)))
    real = Resize([Value("x", TensorType(codes.shape))],
                  {**words, "coordinate_transformation_mode": place})  # fmt: skip
    (exact,) = real.reference([codes.astype(np.float64)], Rounding.DOUBLE)
    assert exact.shape == (1, 1, 1, result)
    for rounding in Rounding:
        op = Resize([x], {**words, "coordinate_transformation_mode": place})
        assert np.abs(codes_of(x, op, rounding, codes) - exact).max() <= 1


def test_litert_scale_is_followed_where_asked_even_when_it_drifts() -> None:
    plain, asked = axis(33, 100), axis(33, 100, litert=True)
    ours, _ = whole_taps(plain, axis(1, 1), 256)
    theirs, _ = whole_taps(asked, axis(1, 1), 256)
    assert (ours.bits, theirs.bits) == (12, 10)
    assert np.abs(ours.matrix(33) / 4096 - theirs.matrix(33) / 1024).max() > 1 / 255


def test_a_doubling_has_the_four_weights_of_litert() -> None:
    taps, _ = whole_taps(axis(4, 8), axis(1, 1), 256)
    assert taps.bits == 10
    assert taps.weights[:, 1:5].tolist() == [[768, 256, 768, 256], [256, 768, 256, 768]]


@pytest.mark.parametrize(
    ("dim", "scale"), [(5, 1e38), (5, 1e39), (None, 1e39), (5, 1e-50), (None, 1e-50)]
)
def test_a_scale_that_float32_cannot_apply_is_refused(dim: int | None, scale: float) -> None:
    x = Value("x", TensorType((1, 1, 1, dim)))
    with pytest.raises(ValueError, match="float32 holds no size"):
        Resize([x], {"scales": [scale], "axes": [3]})
