"""How long a job takes at worst: a bound for each group of clients whose arrivals have one.

For a priority the bound is the fixed point of R = B + E(R) / m + H(R) + S + C, the most over its
groups, and a group's own bound is the right side at that R.

- C is the group's own run when all other cores read DDR as much as any model does; S is a switch.
- B is the longest descriptor of a lower priority. Each of the m cores may have one in turn when
  others of higher priorities take those that were to yield; without these there is one.
- E is the work of its own priority that can be there before it: what came within the last R, as
  each of that takes at most R. It is spread over the m cores, for a job that has not begun waits
  only while all of them work on what comes before it (Bertogna 2007).
- H is the work of higher priorities that is there or comes within R, each with the switch to it and
  the one back. It is not divided, as a preempted job keeps its core (Joseph and Pandya 1986).

There is none where arrivals have none (Poisson), where the fixed point lies beyond the scenario's
end, and where clients of the priority or a higher one name their cores. The bound holds for jobs
that end, as long as no core is taken out or stalls, no job is made to fail, and no job of a lower
priority has waited until it rose to the group's; ``Simulation.risen`` counts jobs that rose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from npurt.events import Model
from npurt.physics import slowdowns
from npurt.scenario import Client, Scenario

__all__ = ["worst_responses_us", "worst_run_us"]

_MOST_ROUNDS = 10_000
_SLIVER = 1e-3
"""Microseconds that are rounding error."""


def worst_run_us(scenario: Scenario, model: Model) -> float:
    """Return a run of *model* while all other cores run what reads DDR most, at full heat."""
    heaviest = max(scenario.models.values(), key=lambda m: m.work.ddr_us / m.work.alone_us)
    works = (model.work, *(heaviest.work,) * (scenario.machine.cores - 1))
    heat = max((f.values["slowdown"] for f in scenario.faults if f.kind == "heat"), default=1.0)
    return model.work.alone_us * slowdowns(works)[0] * heat


def worst_responses_us(scenario: Scenario) -> list[float | None]:
    """Return how long a job of each group of clients takes at most from submission to result.

    None where there is no bound.
    """
    found: list[float | None] = [None] * len(scenario.clients)
    groups = [_Group(scenario, number, client) for number, client in enumerate(scenario.clients)]
    over: list[tuple[_Group, float]] = []
    for priority in sorted({client.priority for client in scenario.clients}, reverse=True):
        same = [group for group in groups if group.client.priority == priority]
        lower = [group for group in groups if group.client.priority < priority]
        blocking = max((group.descriptor_us for group in lower), default=0.0)
        most = _Level(scenario, same, over, blocking).most()
        if most is None:
            break
        for group, response in zip(same, most, strict=True):
            found[group.number] = response
        over += [(group, max(most)) for group in same]
    return found


class _Group:
    """A group of clients: what a job of it costs at worst."""

    def __init__(self, scenario: Scenario, number: int, client: Client) -> None:
        self.number, self.client = number, client
        model = scenario.models[client.model]
        self.alone_us = model.work.alone_us
        self.run_us = worst_run_us(scenario, model)
        descriptor_us = min(model.descriptor_us, self.alone_us)
        self.descriptor_us = descriptor_us * self.run_us / self.alone_us

    def before(self, response: float) -> float:
        """Return how many jobs of it can be there when one of its priority comes, that included."""
        if self.client.arrivals == "closed":
            return self.client.count
        return self.client.count * self._arriving(response)

    def within(self, response: float, own: float) -> float:
        """Return how many jobs, of at most *own* each, take a part of a lower job's response."""
        if self.client.arrivals == "closed":
            cycle = self.alone_us + self.client.values["gap_ms"]
            return self.client.count * (1.0 + (response + self.alone_us) // cycle)
        return self.client.count * self._arriving(response + own)

    def _arriving(self, window_us: float) -> float:
        """Return how many jobs one client can submit in a window that is open on one side."""
        values = self.client.values
        late = values.get("jitter_ms", 0.0)
        return values.get("size", 1.0) * max(1, math.ceil((window_us + late) / values["period_ms"]))


@dataclass(frozen=True, slots=True)
class _Level:
    """The groups of one priority, and those above it with what a job of theirs takes at most."""

    scenario: Scenario
    same: list[_Group]
    over: list[tuple[_Group, float]]
    blocking_us: float

    def most(self) -> list[float] | None:
        """Return the bound of each group, None where there is none."""
        clients = [group.client for group in self.same]
        if any(c.arrivals == "poisson" or c.cores is not None for c in clients):
            return None
        response = 0.0
        for _ in range(_MOST_ROUNDS):
            found = self._given(response)
            if max(found) <= response + _SLIVER:
                return found
            response = max(found)
            if response > self.scenario.duration_us:
                return None
        return None

    def _given(self, response: float) -> list[float]:
        """Return each group's bound if none of this priority took longer than *response*."""
        cores, switch_us = self.scenario.machine.cores, self.scenario.machine.switch_us
        before = sum(group.before(response) * (group.run_us + switch_us) for group in self.same)
        higher = sum(
            group.within(response, own) * (group.run_us + 2 * switch_us) for group, own in self.over
        )
        fixed = self.blocking_us * (cores if self.over else 1) + switch_us + higher
        return [
            fixed + group.run_us + (before - group.run_us - switch_us) / cores
            for group in self.same
        ]
