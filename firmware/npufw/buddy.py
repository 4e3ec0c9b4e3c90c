"""The buddy allocator of device memory: blocks of 64 KiB times a power of two, guards included.

A block of 2^k units lies at a multiple of 2^k units; its buddy is the other half of the block of
2^(k+1). A free block whose buddy is free is joined with it at once, so what is free is always in
the largest blocks that there can be. A pool that is no power of two is a forest: the top blocks are
its size written in binary, the largest first.

    100 units:   64 @ 0   32 @ 64   4 @ 96

Of the free blocks of an order the lowest is taken. Every operation is O(log n). Nothing of the
emulator is needed here: the host runtime uses it as it is.

Invariants beside those of Allocator: blocks are powers of two at multiples of their size; no two
free buddies.
"""

from __future__ import annotations

from heapq import heappop, heappush

from npufw.allocator import Allocator, GuardedMemory

__all__ = ["GUARD_BYTES", "UNIT_BYTES", "BuddyAllocator", "block_bytes"]

UNIT_BYTES = 64 << 10
GUARD_BYTES = 64 << 10
_SPARE = 64
"""Dropped entries that a heap may keep beside as many as it has blocks."""


def block_bytes(size: int, guard: int = GUARD_BYTES) -> int:
    """Return the bytes of the block that *size* bytes and their guard take."""
    return UNIT_BYTES << _order(size + guard)


def _order(span: int) -> int:
    return ((span - 1) // UNIT_BYTES).bit_length()


class BuddyAllocator(Allocator):
    """Gives out blocks of a pool of *pool* bytes; what is no whole unit at its end is not used."""

    unit = UNIT_BYTES

    def __init__(
        self, pool: int, *, guard: int = GUARD_BYTES, memory: GuardedMemory | None = None
    ) -> None:
        super().__init__(pool, guard=guard, memory=memory)
        units = self.pool // UNIT_BYTES
        self.tops = _forest(units)
        self._sets: list[set[int]] = [set() for _ in range(units.bit_length())]
        # Each order's units as a heap; one that has left the set is dropped when it comes up.
        self._heaps: list[list[int]] = [[] for _ in self._sets]
        self._orders = 0
        for first, order in self.tops:
            self._insert(first, order)

    def largest_free(self) -> int:
        """Return the span of the largest free block in bytes."""
        return UNIT_BYTES << self._orders.bit_length() - 1 if self._orders else 0

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold."""
        super().check()
        with self._lock:
            for piece in self.blocks():
                units, first = piece.span // UNIT_BYTES, piece.address // UNIT_BYTES
                assert units & (units - 1) == 0, f"{piece} is no power of two"
                assert first % units == 0, f"{piece} is not aligned to its size"
            for order, free in enumerate(self._sets):
                assert bool(free) == bool(self._orders >> order & 1), f"order {order} is misstated"
                assert not any(unit ^ 1 << order in free for unit in free), "two free buddies"
                assert free <= set(self._heaps[order]), f"order {order} has lost a block"

    def _take(self, span: int) -> tuple[int, int] | None:
        order = ((span - 1) // UNIT_BYTES).bit_length()
        larger = self._orders >> order
        if not larger:
            return None
        found = order + (larger & -larger).bit_length() - 1
        first = self._pop(found)
        while found > order:
            found -= 1
            self._insert(first + (1 << found), found)
        return first * UNIT_BYTES, UNIT_BYTES << order

    def _give(self, address: int, span: int) -> None:
        first, order = address // UNIT_BYTES, (span // UNIT_BYTES).bit_length() - 1
        while order < len(self._sets) and (buddy := first ^ 1 << order) in self._sets[order]:
            self._remove(buddy, order)
            first &= ~(1 << order)
            order += 1
        self._insert(first, order)

    def _free(self) -> list[tuple[int, int]]:
        return sorted(
            (unit * UNIT_BYTES, UNIT_BYTES << order)
            for order, units in enumerate(self._sets)
            for unit in units
        )

    def _insert(self, first: int, order: int) -> None:
        free, heap = self._sets[order], self._heaps[order]
        free.add(first)
        if len(heap) > 2 * len(free) + _SPARE:
            heap[:] = sorted(free)
        else:
            heappush(heap, first)
        self._orders |= 1 << order

    def _pop(self, order: int) -> int:
        free, heap = self._sets[order], self._heaps[order]
        while True:
            first = heappop(heap)
            if first in free:
                self._remove(first, order)
                return first

    def _remove(self, first: int, order: int) -> None:
        free = self._sets[order]
        free.remove(first)
        if not free:
            self._orders &= ~(1 << order)
            self._heaps[order].clear()


def _forest(units: int) -> tuple[tuple[int, int], ...]:
    """Return (first unit, order) of the top blocks, largest first."""
    tops, first = [], 0
    for order in reversed(range(units.bit_length())):
        if units >> order & 1:
            tops.append((first, order))
            first += 1 << order
    return tuple(tops)
