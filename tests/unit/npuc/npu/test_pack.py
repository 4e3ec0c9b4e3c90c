"""Packed constants against loops over their definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from npuabi.records import OpParams
from npuc.npu.builder import op_params
from npuc.npu.pack import pack_blocks, pack_bricks, pack_depthwise, pack_taps, params_head

_SHAPES = [(1, 1, 1, 1), (16, 16, 3, 3), (17, 5, 2, 3), (33, 40, 1, 2), (3, 31, 3, 1)]


def _weights(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    return np.random.default_rng(sum(shape)).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_bricks_hold_16_outputs_by_16_inputs_of_a_tap(shape: tuple[int, ...]) -> None:
    weights = _weights(*shape)
    o, i, kh, kw = shape
    blocks = -(-i // 16)
    packed = pack_bricks(weights).view(np.int8)
    assert packed.size == -(-o // 16) * blocks * kh * kw * 256
    expected = np.zeros_like(packed)
    for a, b, y, x in itertools.product(*map(range, shape)):
        tap = ((a // 16 * blocks + b // 16) * kh + y) * kw + x
        expected[tap * 256 + b % 16 * 16 + a % 16] = weights[a, b, y, x]
    assert np.array_equal(packed, expected)


@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_taps_hold_16_outputs_of_one_input_channel(shape: tuple[int, ...]) -> None:
    weights = _weights(*shape)
    _, i, kh, kw = shape
    packed = pack_taps(weights).view(np.int8)
    expected = np.zeros_like(packed)
    for a, b, y, x in itertools.product(*map(range, shape)):
        row = ((a // 16 * kh + y) * kw + x) * i + b
        expected[row * 16 + a % 16] = weights[a, b, y, x]
    assert np.array_equal(packed, expected)


@pytest.mark.parametrize("channels", [1, 16, 33])
def test_depthwise_weights_lie_as_an_activation_of_one_image(channels: int) -> None:
    weights = _weights(channels, 1, 3, 2)
    packed = pack_depthwise(weights).view(np.int8)
    expected = np.zeros_like(packed)
    for c, y, x in itertools.product(range(channels), range(3), range(2)):
        expected[((c // 16 * 3 + y) * 2 + x) * 16 + c % 16] = weights[c, 0, y, x]
    assert np.array_equal(packed, expected)


@pytest.mark.parametrize("channels", [1, 16, 17])
def test_blocks_hold_bias_multiplier_and_shift_of_16_channels(channels: int) -> None:
    rows = np.random.default_rng(1).integers(-(2**31), 2**31, (3, channels))
    words = pack_blocks(*rows).view("<i4")
    expected = np.zeros_like(words)
    for row, c in itertools.product(range(3), range(channels)):
        expected[c // 16 * 48 + row * 16 + c % 16] = rows[row, c]
    assert np.array_equal(words, expected)


def test_the_head_is_the_record() -> None:
    params = op_params(input_zero_point=-3, output_scale=0.5)
    assert OpParams.decode(params_head(params).tobytes()) == params
