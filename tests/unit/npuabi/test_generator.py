"""The documented generator, against its own recipe written out in plain integers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npuabi.enums import DType
from npuabi.generator import codes, samples

M32, M64, M128 = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1
GOLDEN = [
    "0x1.a17a760000000p-3",
    "0x1.63574e0000000p+0",
    "0x1.2719200000000p+0",
    "-0x1.0e332e0000000p+0",
]
PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645


def seed_words(seed: int) -> list[int]:
    """Four 64-bit words of numpy's SeedSequence, for a seed below 2^128."""
    constant = 0x43B0D7E5

    def hashed(value: int) -> int:
        nonlocal constant
        value ^= constant
        constant = constant * 0x931E8875 & M32
        value = value * constant & M32
        return value ^ value >> 16

    pool = [hashed(seed >> 32 * i & M32) for i in range(4)]
    for source in range(4):
        for goal in range(4):
            if source != goal:
                mixed = pool[goal] * 0xCA01F9DD - hashed(pool[source]) * 0x4973F715 & M32
                pool[goal] = mixed ^ mixed >> 16
    constant, state = 0x8B51F9DD, []
    for i in range(8):
        value = pool[i % 4] ^ constant
        constant = constant * 0x58F38DED & M32
        value = value * constant & M32
        state.append(value ^ value >> 16)
    return [state[i] | state[i + 1] << 32 for i in range(0, 8, 2)]


def raw_words(seed: int, count: int) -> list[int]:
    """PCG64 XSL-RR, stepped before each output."""
    words = seed_words(seed)
    start, stream = words[0] << 64 | words[1], words[2] << 64 | words[3]
    increment = (stream << 1 | 1) & M128
    state = (increment + start) * PCG_MULTIPLIER + increment & M128
    found = []
    for _ in range(count):
        state = state * PCG_MULTIPLIER + increment & M128
        folded, turn = (state >> 64 ^ state) & M64, state >> 122
        found.append((folded >> turn | folded << (64 - turn)) & M64)
    return found


@pytest.mark.parametrize("seed", [0, 1, 7, 2**32, 2**63 + 5, 2**100 + 3])
def test_samples_follow_the_documented_recipe(seed: int) -> None:
    centred = [sum(w >> 16 * i & 0xFFFF for i in range(4)) - 131070 for w in raw_words(seed, 50)]
    factor = 0.05 / math.sqrt((2**32 - 1) / 3)
    expected = np.array([1.5 + c * factor for c in centred], np.float32)
    np.testing.assert_array_equal(samples(seed, 50, mean=1.5, std=0.05), expected)


def test_samples_have_these_bits_for_ever() -> None:
    got = [float(x).hex() for x in samples(7, 4)]
    assert got == GOLDEN


def test_codes_are_the_low_bits_of_the_raw_words() -> None:
    words = raw_words(3, 20)
    for dtype in (DType.I8, DType.U8, DType.I16, DType.I32, DType.I64):
        whole = b"".join(
            (w & (1 << 8 * dtype.size) - 1).to_bytes(dtype.size, "little") for w in words
        )
        assert codes(3, 20, dtype).tobytes() == whole
        assert codes(3, 20, dtype).dtype == np.dtype(dtype.numpy)


def test_the_first_samples_do_not_depend_on_the_count() -> None:
    np.testing.assert_array_equal(samples(5, 10), samples(5, 1000)[:10])


def test_mean_and_deviation_are_those_asked_for() -> None:
    drawn = samples(11, 200_000, mean=-2.0, std=3.0).astype(np.float64)
    assert abs(drawn.mean() + 2) < 0.03
    assert abs(drawn.std() - 3) < 0.03
    assert abs(drawn + 2).max() <= 3 * 3.4642


def test_nothing_asked_gives_nothing() -> None:
    assert samples(0, 0).shape == (0,)
    assert samples(0, 0).dtype == np.float32
    assert codes(0, 0, DType.I8).shape == (0,)


def test_float_codes_are_refused() -> None:
    with pytest.raises(ValueError, match="codes are integers, got f32"):
        codes(0, 1, DType.F32)
