"""Where faults enter the machine: hooks that the engine calls, and the log of what they did.

Invariant: an engine without hooks never comes here; a fault is a function of its seed and of the
cycle, so that every run with it can be repeated.

| phase | when | cycle |
| --- | --- | --- |
| LOADED | memories exist, constants and the states' first values are in place | 0 |
| STATES_SET | the host has written the states | of the last end |
| RUN_STARTS | the host has written the inputs | of the start |
| HEADER_CHECKS | defences check the table's header | of the start |
| HEADER_READS | the fetcher is about to use it | of the start |
| TOA_STARTS | a TOA's descriptor is about to be fetched | of the TOA's start |
| TOA_CHECKS | defences check its descriptor and its operands | of the TOA's start |
| TOA_READS | it is about to read its operands | of the TOA's start |
| TOA_WRITES | a TOA is about to write its output | of the TOA's end |
| TOA_WRITTEN | it has written, or left its sums; defences note the output | of the TOA's end |
| TOA_DONE | the same, and the defences have seen it | of the TOA's end |
| RUN_ENDS | all TOAs have ended | of the end |
| OUTPUT_CHECKS | defences check the outputs | of the end |
| OUTPUT_READS | the host is about to read the outputs | of the end |
| REFUSED | the job was refused; the states are those of its start | of the refusal |

Faults act in phases in which no defence acts (``FREE``), or in the READS between check and use.
Cycles count from the load and go on from run to run; what defences cost is counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npufw.kernels.base import Step
from npufw.memory import Memory

if TYPE_CHECKING:
    from npufw.boot import Image
    from npufw.calls import Call
    from npufw.descriptors import DescriptorMemory
    from npufw.version import VersionRegister

__all__ = ["FREE", "BitFlips", "FaultEvent", "Hook", "Machine", "Moment", "Outcome", "Phase"]


class Phase(Enum):
    """What the machine is about to do or has just done; the module's table says when."""

    LOADED = auto()
    STATES_SET = auto()
    RUN_STARTS = auto()
    HEADER_CHECKS = auto()
    HEADER_READS = auto()
    TOA_STARTS = auto()
    TOA_CHECKS = auto()
    TOA_READS = auto()
    TOA_WRITES = auto()
    TOA_WRITTEN = auto()
    TOA_DONE = auto()
    RUN_ENDS = auto()
    OUTPUT_CHECKS = auto()
    OUTPUT_READS = auto()
    REFUSED = auto()


FREE = frozenset({Phase.TOA_STARTS, Phase.TOA_WRITES, Phase.TOA_DONE, Phase.RUN_ENDS})
"""Phases in which memory may change without a defence in between."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of a run; ``step`` is the TOA of the phases that have one.

    ``written`` are the bytes of its output's space that a TOA which runs again has written, where
    that is not the whole output.
    """

    phase: Phase
    cycle: int
    step: Step | None = None
    written: NDArray[np.int64] | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What hooks may look at and change, and the log that they write to.

    ``calls`` are the TOAs in ring order. ``surcharge`` are the cycles that defences have cost since
    the load, by the defence's name.
    """

    image: Image
    memory: Memory
    calls: Sequence[Call]
    descriptors: DescriptorMemory
    register: VersionRegister
    hooks: tuple[Hook, ...] = ()
    log: list[FaultEvent] = field(default_factory=list)
    surcharge: Counter[str] = field(default_factory=Counter)

    def tell(self, moment: Moment) -> None:
        """Tell all hooks of *moment*."""
        for hook in self.hooks:
            hook.at(self, moment)

    def note(self, kind: str, moment: Moment, outcome: Outcome, text: str) -> None:
        """Log what a fault or a defence did at *moment*."""
        self.log.append(FaultEvent(kind, moment.cycle, text, outcome))

    def compute(self, call: Call, moment: Moment) -> NDArray[Any] | None:
        """Return what *call* computes, as the hooks leave it; *moment* is its TOA_READS."""
        sums = call.arrays.sums
        sums.stage = partial(self._read_out, moment)
        try:
            # Flipped floats may be any: no kernel expects them, and none may warn of them.
            with np.errstate(all="ignore"):
                result = call.compute()
        finally:
            sums.stage = None
        if call.kernel.raw and result is not None:
            for hook in self.hooks:
                result = hook.transferred(self, moment, result)
        return result

    def holds(self, moment: Moment, expected: int, found: int) -> bool:
        """Return whether two CRCs agree, as the check unit says."""
        agrees = expected == found
        for hook in self.hooks:
            agrees = hook.compared(self, moment, agrees)
        return agrees

    def _read_out(self, moment: Moment, sums: NDArray[Any]) -> NDArray[Any]:
        for hook in self.hooks:
            sums = hook.summed(self, moment, sums)
        return sums


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

    def report(self) -> dict[str, Any]:
        """Return what the runs since the load met, for JSON, under a name of its own."""
        return {}

    def report_lines(self) -> Iterator[str]:
        """Yield the same for people."""
        return iter(())

    def compared(self, machine: Machine, moment: Moment, agrees: bool) -> bool:
        """Return what the check unit says of two CRCs that do or do not agree."""
        return agrees


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
        """Flip them at the first free moment that is not before the cycle."""
        if moment.phase is Phase.LOADED:
            self._fits(machine)
        elif self._due and moment.phase in FREE and moment.cycle >= self._cycle:
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
