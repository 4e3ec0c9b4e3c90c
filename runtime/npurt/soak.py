"""``npurt soak``: rounds of random load in emulated time, all invariants checked all the time.

A round is a device of its own with models, memory, clients and faults: jobs are cancelled, fail and
miss deadlines, models are swapped, the device heats up and cools, cores stall and are lost.

Invariant: a round is a function of the seed and its number alone, so a soak that goes on from a
file gives what one in one piece gives, and a failure is replayed by its seed and round.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from npuabi.files import write_atomically
from npuabi.progress import Progress, silent
from npurt.errors import NpurtError
from npurt.events import Model, Simulation
from npurt.observer import Observer
from npurt.physics import Machine, Work
from npurt.policy import PRIORITIES, Job, Policy
from npurt.soak_check import SECOND_US, Broken, Checker, Memory

__all__ = ["ROUND_JOBS", "Failure", "Totals", "keep_totals", "load_totals", "run_round", "soak"]

ROUND_JOBS = 2_000
"""Jobs of a round, refused ones included."""

_MIB = 1 << 20
_MOST_STATE_BYTES = 1 << 20
_STALL_US = 400_000.0
"""The longest stall: shorter than a second, or jobs of that core would wait in vain for one."""


@dataclass(slots=True)
class Totals:
    """What rounds 0 to ``rounds`` - 1 of a seed gave. ``digest`` is of all that happened."""

    seed: int
    rounds: int = 0
    jobs: int = 0
    emulated_s: float = 0.0
    digest: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, other: Totals) -> None:
        """Add the next round."""
        self.rounds += 1
        self.jobs += other.jobs
        self.emulated_s = round(self.emulated_s + other.emulated_s, 6)
        self.digest = (self.digest * 31 + other.digest) & 0xFFFF_FFFF
        self.counts = dict(sorted((Counter(self.counts) + Counter(other.counts)).items()))

    def as_dict(self) -> dict[str, Any]:
        """Return the totals for JSON."""
        return {"schema": 1, **asdict(self)}


class Failure(NpurtError):
    """An invariant was broken; the text names the seed and the round that replay it."""


def soak(
    totals: Totals,
    rounds: int,
    *,
    minutes: float | None = None,
    keep: Callable[[Totals], None] | None = None,
    observer: Observer | None = None,
    progress: Progress = silent,
) -> Totals:
    """Go on from *totals* until there are *rounds*, or *minutes* are over; returns *totals*.

    *keep* is told of them behind every round. Raises Failure.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    progress("rounds", totals.rounds, rounds)
    while totals.rounds < rounds and (end is None or time.monotonic() < end):
        totals.add(run_round(totals.seed, totals.rounds, observer=observer))
        if keep is not None:
            keep(totals)
        progress("rounds", totals.rounds, rounds)
    return totals


def run_round(seed: int, number: int, *, observer: Observer | None = None) -> Totals:
    """Return what round *number* gives. Raises Failure."""
    made = _Round(random.Random(f"{seed} {number}"), observer or Observer())
    try:
        return made.run(seed)
    except (Broken, AssertionError) as error:
        replay = f"npurt soak --seed {seed} --round {number}"
        raise Failure(f"round {number} of seed {seed}: {error}; replay it by: {replay}") from error


