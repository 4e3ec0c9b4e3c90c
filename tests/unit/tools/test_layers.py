"""The trainer's derivatives against differences of the loss."""

from __future__ import annotations

import numpy as np
import pytest

from tools.layers import (
    Array,
    BatchNorm,
    Conv,
    Dense,
    Depthwise,
    GlobalAvgPool,
    Layer,
    MaxPool,
    Relu,
    Residual,
    Sequential,
)

STEP = 1e-6


def _network() -> Sequential:
    rng = np.random.default_rng(3)
    inner = [Depthwise(rng, 3), BatchNorm(3), Relu(), Conv(rng, 3, 3, 1)]
    net = Sequential(
        [Conv(rng, 2, 3, 3), Residual(inner), MaxPool(), GlobalAvgPool(), Dense(rng, 3, 4)]
    )
    for layer in net.leaves():
        layer.training = True
        layer.params = {key: value.astype(np.float64) for key, value in layer.params.items()}
    return net


def _loss(net: Layer, x: Array, wanted: Array) -> float:
    return float((net.forward(x) * wanted).sum())


@pytest.fixture
def case() -> tuple[Sequential, Array, Array]:
    rng = np.random.default_rng(4)
    return _network(), rng.standard_normal((3, 2, 4, 4)), rng.standard_normal((3, 4))


def test_every_parameter_has_its_derivative(case: tuple[Sequential, Array, Array]) -> None:
    net, x, wanted = case
    net.forward(x)
    net.backward(wanted)
    for layer in net.leaves():
        for key, value in layer.params.items():
            found = layer.grads[key].copy()
            assert found.shape == value.shape
            for index in np.ndindex(value.shape):
                assert found[index] == pytest.approx(_slope(case, value, index), abs=1e-5), key


def test_the_input_has_its_derivative(case: tuple[Sequential, Array, Array]) -> None:
    net, x, wanted = case
    net.forward(x)
    found = net.backward(wanted)
    for index in np.ndindex(x.shape):
        assert found[index] == pytest.approx(_slope(case, x, index), abs=1e-5)


def _slope(case: tuple[Sequential, Array, Array], array: Array, index: tuple[int, ...]) -> float:
    net, x, wanted = case
    kept = array[index]
    array[index] = kept + STEP
    above = _loss(net, x, wanted)
    array[index] = kept - STEP
    below = _loss(net, x, wanted)
    array[index] = kept
    return (above - below) / (2 * STEP)


def test_after_training_batch_norm_uses_the_running_statistics() -> None:
    norm = BatchNorm(1)
    norm.mean, norm.var = np.array([2.0]), np.array([4.0])
    x = np.array([2.0, 6.0]).reshape(2, 1, 1, 1)
    np.testing.assert_allclose(norm.forward(x).ravel(), [0.0, 2.0], atol=1e-5)
