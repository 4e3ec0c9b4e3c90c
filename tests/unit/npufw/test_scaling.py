"""The float64 form of requantisation against the integer rule, where it is most likely to slip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import Rounding
from npuabi.fixedpoint import apply, float_bits
from npufw.kernels.scaling import closed, closed_form_holds, scaled_even

Array = NDArray[Any]


def _near_boundaries(rng: np.random.Generator, multiplier: Array, shift: Array) -> Array:
    """Return sums (64, O): the nearest to where the result steps up, beside random ones."""
    steps = rng.integers(-300, 300, (32, len(multiplier)))
    # acc * m * 2^(shift - 31) = step + 1/2, solved for acc in Python ints.
    halves = (2 * steps + 1).astype(object) * np.array([1 << (30 - int(s)) for s in shift])
    near = halves // np.maximum(multiplier, 1).astype(object) + rng.integers(-2, 3, steps.shape)
    low, high = -(2**31), 2**31 - 1
    wild = rng.integers(low, high, steps.shape, endpoint=True)
    return np.concatenate([np.clip(near, low, high).astype(np.int64), wild])


@pytest.mark.parametrize("rounding", [Rounding.DOUBLE, Rounding.SINGLE])
@pytest.mark.parametrize("seed", range(20))
def test_the_float_form_equals_the_integer_rule_within_the_clamp(
    seed: int, rounding: Rounding
) -> None:
    rng = np.random.default_rng(seed)
    channels = 400
    multiplier = rng.integers(1 << 30, 1 << 31, channels)
    multiplier[:40] >>= rng.integers(0, 31, 40)
    multiplier[:3] = 0, 1, 2**31 - 1
    shift = rng.integers(-13, 1, channels)
    zero = int(rng.integers(-128, 128))
    low = zero if seed % 2 else -128
    sums = _near_boundaries(rng, multiplier, shift)
    assert closed_form_holds(multiplier, shift)
    found = closed(sums.astype(np.float64), multiplier, shift, rounding, zero, low=low)
    expected = apply(sums, multiplier, shift, rounding) + zero
    np.testing.assert_array_equal(np.clip(found, low, 127), np.clip(expected, low, 127))


def _worst(right: int, residue: int) -> tuple[Array, Array]:
    """Return sums and multipliers whose product lies *residue* above a step of the result.

    In units of 2^-(31 + right), the finest there are: -1 is as close below the step as can be.
    """
    sums = np.random.default_rng(right).integers(0, 1 << (right + 8), 300_000) * 2 + 1
    inverse = sums.astype(np.uint64)
    for _ in range(5):  # Newton's step doubles the right bits, of which an odd number has three
        inverse *= np.uint64(2) - sums.astype(np.uint64) * inverse
    wanted = np.uint64((residue - (1 << 30) - (1 << (30 + right))) % (1 << 64))
    multiplier = (inverse * wanted) & np.uint64((1 << (31 + right)) - 1)
    fits = multiplier < 1 << 31
    return sums[fits], multiplier[fits].astype(np.int64)


@pytest.mark.parametrize("residue", [-1, 0, 1])
@pytest.mark.parametrize("right", [1, 6, 9, 12, 13])
def test_the_float_form_is_right_one_unit_from_a_step(right: int, residue: int) -> None:
    sums, multiplier = _worst(right, residue)
    shift = np.full(len(sums), -right)
    assert len(sums) > 10
    found = closed(sums.astype(np.float64), multiplier, shift, Rounding.DOUBLE, 0, low=-128)
    expected = apply(sums, multiplier, shift, Rounding.DOUBLE)
    near = np.abs(expected) < 255
    np.testing.assert_array_equal(found[near], expected[near])


@pytest.mark.parametrize(
    ("multiplier", "shift"), [(1 << 30, 1), (1 << 30, -14), (-5, -3), (1 << 30, -31)]
)
def test_channels_beyond_the_proof_take_the_integer_form(multiplier: int, shift: int) -> None:
    pair = np.array([1 << 30, multiplier]), np.array([-5, shift])
    assert not closed_form_holds(*pair)


@pytest.mark.parametrize("scale", [2.0**-9, 0.00173, 0.25, 3e38])
def test_even_equals_the_shared_rule_within_the_clamp(scale: float) -> None:
    rng = np.random.default_rng(3)
    sums = np.concatenate([rng.integers(-(2**31), 2**31, 4000), np.arange(-40_000, 40_000)])
    bits = np.array([float_bits(scale)])
    found = scaled_even(sums[:, None].astype(np.float64), bits, 5)
    expected = apply(sums[:, None], bits, np.array([0]), Rounding.EVEN) + 5
    np.testing.assert_array_equal(np.clip(found, -128, 127), np.clip(expected, -128, 127))
