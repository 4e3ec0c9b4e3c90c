"""Orders in which the units may run a program's TOAs, drawn without any clock.

An order is any in which each unit starts its TOAs in ring order, one behind the other, and none
before its waits hold. Invariant: computed from the records alone, and not by the firmware's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random

from npuabi.enums import Unit
from npuabi.records import Toa
from npufw.boot import Image
from npufw.engine import Event
from tests.hazards import waits_of

__all__ = ["legal_order", "orders"]

Choice = Callable[[list[tuple[Unit, bool]]], tuple[Unit, bool]]
"""Picks what happens next among (unit, whether it starts a TOA or ends one)."""


def legal_order(toas: Sequence[Toa], choose: Choice) -> list[Event]:
    """Return the events of *toas*, which stand in ring order, as *choose* lets them happen."""
    queues = {unit: [i for i, toa in enumerate(toas) if toa.unit is unit] for unit in Unit}
    done = dict.fromkeys(Unit, 0)
    running: dict[Unit, bool] = dict.fromkeys(Unit, False)
    events: list[Event] = []
    while len(events) < 2 * len(toas):
        able = [
            (unit, not running[unit])
            for unit in Unit
            if running[unit]
            or (
                done[unit] < len(queues[unit])
                and all(done[u] >= n for u, n in waits_of(toas[queues[unit][done[unit]]]))
            )
        ]
        unit, starts = choose(able)
        events.append((queues[unit][done[unit]], starts))
        running[unit] = starts
        done[unit] += not starts
    return events


def orders(image: Image, count: int, random: Random) -> Iterator[list[Event]]:
    """Yield *count* legal orders: first those in which one unit hurries ahead, then any."""
    toas = [step.toa for step in image.steps]
    ranks = [*permutations(Unit)]
    random.shuffle(ranks)
    for number in range(count):
        if number % 3 == 2:
            yield legal_order(toas, random.choice)
        else:
            rank = ranks[number % len(ranks)]
            yield legal_order(toas, _Hurried(rank, ends_last=number % 2 == 0))


@dataclass(frozen=True)
class _Hurried:
    """Takes the event of the first unit of *rank*; with *ends_last* all starts go before ends."""

    rank: Sequence[Unit]
    ends_last: bool

    def __call__(self, able: list[tuple[Unit, bool]]) -> tuple[Unit, bool]:
        return min(able, key=lambda e: (self.ends_last and not e[1], self.rank.index(e[0])))
