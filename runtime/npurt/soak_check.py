"""What a soak asks of every moment: an observer that keeps its own books and compares.

Checked: each job ends exactly once, as the simulation says; a core runs one job at a time, one that
may run there, and resumes what it put aside; jobs of one priority and the same cores begin in the
order of their submission; busy times are those of the cores' own accounts; while jobs wait
something happens in every second; arenas and models go back to the device memory, whose bytes and
largest block are then as at the start.

Invariant: a checker only reads what the simulation tells it and its public state.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from npufw.buddy import BuddyAllocator
from npufw.errors import FirmwareError
from npurt.events import Simulation
from npurt.observer import Observer
from npurt.policy import Job, JobState

__all__ = ["Broken", "Checker", "Memory"]

SECOND_US = 1_000_000.0
_ROUNDING_US = 1e-3


class Broken(Exception):
    """An invariant does not hold; the text says which."""


@dataclass(slots=True)
class _Held:
    """A model version on the device: where, and how many jobs have an arena beside it."""

    address: int
    users: int = 0


class Memory:
    """Device memory under a running load: a model's weights once, and an arena a job on a core.

    Weights stay until the room is needed; the least recently used idle ones then go first.
    """

    def __init__(self, size: int, sizes: dict[str, tuple[int, int]]) -> None:
        self.allocator = BuddyAllocator(size)
        self._sizes = sizes
        self._models: dict[str, _Held] = {}
        self._arenas: dict[int, int] = {}
        self._first = self.allocator.usage()
        self.loads = self.evictions = 0

    def begin(self, job: Job) -> bool:
        """Take the arena of *job*, and its model's weights where they are away; False if full."""
        weights, arena = self._sizes[job.model]
        held = self._models.pop(job.model, None)
        if held is None:
            address = self._take(weights, job.model)
            if address is None:
                return False
            held = _Held(address)
            self.loads += 1
        self._models[job.model] = held
        held.users += 1
        address = self._take(arena, f"job {job.number}")
        if address is None:
            held.users -= 1
            return False
        self._arenas[job.number] = address
        return True

    def end(self, job: Job) -> None:
        """Give back the arena of *job*, if it has one."""
        address = self._arenas.pop(job.number, None)
        if address is not None:
            self.allocator.free(address)
            self._models[job.model].users -= 1

    def empty(self) -> None:
        """Give everything back. Raises Broken unless all is as at the start."""
        if self._arenas:
            raise Broken(f"arenas of jobs {sorted(self._arenas)[:5]} were never given back")
        evictions = self.evictions
        while self._evict():
            pass
        self.evictions = evictions
        if self._models:
            raise Broken(f"models {sorted(self._models)[:5]} have users though no job runs")
        if self.allocator.usage() != self._first:
            raise Broken(f"memory is {self.allocator.usage()}, at the start {self._first}")
        self.allocator.check()

    def _take(self, size: int, owner: str) -> int | None:
        while True:
            try:
                return self.allocator.allocate(size, owner)
            except FirmwareError:
                if not self._evict():
                    return None

    def _evict(self) -> bool:
        idle = next((name for name, held in self._models.items() if not held.users), None)
        if idle is None:
            return False
        self.allocator.free(self._models.pop(idle).address)
        self.evictions += 1
        return True


@dataclass(slots=True)
class _Seen:
    """A core in the checker's books."""

    job: Job | None = None
    since_us: float = 0.0
    busy_us: float = 0.0
    aside: list[Job] = field(default_factory=list)


