"""First fit: what the buddy allocator is compared with, and what devices in the field had.

The lowest hole that is large enough is cut; freed pieces join with the holes beside them. Pieces
are multiples of 4 KiB, without guards, and so are the holes that stay between those that live long.
"""

from __future__ import annotations

from bisect import bisect_left

from npufw.allocator import Allocator, GuardedMemory

__all__ = ["FirstFitAllocator"]


class FirstFitAllocator(Allocator):
    """Gives out pieces of a pool of *pool* bytes; each costs time in the number of holes."""

    unit = 4 << 10

    def __init__(self, pool: int, *, guard: int = 0, memory: GuardedMemory | None = None) -> None:
        super().__init__(pool, guard=guard, memory=memory)
        self._starts = [0]
        self._spans_of = {0: self.pool}

    def largest_free(self) -> int:
        """Return the span of the largest hole in bytes."""
        return max(self._spans_of.values(), default=0)

    def _take(self, span: int) -> tuple[int, int] | None:
        span = -(-span // self.unit) * self.unit
        for index, start in enumerate(self._starts):
            hole = self._spans_of[start]
            if hole >= span:
                del self._starts[index], self._spans_of[start]
                if hole > span:
                    self._starts.insert(index, start + span)
                    self._spans_of[start + span] = hole - span
                return start, span
        return None

    def _give(self, address: int, span: int) -> None:
        index = bisect_left(self._starts, address)
        if index < len(self._starts) and self._starts[index] == address + span:
            span += self._spans_of.pop(self._starts.pop(index))
        if index and (before := self._starts[index - 1]) + self._spans_of[before] == address:
            self._spans_of[before] += span
            return
        self._starts.insert(index, address)
        self._spans_of[address] = span

    def _free(self) -> list[tuple[int, int]]:
        return sorted(self._spans_of.items())
