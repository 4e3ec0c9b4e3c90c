"""Bytes that mean nothing are never read: poisoning all of them before each TOA changes nothing.

What means nothing is found from the descriptors alone, by walking the events of a run backwards:
freed memory, lanes beyond the channels, the tails of slots and rows, memory not yet written.
"""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import Space, ToaFlag, Unit
from npufw.engine import Engine
from npufw.errors import FirmwareError
from tests.compiled import Built, built, same
from tests.hazards import dead_before

Event = tuple[int, str]


class _Poisoner:
    """Fills what is dead at each event of a run, and sums that are about to be cleared."""

    def __init__(self, engine: Engine, events: list[Event], poison: int) -> None:
        self._engine = engine
        self._dead = dead_before(engine.image, events)
        self._poison = poison
        self._event = 0

    def __call__(self, index: int, what: str) -> None:
        # "start" is reported before the TOA reads, "end" after it has written.
        dead = self._dead[self._event + (what == "end")]
        self._event += 1
        sram, arena = (self._engine.memory.spaces[s] for s in (Space.SRAM, Space.ARENA))
        sram[dead[: sram.size]] = self._poison
        arena[dead[sram.size :]] = self._poison
        toa = self._engine.image.program.toas[index]
        if what == "start" and toa.unit is Unit.MAC and toa.flags & ToaFlag.CLEAR:
            self._engine.sums.values = np.full((1, 1, 1, 1), self._poison << 20, np.int64)


def _events(found: Built) -> list[Event]:
    seen: list[Event] = []
    engine = Engine(found.image, observe=lambda index, what: seen.append((index, what)))
    engine.run(found.case.frame)
    return seen


@pytest.mark.parametrize("seed", range(30), ids="seed-{}".format)
def test_poison_in_dead_bytes_changes_no_output(seed: int) -> None:
    found = built(seed, ops=5, target="tiny")
    events, expected = _events(found), Engine(found.image).run(found.case.frame)
    for poison in (0x7F, 0x80):
        engine = Engine(found.image)
        engine.observe = _Poisoner(engine, events, poison)
        assert same(engine.run(found.case.frame), expected), found.case.text


class _Spoiler:
    """Inverts what is alive in SRAM before one event."""

    def __init__(self, engine: Engine, events: list[Event]) -> None:
        self._memory = engine.memory.spaces[Space.SRAM]
        starts = [i for i, (_, what) in enumerate(events) if what == "start"]
        self._event = starts[len(starts) // 2]
        self._alive = ~dead_before(engine.image, events)[self._event][: self._memory.size]

    def __call__(self, index: int, what: str) -> None:
        if not self._event:
            self._memory[self._alive] ^= 0xFF
        self._event -= 1


def test_the_same_fill_of_bytes_that_are_alive_changes_outputs() -> None:
    changed = 0
    for seed in range(8):
        found = built(seed, ops=5, target="tiny")
        engine = Engine(found.image)
        engine.observe = _Spoiler(engine, _events(found))
        changed += _shows(engine, found)
    assert changed >= 5


def _shows(engine: Engine, found: Built) -> bool:
    try:
        outputs = engine.run(found.case.frame)
    except FirmwareError:
        return True
    return not same(outputs, Engine(found.image).run(found.case.frame))