class _Round:
    def __init__(self, source: random.Random, observer: Observer) -> None:
        self.random = source
        self.models = [self._model(f"m{n}") for n in range(source.randrange(3, 13))]
        self.sizes = {model.name: self._sizes() for model in self.models}
        self.counts: Counter[str] = Counter()
        self.left = ROUND_JOBS
        cores = source.choice((1, 2, 3, 3, 3, 4))
        self.simulation = Simulation(
            Machine(cores=cores, switch_us=source.choice((0, 500, 5_000))),
            Policy(ageing_us=source.choice((20_000, 300_000, 10_000_000))),
            queue_limit=source.choice((20, 200, 10_000)),
        )
        memory = Memory(source.choice((96, 160, 256)) * _MIB, self.sizes)
        self.memory = memory
        self.checker = Checker(self.simulation, memory, observer)
        self.simulation.observer = self.checker
        mean_us = sum(model.work.alone_us for model in self.models) / len(self.models)
        self.gap_us = mean_us / cores / source.uniform(0.4, 1.2)

    def run(self, seed: int) -> Totals:
        """Let everything happen, until all jobs have ended."""
        simulation = self.simulation
        simulation.at(0.0, self._ask)
        simulation.at(SECOND_US, self._second)
        simulation.at(self.random.uniform(0, 2 * SECOND_US), self._fault)
        simulation.run()
        self.checker.finish()
        counts = self.counts + self.checker.counts
        counts |= Counter({"loads": self.memory.loads, "evictions": self.memory.evictions})
        return Totals(
            seed=seed,
            rounds=1,
            jobs=ROUND_JOBS,
            emulated_s=simulation.time / 1e6,
            digest=self.checker.digest,
            counts=dict(counts),
        )

    def _model(self, name: str) -> Model:
        alone = int(10 ** self.random.uniform(3, 4.7))
        work = Work(alone, int(alone * self.random.random()))
        return Model(name=name, work=work, descriptor_us=alone * self.random.choice((0, 0.01, 0.3)))

    def _sizes(self) -> tuple[int, int]:
        """Return the bytes of a model's weights and of its arena."""
        return int(self.random.uniform(0.1, 24) * _MIB), int(self.random.uniform(0.1, 12) * _MIB)

    @property
    def _going(self) -> bool:
        """Whether jobs are to come, wait or run; not by any account, for those are checked."""
        simulation = self.simulation
        at_work = any(core.job is not None for core in simulation.cores)
        return self.left > 0 or at_work or len(simulation.policy) > 0

    def _ask(self) -> None:
        """Submit one job, or a burst, and come back after as long as that many take."""
        source, simulation = self.random, self.simulation
        burst = 40 if source.random() < 0.02 else 1
        for _ in range(min(burst, self.left)):
            self.left -= 1
            self._submit()
        if self.left:
            simulation.at(
                simulation.time + source.expovariate(1 / (self.gap_us * burst)), self._ask
            )

    def _submit(self) -> None:
        source, simulation = self.random, self.simulation
        cores = frozenset({source.randrange(len(simulation.cores))})
        late = int(simulation.time + source.expovariate(1 / 200_000)) + 1
        job = simulation.submit(
            source.choice(self.models),
            priority=source.randrange(PRIORITIES),
            cores=cores if source.random() < 0.1 else None,
            deadline_us=late if source.random() < 0.1 else None,
        )
        if job is not None and source.random() < 0.1:
            due = simulation.time + source.expovariate(1 / 50_000)
            simulation.at(due, lambda: self._cancel(job))

    def _cancel(self, job: Job) -> None:
        if not self.simulation.cancel(job):
            self.counts["cancelled too late"] += 1

    def _second(self) -> None:
        self.checker.second()
        if self._going:
            self.simulation.at(self.simulation.time + SECOND_US, self._second)

    def _fault(self) -> None:
        """Let one thing go wrong, and the next one a second or two later."""
        source, simulation = self.random, self.simulation
        kind = source.choice(("fail", "swap", "swap", "heat", "stall", "lose"))
        core = source.randrange(len(simulation.cores))
        if kind == "fail":
            simulation.fail(core)
        elif kind == "swap":
            self._swap()
        elif kind == "heat":
            simulation.heat(source.choice((1.0, 1.0, 1.3, 2.0)))
        elif kind == "stall":
            simulation.stall(core, simulation.time + source.uniform(0, _STALL_US))
        elif sum(each.healthy for each in simulation.cores) > 1 and simulation.cores[core].healthy:
            simulation.take_out(core)
        else:
            kind = "none"
        self.counts[f"fault {kind}"] += kind != "none"
        if self._going:
            due = self.simulation.time + self.random.uniform(1, 2) * SECOND_US
            self.simulation.at(due, self._fault)

    def _swap(self) -> None:
        """Put a new version in a model's place: jobs that are there keep the old one."""
        place = self.random.randrange(len(self.models))
        base, _, version = self.models[place].name.partition(".")
        model = self._model(f"{base}.{int(version or 0) + 1}")
        self.models[place] = model
        self.sizes[model.name] = self._sizes()


def load_totals(path: str, seed: int | None) -> Totals:
    """Return the totals in the file at *path*; of *seed*, or 1, where there is no file yet.

    Raises NpurtError for a file that is no soak's, or another seed's; OSError.
    """
    file = Path(path)
    if not file.exists():
        return Totals(seed=1 if seed is None else seed)
    with file.open("rb") as stream:
        raw = stream.read(_MOST_STATE_BYTES + 1)
    totals = _totals(raw)
    if totals is None:
        raise NpurtError(f"{path}: this is no state of npurt soak")
    if seed not in (None, totals.seed):
        raise NpurtError(f"{path}: this is of seed {totals.seed}, not of seed {seed}")
    return totals


def _totals(raw: bytes) -> Totals | None:
    """Return what *raw* holds, None where it is nothing that ``keep_totals`` wrote."""
    try:
        given = json.loads(raw)
        if len(raw) > _MOST_STATE_BYTES or given.pop("schema") != 1:
            return None
        totals = Totals(**given)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    whole = [totals.seed, totals.rounds, totals.jobs, totals.digest]
    right = isinstance(totals.counts, dict) and isinstance(totals.emulated_s, float)
    right = right and 0 <= totals.emulated_s < math.inf
    if not right or any(type(n) is not int or n < 0 for n in (*whole, *totals.counts.values())):
        return None
    return totals


def keep_totals(path: str, totals: Totals) -> None:
    """Write *totals* to *path*, whole or not at all."""
    write_atomically(path, (json.dumps(totals.as_dict(), indent=2) + "\n").encode())
