"""Discrete-event model of one core: TOAs in, starts, ends and stalls out.

The fetcher walks the ring and hands descriptors to four units that run at the same time; TOAs
that meet in a bank or in DDR slow each other down. docs/timing.md explains it.

Invariant: events lie on whole cycles and depend on the Works and the target alone. Speeds are
floats, made by +, -, * and / only, so that they are the same on every machine.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from npuabi.cycles import Work
from npuabi.enums import Precision, Unit
from npuabi.errors import AbiError, ErrorCode
from npuabi.target import Target

__all__ = ["COLD_START_CYCLES", "STALLS", "Slot", "Timeline", "simulate"]

COLD_START_CYCLES = 32
"""Fill of a 16 x 16 array, paid by a MAC TOA that does not follow another without a gap."""

STALLS = ("bank_conflict", "dma_wait", "dependency", "descriptor_late", "thermal")
"""Causes of lost cycles, in the order of the reports."""

_UNITS = (Unit.DMA_IN, Unit.DMA_OUT, Unit.MAC, Unit.VECTOR)
_DMA = frozenset({Unit.DMA_IN, Unit.DMA_OUT})
_COMPUTE = (Unit.MAC, Unit.VECTOR)
_DDR = -1
"""DDR as one more bank that both DMA units share."""
_SLIVER = 1e-6
"""Part of a cycle that is rounding error of the speeds and not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """When one TOA ran, and what it lost. All in cycles.

    ``fetched``: the fetcher had the descriptor; ``loaded``: it was in the unit's registers;
    ``ready``: it had been there for its setup cycles. ``slack`` is how long before the start that
    unit and waits allowed it was ready; negative when the descriptor was late. ``lead`` are the
    first cycles, in which no data moves: DMA latency, precision switch, cold start. The stalls
    are those of docs/timing.md.
    """

    start: int
    end: int
    ready: int
    fetched: int
    loaded: int
    slack: int
    lead: int
    alone: int
    bank_conflict: int
    dma_wait: int
    dependency: int
    descriptor_late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run of a program: a slot for each Work, in their order, and sums over them."""

    slots: list[Slot]
    cycles: int
    stalls: dict[str, int]
    busy: dict[Unit, int]


def simulate(works: Sequence[Work], target: Target) -> Timeline:
    """Return when each of *works*, which stand in ring order, runs on one core of *target*.

    Raises AbiError: BAD_FIELD when a wait never holds.
    """
    return _Core(works, target).run()


@dataclass(slots=True)
class _Run:
    """A TOA that runs. At ``since`` its body had ``left`` cycles to do at full speed."""

    index: int
    start: int
    active: int
    end: int
    demand: tuple[tuple[int, float], ...]
    left: float
    since: int
    idle: int
    slowdown: float = 1.0

    def retime(self, time: int, slowdown: float) -> None:
        """Go on from *time* at another speed; it does not end before the next cycle."""
        self.left -= (time - self.since) / self.slowdown
        self.since, self.slowdown = time, slowdown
        self.end = time + max(1, math.ceil(self.left * slowdown - _SLIVER))


@dataclass(slots=True)
class _Engine:
    """One unit: what it runs, what is in its registers, when its TOAs finished."""

    run: _Run | None = None
    loaded: deque[int] = field(default_factory=deque)
    finished: list[int] = field(default_factory=list)
    precision: Precision | None = None

    @property
    def free_at(self) -> int:
        """End of the last TOA that it finished."""
        return self.finished[-1] if self.finished else 0


class _Core:
    """State of the core at ``time``; ``run`` steps from event to event."""

    def __init__(self, works: Sequence[Work], target: Target) -> None:
        self.works = works
        self.target = target
        self.time = 0
        self.engines = {unit: _Engine() for unit in _UNITS}
        self.fetched = [0] * len(works)
        self.loaded = [0] * len(works)
        self.slots: list[Slot | None] = [None] * len(works)
        self.head = 0
        self.oldest = 0
        self.fetch_end: int | None = None
        self.stale = False

    def run(self) -> Timeline:
        while self.oldest < len(self.works):
            self._settle()
            if self.stale:
                self._share()
            if self.oldest < len(self.works):
                self.time = self._next_event()
        return self._timeline()

    def _settle(self) -> None:
        """Do everything that can happen at this cycle; one thing may allow another."""
        moved = True
        while moved:
            self._finish()
            moved = self._fetch()
            moved = self._start() or moved

    def _next_event(self) -> int:
        times = []
        for engine in self.engines.values():
            run = engine.run
            if run is not None:
                times.append(run.end if run.active <= self.time else run.active)
            elif engine.loaded:
                times.append(self._ready(engine.loaded[0]))
        if self.fetch_end is not None:
            times.append(self.fetch_end)
        later = [time for time in times if time > self.time]
        if not later:
            raise AbiError(ErrorCode.BAD_FIELD, self._blocked())
        self._activate(min(later))
        return min(later)

    def _activate(self, time: int) -> None:
        """Note that speeds change when a lead ends at *time*."""
        runs = (engine.run for engine in self.engines.values())
        self.stale = self.stale or any(run is not None and run.active == time for run in runs)

    def _blocked(self) -> str:
        return (
            f"toa {self.oldest} ({self.works[self.oldest].unit.name}) never starts: at cycle "
            f"{self.time} nothing runs and its waits {self.works[self.oldest].waits} do not "
            "hold; a wait must name earlier TOAs of the ring"
        )

    def _ready(self, index: int) -> int:
        return self.loaded[index] + self.works[index].setup_cycles

    def _fetch(self) -> bool:
        """Begin a fetch when the ring allows, end one when its unit has room."""
        if self.fetch_end is None:
            room = self.head < min(len(self.works), self.oldest + self.target.ring_entries)
            if not room:
                return False
            self.fetch_end = self.time + self.target.fetch_cycles
        if self.fetch_end > self.time or self._full(self.works[self.head].unit):
            return False
        self.fetched[self.head] = self.fetch_end
        self.loaded[self.head] = self.time
        self.engines[self.works[self.head].unit].loaded.append(self.head)
        self.head += 1
        self.fetch_end = None
        return True

    def _full(self, unit: Unit) -> bool:
        engine = self.engines[unit]
        held = len(engine.loaded) + (engine.run is not None)
        return held > self.target.waiting_descriptors

    def _start(self) -> bool:
        started = False
        for unit, engine in self.engines.items():
            if engine.run is not None or not engine.loaded:
                continue
            index = engine.loaded[0]
            if self._ready(index) <= self.time and self._waits_hold(index):
                engine.loaded.popleft()
                engine.run = self._begin(index, unit, engine)
                started = self.stale = True
        return started

    def _waits_hold(self, index: int) -> bool:
        pairs = zip(_UNITS, self.works[index].waits, strict=True)
        return all(n is None or len(self.engines[unit].finished) >= n for unit, n in pairs)

    def _begin(self, index: int, unit: Unit, engine: _Engine) -> _Run:
        work = self.works[index]
        body = work.body_cycles
        demand = [(bank, words / body) for bank, words in work.bank_words]
        if unit in _DMA:
            demand.append((_DDR, work.compute_cycles / body))
        active = self.time + work.latency_cycles + self._warm_up(work, unit, engine)
        engine.precision = work.precision
        return _Run(
            index=index,
            start=self.time,
            active=active,
            end=active + body,
            demand=tuple(demand),
            left=float(body),
            since=active,
            idle=self._idle(unit),
        )

    def _idle(self, unit: Unit) -> int:
        """Cycles since any compute unit ran; 0 while one runs, and for DMA."""
        engines = [self.engines[u] for u in _COMPUTE]
        if unit not in _COMPUTE or any(engine.run is not None for engine in engines):
            return 0
        return self.time - max(engine.free_at for engine in engines)

    def _warm_up(self, work: Work, unit: Unit, engine: _Engine) -> int:
        if unit is not Unit.MAC:
            return 0
        cold = not engine.finished or engine.free_at < self.time
        switched = engine.precision not in (None, work.precision)
        return COLD_START_CYCLES * cold + self.target.precision_switch_cycles * switched

    def _share(self) -> None:
        """Give each TOA whose data moves its speed: 1 / the demand on its busiest bank."""
        self.stale = False
        runs = [engine.run for engine in self.engines.values() if engine.run is not None]
        runs = [run for run in runs if run.active <= self.time]
        load: dict[int, float] = {}
        for run in runs:
            for bank, demand in run.demand:
                load[bank] = load.get(bank, 0.0) + demand
        for run in runs:
            run.retime(self.time, max([1.0, *(load[bank] for bank, _ in run.demand)]))

    def _finish(self) -> None:
        for unit, engine in self.engines.items():
            run = engine.run
            if run is None or run.active > self.time or run.end > self.time:
                continue
            self.slots[run.index] = self._slot(run, unit, engine)
            engine.finished.append(run.end)
            engine.run = None
            self.stale = True
        while self.oldest < len(self.works) and self.slots[self.oldest] is not None:
            self.oldest += 1

    def _slot(self, run: _Run, unit: Unit, engine: _Engine) -> Slot:
        index, work, counted = run.index, self.works[run.index], unit not in _DMA
        ready, transfers, results = self._conditions(index)
        allowed = max(engine.free_at, transfers, results)
        stalls = dict.fromkeys(("dma_wait", "dependency", "descriptor_late"), 0)
        stalls["dma_wait" if transfers == run.start else "descriptor_late"] = run.idle
        if unit is Unit.MAC and results == run.start > transfers:
            stalls["dependency"] = run.start - engine.free_at
        return Slot(
            start=run.start,
            end=run.end,
            ready=ready,
            fetched=self.fetched[index],
            loaded=self.loaded[index],
            slack=allowed - ready,
            lead=run.active - run.start,
            alone=work.alone_cycles,
            bank_conflict=run.end - run.active - work.compute_cycles if counted else 0,
            **stalls,
        )

    def _conditions(self, index: int) -> tuple[int, int, int]:
        """When the descriptor was ready, the DMA waits held, and the waits on results held."""
        transfers = results = 0
        for unit, count in zip(_UNITS, self.works[index].waits, strict=True):
            if not count:
                continue
            held = self.engines[unit].finished[count - 1]
            if unit in _DMA:
                transfers = max(transfers, held)
            else:
                results = max(results, held)
        return self._ready(index), transfers, results

    def _timeline(self) -> Timeline:
        slots = [slot for slot in self.slots if slot is not None]
        busy = dict.fromkeys(_UNITS, 0)
        for work, slot in zip(self.works, slots, strict=True):
            busy[work.unit] += slot.end - slot.start
        stalls = {
            "bank_conflict": sum(slot.bank_conflict for slot in slots),
            "dma_wait": sum(slot.dma_wait for slot in slots),
            "dependency": sum(slot.dependency for slot in slots),
            "descriptor_late": sum(slot.descriptor_late for slot in slots),
            "thermal": 0,
        }
        cycles = max((slot.end for slot in slots), default=0)
        return Timeline(slots=slots, cycles=cycles, stalls=stalls, busy=busy)
