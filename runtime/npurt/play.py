"""Playing a scenario in emulated time: arrivals and faults in, what each group of clients got out.

Invariant: all random numbers come from the scenario's seed, drawn in the order of events.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from npuabi.progress import Progress, silent
from npurt.events import Simulation
from npurt.observer import Observer
from npurt.policy import Job, JobState, Policy
from npurt.scenario import Client, Scenario

__all__ = ["Group", "Played", "play"]

_STEPS = 100
"""Of the progress bar."""


@dataclass(slots=True)
class Group:
    """What one group of clients got. Times in microseconds, one for each finished job.

    ``responses`` are from submission to result, ``services`` from the first core to the result,
    ``waits`` from submission to the first core.
    """

    client: Client
    submitted: int = 0
    rejected: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    responses: list[float] = field(default_factory=list)
    services: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the group for JSON."""
        return {
            "model": self.client.model,
            "arrivals": self.client.arrivals,
            "clients": self.client.count,
            "priority": self.client.priority,
            "submitted": self.submitted,
            "rejected": self.rejected,
            "done": self.done,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "mean_ms": mean(self.responses) / 1e3,
            "p50_ms": quantile(self.responses, 0.5) / 1e3,
            "p99_ms": quantile(self.responses, 0.99) / 1e3,
            "max_ms": max(self.responses, default=0.0) / 1e3,
            "service_mean_ms": mean(self.services) / 1e3,
            "wait_max_ms": max(self.waits, default=0.0) / 1e3,
        }


@dataclass(slots=True)
class Played:
    """A scenario's end: the simulation as it then is, and what each group got."""

    scenario: Scenario
    simulation: Simulation
    groups: list[Group]

    @property
    def open(self) -> int:
        """Jobs that were still waiting or running when the time was over."""
        return self.simulation.submitted - sum(self.simulation.counts.values())


def mean(values: list[float]) -> float:
    """Return the mean, 0 of nothing."""
    return math.fsum(values) / len(values) if values else 0.0


def quantile(values: list[float], part: float) -> float:
    """Return the smallest value that at least *part* of *values* do not exceed; 0 of nothing."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def play(
    scenario: Scenario, *, observer: Observer | None = None, progress: Progress = silent
) -> Played:
    """Return what becomes of *scenario*; *observer* is told all of it."""
    player = _Player(scenario, observer)
    for step in range(1, _STEPS + 1):
        player.simulation.run(scenario.duration_us * step / _STEPS)
        progress("emulated time", step, _STEPS)
    return Played(scenario, player.simulation, player.groups)


class _Player:
    def __init__(self, scenario: Scenario, observer: Observer | None) -> None:
        self.scenario = scenario
        self.random = random.Random(scenario.seed)
        self.simulation = Simulation(
            scenario.machine,
            Policy(ageing_us=scenario.ageing_us),
            queue_limit=scenario.queue_limit,
            on_end=self._ended,
            observer=observer,
        )
        self.groups = [Group(client) for client in scenario.clients]
        for number, group in enumerate(self.groups):
            for _ in range(group.client.count):
                self._begin(number, group.client)
        for fault in scenario.faults:
            self.simulation.at(fault.values["at_s"], partial(self._fault, fault.kind, fault.values))

    def _begin(self, number: int, client: Client) -> None:
        """Let one client of a group begin: the closed ones at once, the others by their clocks."""
        if client.arrivals == "closed":
            self.simulation.at(0.0, partial(self._ask, number))
        elif client.arrivals == "poisson":
            self._next_poisson(number, client)
        else:
            phase = self.random.random() * client.values["period_ms"]
            self.simulation.at(phase, partial(self._tick, number, client, phase))

    def _next_poisson(self, number: int, client: Client) -> None:
        wait = self.random.expovariate(client.values["rate_per_s"]) * 1e6
        self.simulation.at(self.simulation.time + wait, partial(self._poisson, number, client))

    def _poisson(self, number: int, client: Client) -> None:
        self._ask(number)
        self._next_poisson(number, client)

    def _tick(self, number: int, client: Client, due: float) -> None:
        """A period of a periodic or bursting client, which began at *due*."""
        values = client.values
        if client.arrivals == "burst":
            for _ in range(int(values["size"])):
                self._ask(number)
        else:
            late = self.random.random() * values["jitter_ms"]
            self.simulation.at(due + late, partial(self._ask, number))
        due += values["period_ms"]
        self.simulation.at(due, partial(self._tick, number, client, due))

    def _ask(self, number: int) -> None:
        group, simulation = self.groups[number], self.simulation
        client = group.client
        deadline_us = client.values["deadline_ms"]
        due = math.ceil(simulation.time + deadline_us) if deadline_us else None
        model = self.scenario.models[client.model]
        job = simulation.submit(model, number, client.priority, cores=client.cores, deadline_us=due)
        if job is None:
            group.rejected += 1
            if client.arrivals == "closed":
                # A client that is refused tries again after its gap, or a millisecond.
                pause = max(client.values["gap_ms"], 1e3)
                simulation.at(simulation.time + pause, partial(self._ask, number))
            return
        group.submitted += 1
        if self.random.random() < client.values["cancel"]:
            after = self.random.random() * client.values["cancel_after_ms"]
            simulation.at(simulation.time + after, partial(simulation.cancel, job))

    def _ended(self, job: Job, state: JobState) -> None:
        request = job.payload
        group = self.groups[request.client]
        if state is JobState.DONE:
            group.done += 1
            group.responses.append(request.ended_us - request.submitted_us)
            group.services.append(request.ended_us - request.first_us)
            group.waits.append(request.first_us - request.submitted_us)
        elif state is JobState.FAILED:
            group.failed += 1
        else:
            group.cancelled += 1
        if group.client.arrivals == "closed":
            due = self.simulation.time + group.client.values["gap_ms"]
            self.simulation.at(due, partial(self._ask, request.client))

    def _fault(self, kind: str, values: Any) -> None:
        simulation = self.simulation
        if kind == "heat":
            simulation.heat(values["slowdown"])
        elif kind == "job":
            simulation.fail(int(values["core"]))
        elif kind == "stall":
            simulation.stall(int(values["core"]), simulation.time + values["for_ms"])
        elif sum(core.healthy for core in simulation.cores) > 1:
            simulation.take_out(int(values["core"]))
