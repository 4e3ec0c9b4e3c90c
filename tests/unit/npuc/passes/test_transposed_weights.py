"""Scales of a transposed convolution's weights: one an output channel, one a group, frozen ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.ir.core import Array
from npuc.ir.types import Quant
from npuc.passes.weights import Layer, QuantisedLayer, quantise_transposed
from npuc.transposed import filters_of, scales_of


def layer(weights: Array, bias: Array | None = None, **more: Any) -> Layer:
    return Layer(weights=weights, bias=bias, input_scale=0.02, output_scale=0.05, **more)


def drawn(*shape: int) -> Array:
    """Return weights whose output channels differ a hundred times in size."""
    rng = np.random.default_rng(3)
    sizes = np.geomspace(0.01, 1.0, shape[1]).reshape(1, -1, 1, 1)
    return rng.normal(size=shape) * sizes


def scales(made: QuantisedLayer, shape: tuple[int, ...], group: int) -> Array:
    return np.array(scales_of(made.quant, shape, group))


def test_each_output_channel_has_its_scale() -> None:
    weights = drawn(6, 5, 3, 2)
    made = quantise_transposed(layer(weights, np.ones(5)), 1)
    assert made.quant.axis == 1
    peaks = np.abs(weights).max(axis=(0, 2, 3))
    np.testing.assert_allclose(made.quant.scales, peaks / 127, rtol=1e-6)
    assert np.abs(made.weights).max(axis=(0, 2, 3)).tolist() == [127] * 5
    assert made.bias is not None
    np.testing.assert_allclose(made.bias * 0.02 * peaks / 127, 1, rtol=1e-2)


@pytest.mark.parametrize(("shape", "group"), [((6, 1, 3, 3), 6), ((6, 2, 2, 3), 3)])
def test_each_group_has_its_scale(shape: tuple[int, ...], group: int) -> None:
    weights = drawn(*shape) * np.geomspace(1, 100, shape[0]).reshape(-1, 1, 1, 1)
    made = quantise_transposed(layer(weights, np.ones(shape[1] * group)), group)
    assert made.quant.axis == 0
    per_output = scales(made, shape, group)
    filters = filters_of(weights, group).reshape(group, -1)
    peaks = np.abs(filters).max(axis=1)
    np.testing.assert_allclose(per_output.reshape(group, -1)[:, 0], peaks / 127, rtol=1e-6)
    real = filters_of(made.weights, group) * per_output.reshape(-1, 1, 1, 1)
    assert (np.abs(real - filters_of(weights, group)) <= per_output.max() / 2).all()
    assert made.bias is not None
    np.testing.assert_allclose(made.bias * 0.02 * per_output, 1, rtol=2e-2)


def test_frozen_scales_are_kept_whichever_axis_they_are_on() -> None:
    weights = np.random.default_rng(1).uniform(-1, 1, (4, 2, 3, 3))
    for frozen in (
        Quant.per_tensor(0.01, 0),
        Quant((0.01, 0.02), (0, 0), 1),
        Quant((0.01, 0.01, 0.02, 0.02), (0,) * 4, 0),
    ):
        made = quantise_transposed(layer(weights, frozen=frozen), 2)
        assert made.quant == frozen


def test_a_frozen_zero_point_is_refused() -> None:
    with pytest.raises(ValueError, match="zero point 0"):
        quantise_transposed(layer(drawn(4, 2, 1, 1), frozen=Quant.per_tensor(0.01, 3)), 1)


def test_a_bias_too_large_raises_its_channels_scale() -> None:
    weights = np.full((3, 2, 1, 1), 1e-9)
    made = quantise_transposed(layer(weights, np.array([0.0, 50.0])), 1)
    assert made.quant.scales[1] > 1e-7 > made.quant.scales[0]
    assert any("raised" in note for note in made.notes)
