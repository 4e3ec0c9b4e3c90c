"""What the check memory holds for each area: its CRC-32, its writer, and a stamp of that write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from npufw.defences.check_memory import CheckMap
from npufw.memory import Memory

__all__ = ["HOST", "NOBODY", "STATE", "CheckedSums"]

HOST, STATE, NOBODY = -1, -2, -3
"""Writers that are no TOA; those that are have their position in the ring."""


class CheckedSums:
    """Entries by area. Invariant: two writes have different stamps, and later ones larger."""

    def __init__(self, areas: CheckMap) -> None:
        count = len(areas.areas)
        self._map = areas
        self.crcs: list[int | None] = [None] * count
        self.writers = [NOBODY] * count
        self.stamps = [0] * count
        self._clock = 0
        self._kept: dict[int, tuple[int | None, int, int]] = {}

    def note(
        self,
        memory: Memory,
        areas: Iterable[int],
        writer: int,
        known: Mapping[int, int] | None = None,
    ) -> None:
        """Enter what *writer* has just written; *known* are CRCs of what it should have been."""
        self._clock += 1
        for area in areas:
            given = None if known is None else known.get(area)
            self.crcs[area] = self._map.areas[area].crc(memory) if given is None else given
            self.writers[area] = writer
            self.stamps[area] = self._clock

    def forget(self, areas: Iterable[int]) -> None:
        """Enter that nobody knows what is there."""
        self._clock += 1
        for area in areas:
            self.crcs[area], self.writers[area] = None, NOBODY
            self.stamps[area] = self._clock

    def stamped(self, areas: Sequence[int]) -> tuple[int, ...]:
        """Return the stamps of *areas*: as long as they are the same, so is what was written."""
        return tuple(self.stamps[area] for area in areas)

    def keep(self, areas: Iterable[int]) -> None:
        """Remember the entries of *areas*, the states, as a job finds them."""
        self._kept = {a: (self.crcs[a], self.writers[a], self.stamps[a]) for a in areas}

    def put_back(self) -> None:
        """Put back what was kept: the job was refused and the states are what they were."""
        for area, (crc, writer, stamp) in self._kept.items():
            self.crcs[area], self.writers[area], self.stamps[area] = crc, writer, stamp
