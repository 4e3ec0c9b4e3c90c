"""Seeded draws for faults: raw words of PCG64, so that every numpy gives the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Source"]

T = TypeVar("T")
_WORD = 2.0**-64


class Source:
    """A stream of draws that follows from *seed* alone."""

    def __init__(self, *seed: int) -> None:
        self._raw = np.random.PCG64(list(seed))

    def below(self, count: int) -> int:
        """Return a whole number from 0 to *count* - 1."""
        return int(self._raw.random_raw()) % count

    def one_of(self, items: Sequence[T]) -> T:
        """Return one of *items*."""
        return items[self.below(len(items))]

    def distinct(self, below: int, count: int) -> list[int]:
        """Return *count* different whole numbers from 0 to *below* - 1; fewer if there are not."""
        found: dict[int, None] = {}
        while len(found) < min(count, below):
            found[self.below(below)] = None
        return list(found)

    def hits(self, count: int, rate: float) -> NDArray[np.int64]:
        """Return which of *count* trials hit when each does with probability *rate*, in order."""
        if rate >= 1:
            return np.arange(count, dtype=np.int64)
        if rate <= 0 or count == 0:
            return np.zeros(0, np.int64)
        parts, reached = [], -1
        while reached < count:
            words = np.asarray(self._raw.random_raw(int(count * rate * 1.1) + 4))
            chances = (words.astype(np.float64) + 0.5) * _WORD
            gaps = np.minimum(np.log(chances) / math.log1p(-rate), float(count)).astype(np.int64)
            parts.append(reached + np.cumsum(gaps + 1))
            reached = int(parts[-1][-1])
        found = np.concatenate(parts)
        return found[found < count]

    def bell(self, count: int) -> NDArray[np.float64]:
        """Return *count* draws of mean 0 and deviation 1: four 16-bit fields of a word, summed."""
        words = np.asarray(self._raw.random_raw(count), np.uint64)
        fields = sum(((words >> np.uint64(16 * i)) & np.uint64(0xFFFF)) for i in range(4))
        centred = np.asarray(fields, np.float64) - 2.0 * 0xFFFF
        return centred / (0x10000 * math.sqrt(1 / 3))