class Checker(Observer):
    """Compares what it is told with its own books; raises Broken at the first difference."""

    def __init__(self, simulation: Simulation, memory: Memory, tell: Observer) -> None:
        self._simulation, self._memory, self._tell = simulation, memory, tell
        self._open: dict[int, Job] = {}
        self._cores = [_Seen() for _ in simulation.cores]
        self._latest: dict[tuple[int, frozenset[int] | None], int] = {}
        self._asked: dict[int, frozenset[int] | None] = {}
        self._begun: set[int] = set()
        self._progress = self._seen_progress = 0
        self._waited = False
        self.counts: Counter[str] = Counter()
        self.digest = 0

    # --- what it is told --------------------------------------------------------------------------

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        """A job waits."""
        self._note(time_us, job, "taken")
        self._demand(job.number not in self._open, job, "was submitted twice")
        limit = self._simulation.queue_limit
        self._demand(limit is None or waiting <= limit, job, "waits in a queue that is too long")
        self._open[job.number] = job
        self._asked[job.number] = job.cores
        self._tell.submitted(time_us, job, waiting)

    def refused(self, time_us: float, reason: str) -> None:
        """A job was not taken."""
        self.counts[f"refused, {reason}"] += 1
        self._tell.refused(time_us, reason)

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        """A core did something with a job."""
        self._note(time_us, job, f"core {what}")
        self._demand(job.number in self._open, job, f"{what}, but it has ended")
        self._HANDLERS[what](self, time_us, core, job)
        self._tell.core(time_us, core, job, what, waiting)

    def ended(self, time_us: float, job: Job, state: JobState, waiting: int) -> None:
        """A job ended."""
        self._note(time_us, job, state.name.lower())
        self._demand(self._open.pop(job.number, None) is job, job, "ended twice")
        self._demand(job.state is state, job, f"ended {state.name}, but is {job.state.name}")
        del self._asked[job.number]
        self._begun.discard(job.number)
        self._tell.ended(time_us, job, state, waiting)

    # --- what it asks -----------------------------------------------------------------------------

    def second(self) -> None:
        """A second has passed: while jobs waited all the time, something must have happened."""
        waits = len(self._simulation.policy) > 0
        if waits and self._waited and self._progress == self._seen_progress:
            raise Broken(f"nothing happened in a second though {len(self._open)} jobs are open")
        self._seen_progress, self._waited = self._progress, waits
        usage = self._memory.allocator.usage()
        self._tell.memory(self._simulation.time, usage.used, usage.largest)

    def finish(self) -> None:
        """All is over: nothing is open, and all accounts agree."""
        if self._open or len(self._simulation.policy):
            raise Broken(f"jobs {sorted(self._open)[:5]} never ended")
        for core, seen in zip(self._simulation.cores, self._cores, strict=True):
            if seen.job is not None or seen.aside:
                raise Broken(f"core {core.number} still has jobs")
            if abs(core.busy_us - seen.busy_us) > _ROUNDING_US * (1 + core.busy_us / SECOND_US):
                raise Broken(f"core {core.number} says {core.busy_us} us, it ran {seen.busy_us}")
        ends = sum(self._simulation.counts.values())
        if ends != self._simulation.submitted:
            raise Broken(f"{self._simulation.submitted} jobs were taken, {ends} ended")
        self._memory.empty()

    # --- inside -----------------------------------------------------------------------------------

    def _take(self, time_us: float, core: int, job: Job) -> None:
        seen = self._cores[core]
        self._demand(seen.job is None, job, f"runs on core {core}, which runs another")
        self._demand(job.may_run_on(core), job, f"runs on core {core}, which is none of its own")
        self._demand(self._simulation.cores[core].healthy, job, f"runs on lost core {core}")
        seen.job, seen.since_us = job, time_us

    def _began(self, time_us: float, core: int, job: Job) -> None:
        self._take(time_us, core, job)
        if job.number not in self._begun and job.cores == self._asked[job.number]:
            key = job.priority, job.cores
            in_order = self._latest.get(key, 0) < job.number
            self._demand(in_order, job, f"begins behind job {self._latest.get(key)}")
            self._latest[key] = job.number
        self._begun.add(job.number)
        if not self._memory.begin(job):
            self.counts["out of memory"] += 1
            self._simulation.at(time_us, lambda: self._give_up(core, job))

    def _resumed(self, time_us: float, core: int, job: Job) -> None:
        self._take(time_us, core, job)
        self._demand(job in self._cores[core].aside, job, f"resumes on core {core}, not aside")
        self._cores[core].aside.remove(job)

    def _leave(self, time_us: float, core: int, job: Job) -> None:
        seen = self._cores[core]
        self._demand(seen.job is job, job, f"leaves core {core}, which does not run it")
        seen.busy_us += time_us - seen.since_us
        seen.job = None

    def _preempted(self, time_us: float, core: int, job: Job) -> None:
        self._leave(time_us, core, job)
        self._cores[core].aside.append(job)

    def _over(self, time_us: float, core: int, job: Job) -> None:
        self._leave(time_us, core, job)
        self._memory.end(job)

    def _lost(self, time_us: float, core: int, job: Job) -> None:
        seen = self._cores[core]
        if job in seen.aside:
            seen.aside.remove(job)
        else:
            self._leave(time_us, core, job)
        self._memory.end(job)

    _HANDLERS: ClassVar[dict[str, Callable[[Checker, float, int, Job], None]]] = {
        "began": _began,
        "resumed": _resumed,
        "preempted": _preempted,
        "done": _over,
        "failed": _over,
        "lost": _lost,
    }

    def _give_up(self, core: int, job: Job) -> None:
        """No room for *job*: it fails."""
        if self._simulation.cores[core].job is job:
            self._simulation.fail(core)

    def _note(self, time_us: float, job: Job, what: str) -> None:
        self._progress += what != "taken"
        self.counts[what] += what not in ("core done", "core failed")
        self.digest = zlib.crc32(b"%d %d %s" % (time_us, job.number, what.encode()), self.digest)

    def _demand(self, right: bool, job: Job, text: str) -> None:
        if not right:
            raise Broken(f"at {self._simulation.time:.3f} us job {job.number} {text}")
