"""Where faults enter the machine: hooks that the engine calls, and the log of what they did.

Invariant: an engine without hooks never comes here; a fault is a function of its seed and of the
cycle, so that every run with it can be repeated.

| phase | when | cycle |
| --- | --- | --- |
| LOADED | memories exist, constants are in place | 0 |
| RUN_STARTS | the host has written the inputs | of the start |
| TOA_READS | a TOA is about to read its operands | of the TOA's start |
| TOA_WRITES | a TOA is about to write its output | of the TOA's end |
| TOA_DONE | it has written, or has left its sums in the accumulators | of the TOA's end |
| RUN_ENDS | the host is about to read the outputs | of the end |

Cycles count from the load and go on from run to run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npufw.kernels.base import Step
from npufw.memory import Memory

if TYPE_CHECKING:
    from npufw.boot import Image

__all__ = ["BitFlips", "FaultEvent", "Hook", "Machine", "Moment", "Outcome", "Phase"]


class Phase(Enum):
    """What the machine is about to do or has just done; the module's table says when."""

    LOADED = auto()
    RUN_STARTS = auto()
    TOA_READS = auto()
    TOA_WRITES = auto()
    TOA_DONE = auto()
    RUN_ENDS = auto()


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of a run; ``step`` is the TOA of the phases that have one."""

    phase: Phase
    cycle: int
    step: Step | None = None


class Outcome(StrEnum):
    """What an event was: a fault that came in, or what a defence did about one."""

    INJECTED = auto()
    DETECTED = auto()
    REPAIRED = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """Something that a fault or a defence did: which kind of them, in which cycle, and what."""

    kind: str
    cycle: int
    text: str
    outcome: Outcome = Outcome.INJECTED

    def __str__(self) -> str:
        return f"{self.kind} {self.outcome}: {self.text} in cycle {self.cycle}"

    def as_dict(self) -> dict[str, str | int]:
        """Return the event for JSON."""
        return {
            "kind": self.kind,
            "outcome": str(self.outcome),
            "cycle": self.cycle,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """What hooks may look at and change, and the log that they write to.

    ``surcharge`` are the cycles that defences have cost since the load, by the defence's name.
    """

    image: Image
    memory: Memory
    log: list[FaultEvent] = field(default_factory=list)
    surcharge: Counter[str] = field(default_factory=Counter)


class Hook:
    """A fault, or a defence against one: override what it needs."""

    def at(self, machine: Machine, moment: Moment) -> None:
        """Look at the machine or change its memory."""

    def transferred(self, machine: Machine, moment: Moment, data: NDArray[Any]) -> NDArray[Any]:
        """Return what a DMA has read, of the same shape and dtype; *moment* is its TOA_READS."""
        return data

    def summed(self, machine: Machine, moment: Moment, sums: NDArray[Any]) -> NDArray[Any]:
        """Return what the MAC unit's sums are when they are read out; *moment* is its TOA_READS.

        The last axis is the output channel; *sums* of codes are whole numbers, and may be changed
        in place.
        """
        return sums


class BitFlips(Hook):
    """*bits* bits flip in *cycle*, at different places among *size* bytes of *space* from *first*.

    Places are the raw words of the documented generator's source, PCG64(*seed*), modulo the number
    of bits; a place that has come before is passed over. Raises ValueError for a region that is
    empty or has too few bits, and when the machine is loaded for one beyond its memory.
    """

    def __init__(
        self, space: Space, *, cycle: int, seed: int, first: int, size: int, bits: int = 1
    ) -> None:
        if first < 0 or not 0 <= bits <= 8 * size:
            raise ValueError(f"{bits} bits do not fit into {size} bytes from {first}")
        self._space, self._cycle, self._first, self._size = space, cycle, first, size
        self._places = _distinct(np.random.PCG64(seed), 8 * size, bits)
        self._due = True

    def at(self, machine: Machine, moment: Moment) -> None:
        """Flip them at the first moment of a run that is not before the cycle."""
        if moment.phase is Phase.LOADED:
            self._fits(machine)
        elif self._due and moment.cycle >= self._cycle:
            self._due = False
            self._flip(machine)

    def _fits(self, machine: Machine) -> None:
        held = len(machine.memory.spaces[self._space])
        if self._first + self._size > held:
            name = self._space.name.lower()
            raise ValueError(f"bytes {self._first} to {self._first + self._size} of {held} {name}")

    def _flip(self, machine: Machine) -> None:
        memory, name = machine.memory.spaces[self._space], self._space.name.lower()
        for place in self._places:
            octet, bit = self._first + place // 8, place % 8
            memory[octet] ^= np.uint8(1 << bit)
            text = f"bit {bit} of byte 0x{octet:x} of {name} flipped to {memory[octet] >> bit & 1}"
            machine.log.append(FaultEvent("bit_flip", self._cycle, text))


def _distinct(source: np.random.PCG64, below: int, count: int) -> list[int]:
    found: dict[int, None] = {}
    while len(found) < count:
        found[int(source.random_raw()) % below] = None
    return list(found)
