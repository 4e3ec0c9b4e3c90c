"""What a campaign is: many seeded trials of one kind, each replayable by its id.

Invariant: a trial is a function of its id alone, so that a failure can be run again by itself and a
campaign can be cut into parts anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from npuabi.progress import Progress

__all__ = ["Campaign", "Tally"]


@dataclass(kw_only=True)
class Tally:
    """What trials gave: how many, the ids and stories of those that failed, and other figures."""

    trials: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """Trials of one kind. ``short`` is what CI runs, ``long`` what ``make soak`` runs.

    ``run`` takes the ids and tells its progress; ids are whole numbers from 0 (what a number means
    is the campaign's business: a seed, or a row of its plan).
    """

    name: str
    title: str
    short: int
    long: int
    run: Callable[[Sequence[int], Progress], Tally]
    group: str = "soak"
    """``soak`` or ``fuzz``: which make target runs it."""

    def ids(self, count: int) -> Sequence[int]:
        """Return *count* ids spread evenly over all ``long`` of them."""
        return [i * self.long // count for i in range(count)] if count < self.long else range(count)
