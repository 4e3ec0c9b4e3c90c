"""Int8 weights: scales, codes, biases that would not fit, and losses worth a note."""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import DType
from npuc.ir.types import Quant
from npuc.passes.parameters import activation_quant, bias_limit
from npuc.passes.weights import Layer, quantise_weights


def test_the_largest_weight_of_each_channel_is_127() -> None:
    weights = np.array([[1.0, -2.0], [0.25, 0.1]])
    made = quantise_weights(Layer(weights=weights, bias=None, input_scale=0.5, output_scale=0.5))
    assert made.weights.tolist() == [[64, -127], [127, 51]]
    assert made.quant == Quant(
        (float(np.float32(2 / 127)), float(np.float32(0.25 / 127))), (0, 0), axis=0
    )
    assert made.bias is None


def test_a_bias_that_int32_cannot_hold_raises_its_channels_scale() -> None:
    """C07: 5 / (.5 * 7.843e-10) = 1.275e10 is more than 2^31 - 1."""
    weights = np.array([[127 * 7.843e-10], [1.0]])
    layer = Layer(weights=weights, bias=np.array([5.0, 5.0]), input_scale=0.5, output_scale=0.04)
    made = quantise_weights(layer)
    assert made.bias is not None
    assert made.quant.scales[0] >= 4.6566e-9
    assert made.quant.scales[1] == float(np.float32(1 / 127))
    assert np.abs(made.bias).max() <= bias_limit(DType.I8)
    np.testing.assert_allclose(made.bias * 0.5 * np.array(made.quant.scales), [5, 5], rtol=1e-3)
    assert made.weights.ravel().tolist() == [11, 127]
    assert "channel 0: 7.843e-10 to 9.3132e-09" in made.notes[0]


def test_a_channel_without_weights_keeps_its_bias_exact_to_a_fraction_of_a_step() -> None:
    layer = Layer(
        weights=np.zeros((1, 3)), bias=np.array([0.301]), input_scale=3.0, output_scale=0.1
    )
    made = quantise_weights(layer)
    assert made.bias is not None
    assert made.bias[0] * 3.0 * made.quant.scales[0] == pytest.approx(0.301, abs=0.1 / 256)
    assert not made.notes


def test_weights_with_one_outlier_are_noted() -> None:
    weights = np.full((2, 1000), 0.3)
    weights[1, 0] = 100.0
    layer = Layer(weights=weights, bias=None, input_scale=0.1, output_scale=0.1)
    assert "weights of channel 1 keep less than 30 dB" in quantise_weights(layer).notes[0]


def test_a_depthwise_channel_a_thousand_times_smaller_is_noted() -> None:
    """C33: per-tensor activations leave the small channel a fraction of one code."""
    weights = np.array([1.0, 1e-3]).reshape(2, 1, 1, 1)
    layer = Layer(weights=weights, bias=None, input_scale=0.01, output_scale=0.01)
    (note,) = quantise_weights(layer).notes
    assert note.startswith("channel 1 of the result: fewer than 32 of 256 codes")


def test_frozen_scales_are_kept() -> None:
    frozen = Quant.per_tensor(0.5, 0)
    layer = Layer(
        weights=np.array([[1.0], [-63.5]]), bias=None, input_scale=1.0, output_scale=1.0,
        frozen=frozen,
    )  # fmt: skip
    made = quantise_weights(layer)
    assert made.quant.scales == (0.5, 0.5)
    assert made.weights.tolist() == [[2], [-127]]


@pytest.mark.parametrize(
    "frozen",
    [Quant.per_tensor(0.5, 3), Quant((0.5,), (0,), axis=1), Quant((1.0,) * 3, (0,) * 3, 0)],
)
def test_frozen_parameters_that_the_npu_has_not_are_refused(frozen: Quant) -> None:
    layer = Layer(
        weights=np.ones((2, 2)), bias=None, input_scale=1.0, output_scale=1.0, frozen=frozen
    )
    with pytest.raises(ValueError, match="weights"):
        quantise_weights(layer)


@pytest.mark.parametrize(
    ("low", "high", "scale", "point"),
    [
        (0.0, 25.5, 0.1, -128),
        (-1.0, 1.0, 2 / 255, -1),
        (-12.8, 12.7, 0.1, 0),
        (3.0, 25.5, 0.1, -128),
        (-25.5, -1.0, 0.1, 127),
        (0.0, 0.0, 1.0, 0),
        (0.0, 1e-38, 1.0, 0),
    ],
)
def test_a_range_always_holds_zero(low: float, high: float, scale: float, point: int) -> None:
    quant = activation_quant(low, high)
    assert quant == Quant.per_tensor(float(np.float32(scale)), point)


def test_a_zero_point_halfway_is_rounded_away_from_zero() -> None:
    assert activation_quant(-127.5, 127.5).zero_point == -1
    assert activation_quant(-0.5, 254.5).zero_point == -128
