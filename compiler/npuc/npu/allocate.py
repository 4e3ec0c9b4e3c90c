"""Offsets for buffers with live ranges: greedy by size, each at the cheapest free offset.

Two buffers whose ranges meet never overlap. The lower bound is the largest sum of sizes that are
live at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Request", "allocate", "lower_bound"]

Ints = NDArray[np.int64]


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
    cost: Callable[[int, int, Sequence[int | None]], float] | None = None,
) -> list[int | None]:
    """Return an offset for each request, None where it does not fit *capacity*.

    ``cost(index, offset, offsets so far)`` ranks the free offsets of a request, lowest first; ties
    and no cost take the lowest. ``steps`` adds the multiples of that size as candidates.
    """
    order = sorted(range(len(requests)), key=lambda i: (-requests[i].size, requests[i].first, i))
    first = np.array([r.first for r in requests], np.int64)
    last = np.array([r.last for r in requests], np.int64)
    begin = np.full(len(requests), -1, np.int64)
    end = np.full(len(requests), -1, np.int64)
    offsets: list[int | None] = [None] * len(requests)
    for index in order:
        request = requests[index]
        met = (begin >= 0) & (first <= request.last) & (last >= request.first)
        free = _free_offsets(begin[met], end[met], request.size, alignment, capacity, steps)
        if not free:
            continue
        chosen = free[0]
        if cost is not None:
            chosen = min(free, key=lambda o: (cost(index, o, offsets), o))
        offsets[index], begin[index], end[index] = chosen, chosen, chosen + request.size
    return offsets


def _free_offsets(
    begin: Ints, end: Ints, size: int, alignment: int, capacity: int | None, steps: int | None
) -> list[int]:
    """Return the candidate offsets at which *size* bytes touch none of the given spans."""
    spans = np.argsort(begin, kind="stable")
    begin, end = begin[spans], end[spans]
    starts = np.concatenate([[0], -(-end // alignment) * alignment])
    if steps is not None and capacity is not None:
        starts = np.concatenate([starts, np.arange(0, capacity, steps, dtype=np.int64)])
    starts = np.unique(starts)
    if capacity is not None:
        starts = starts[starts + size <= capacity]
    if not begin.size:
        return [int(s) for s in starts]
    reach = np.maximum.accumulate(end)
    before = np.searchsorted(begin, starts + size, side="left")
    clear = (before == 0) | (reach[np.maximum(before - 1, 0)] <= starts)
    return [int(s) for s in starts[clear]]
