"""Offsets for buffers with live ranges: greedy by size, each at the cheapest free offset.

Two buffers whose ranges meet never overlap. The lower bound is the largest sum of sizes that are
live at one moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Request", "allocate", "lower_bound"]

Cost = Callable[[int, int, Sequence[int | None]], float]


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes wanted from the ``first`` to the ``last`` moment, both included."""

    size: int
    first: int
    last: int


def lower_bound(requests: Sequence[Request]) -> int:
    """Return the largest sum of sizes live at one moment."""
    if not requests:
        return 0
    change = np.zeros(max(r.last for r in requests) + 2, np.int64)
    for request in requests:
        change[request.first] += request.size
        change[request.last + 1] -= request.size
    return int(change.cumsum().max())


def allocate(
    requests: Sequence[Request],
    *,
    alignment: int,
    capacity: int | None = None,
    steps: int | None = None,
    cost: Cost | None = None,
) -> list[int | None]:
    """Return an offset for each request, None where it does not fit *capacity*.

    ``cost(index, offset, offsets so far)``, never below 0, ranks the free offsets of a request;
    ties and no cost take the lowest. ``steps``, a multiple of the alignment, adds the multiples of
    that size as candidates.
    """
    order = sorted(range(len(requests)), key=lambda i: (-requests[i].size, requests[i].first, i))
    placed = _Placed(requests)
    for index in order:
        size = requests[index].size
        gaps = _gaps(placed.spans_beside(index), size, alignment, capacity)
        free = (offset for gap in gaps for offset in _candidates(gap, steps))
        placed.offsets[index] = (
            next(free, None)
            if cost is None
            else _cheapest((offset, cost(index, offset, placed.offsets)) for offset in free)
        )
    return placed.offsets


class _Placed:
    """Where requests lie so far; finds those that are live beside another one.

    Requests are kept by the power of two above their length and sorted by first moment, so that a
    search looks at little more than what it finds.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self.offsets: list[int | None] = [None] * len(requests)
        self._requests = requests
        self._classes: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for index in sorted(range(len(requests)), key=lambda i: requests[i].first):
            request = requests[index]
            firsts, indices = self._classes[1 << (request.last - request.first).bit_length()]
            firsts.append(request.first)
            indices.append(index)

    def spans_beside(self, index: int) -> list[tuple[int, int]]:
        """Return (begin, end) of every placed request live beside *index*, lowest first."""
        spans = []
        for other in self._live_beside(self._requests[index]):
            begin = self.offsets[other]
            if begin is not None:
                spans.append((begin, begin + self._requests[other].size))
        return sorted(spans)

    def _live_beside(self, request: Request) -> Iterator[int]:
        for longer, (firsts, indices) in self._classes.items():
            low = bisect_right(firsts, request.first - longer)
            high = bisect_right(firsts, request.last, low)
            for other in indices[low:high]:
                if self._requests[other].last >= request.first:
                    yield other


def _gaps(
    spans: Iterable[tuple[int, int]], size: int, alignment: int, capacity: int | None
) -> Iterator[tuple[int, int | None]]:
    """Yield the first and last offset of each gap between *spans* that holds *size* bytes."""
    low = 0
    for begin, end in spans:
        if low + size <= begin:
            yield low, begin - size
        low = max(low, -(-end // alignment) * alignment)
    if capacity is None or low + size <= capacity:
        yield low, None if capacity is None else capacity - size


def _candidates(gap: tuple[int, int | None], steps: int | None) -> Iterator[int]:
    """Yield the start of a gap, then the multiples of *steps* in it."""
    low, high = gap
    yield low
    if steps is not None and high is not None:
        yield from range((low // steps + 1) * steps, high + 1, steps)


def _cheapest(priced: Iterable[tuple[int, float]]) -> int | None:
    """Return the offset of the lowest price, the first of them; stop at one that is for nothing."""
    best: tuple[int, float] | None = None
    for offset, price in priced:
        if not price:
            return offset
        if best is None or price < best[1]:
            best = offset, price
    return None if best is None else best[0]
