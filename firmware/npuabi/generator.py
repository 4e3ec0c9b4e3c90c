"""The documented random generator: the same numbers on every machine and every numpy.

Recipe, for a C program:

1. Seed PCG64 (the 128-bit XSL-RR permuted congruential generator) from numpy's
   ``SeedSequence(seed)``, as ``numpy.random.PCG64(seed)`` does; ``SeedSequence`` is a documented
   hash of the seed's 32-bit words and needs no numpy to write.
2. Take one raw 64-bit word a sample, in order.
3. Sum its four 16-bit fields and subtract 4 * 32767.5 = 131070: about normal, symmetric.
4. A field is uniform on 0..65535 with variance (2^32 - 1) / 12, so the sum has variance
   (2^32 - 1) / 3. In float64: ``mean + centred * (std / sqrt((2^32 - 1) / 3))``, one division,
   one multiplication, one addition, not fused.
5. Round once to float32.

No libm function is used but sqrt, which IEEE 754 rounds correctly.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType

__all__ = ["codes", "sample_places", "samples"]

_CENTRE = 131070
_DEVIATION = math.sqrt(((1 << 32) - 1) / 3)
_BLOCK = 1 << 20
"""Samples made at once: large constants must not need many times their own memory."""

_SCATTER = 2_654_435_761
"""2^32 over the golden ratio: its multiples fill the range evenly (Knuth)."""

_FLOATS = (DType.F16, DType.F32)


def samples(seed: int, count: int, *, mean: float = 0.0, std: float = 1.0) -> NDArray[np.float32]:
    """Return *count* float32 samples around *mean*; none lies beyond 3.47 *std*."""
    source = np.random.PCG64(seed)
    made = np.empty(count, np.float32)
    for first in range(0, count, _BLOCK):
        words = source.random_raw(min(_BLOCK, count - first)).astype(np.uint64)
        total = sum((words >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(4))
        centred = np.asarray(total, np.uint64).astype(np.int64) - _CENTRE
        made[first : first + _BLOCK] = mean + centred.astype(np.float64) * (std / _DEVIATION)
    return made


def codes(seed: int, count: int, dtype: DType) -> NDArray[np.signedinteger | np.unsignedinteger]:
    """Return *count* integers of *dtype*, uniform over its range: the raw words' low bits.

    Raises ValueError for a float type.
    """
    if dtype in _FLOATS:
        raise ValueError(f"codes are integers, got {dtype.text}")
    width = np.dtype(f"<u{dtype.size}")
    words = np.random.PCG64(seed).random_raw(count).astype(np.uint64)
    return words.astype(width).view(dtype.numpy)


def sample_places(count: int, total: int) -> NDArray[np.int64]:
    """Return which of *total* elements *count* samples are: all of them, or scattered ones.

    Sample i is element (i * 2654435761 mod 2^32) * total >> 32, so that no row or column of an
    image is met more often than others.
    """
    numbers = np.arange(count, dtype=np.uint64)
    if count >= total:
        return numbers.astype(np.int64)
    scattered = numbers * np.uint64(_SCATTER) & np.uint64(0xFFFFFFFF)
    return (scattered * np.uint64(total) >> np.uint64(32)).astype(np.int64)
