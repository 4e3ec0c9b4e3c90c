"""Which TOAs have surely ended when another one starts, whatever the units' speeds.

A unit runs its TOAs in ring order, one at a time; a wait names the TOAs of a unit that must have
ended. Order that follows from these through any chain is known, all other is chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npuabi.cycles import waits_of
from npuabi.enums import Unit
from npuabi.records import Toa

__all__ = ["Order"]


class Order:
    """The order of TOAs that stand in ring order, named by their position there.

    ``clocks[p][u]`` is how many TOAs of unit u have surely ended before position p starts;
    ``counts[p]`` which of its unit it is, from 1; ``units[p]`` its unit, from 0.
    """

    def __init__(self, toas: Sequence[Toa]) -> None:
        self.units = [toa.unit - 1 for toa in toas]
        self.counts: list[int] = []
        self.clocks = np.zeros((len(toas), len(Unit)), np.int64)
        self._waits = waits_of(toas)
        self._members: list[list[int]] = [[] for _ in Unit]
        for position, unit in enumerate(self.units):
            own = self._members[unit]
            if own:
                self._join(position, own[-1])
            for earlier in self.waited(position):
                self._join(position, earlier)
            own.append(position)
            self.counts.append(len(own))

    def _join(self, position: int, earlier: int) -> None:
        clock, unit = self.clocks[position], self.units[earlier]
        np.maximum(clock, self.clocks[earlier], out=clock)
        clock[unit] = max(clock[unit], self.counts[earlier])

    def waited(self, position: int) -> Iterator[int]:
        """Yield the TOAs that a TOA's waits name: the last of each unit that must have ended."""
        for unit, count in enumerate(self._waits[position]):
            if count:
                yield self.member(unit, count)

    def member(self, unit: int, count: int) -> int:
        """Return the position of the TOA that is number *count* of *unit*."""
        return self._members[unit][count - 1]
