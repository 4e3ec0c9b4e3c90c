"""How long a job takes at worst: a bound for each group of clients whose arrivals have one.

The bound is the fixed point of R = B + S + C + E / m + H(R). C is the group's own run when all
other cores read DDR as much as any model does; B is the longest descriptor of what it may have to
wait for; S is a switch. E is the work of its own priority that can have come before it, spread over
the m cores, for it waits only while all of them work (Bertogna 2007). H(R) is the work of higher
priorities that can come into a window of R, with the switches to it and back; it is not divided,
as a preempted job keeps its core (Joseph and Pandya 1986). Where that work is more than a core can
do, or arrivals have no bound (Poisson), there is none. The bound holds as long as no job of a lower
priority waits until it has risen to the group's level.
"""

from __future__ import annotations

import math

from npurt.events import Model
from npurt.physics import slowdowns
from npurt.scenario import Client, Scenario

__all__ = ["worst_response_us", "worst_run_us"]

_MOST_ROUNDS = 10_000
_SLIVER = 1e-6


def worst_run_us(scenario: Scenario, model: Model) -> float:
    """Return a run of *model* while all other cores run what reads DDR most, at full heat."""
    heaviest = max(scenario.models.values(), key=lambda m: m.work.ddr_us / m.work.alone_us)
    works = (model.work, *(heaviest.work,) * (scenario.machine.cores - 1))
    heat = max((f.values["slowdown"] for f in scenario.faults if f.kind == "heat"), default=1.0)
    return model.work.alone_us * slowdowns(works)[0] * heat


def worst_response_us(scenario: Scenario, group: Client) -> float | None:
    """Return how long a job of *group* takes at most from submission to result, None if unbounded.

    Cores that are taken out or stall are no part of the bound, nor are jobs that name cores.
    """
    machine = scenario.machine
    others = [c for c in scenario.clients if c.priority >= group.priority]
    lower = [c for c in scenario.clients if c.priority < group.priority]
    if any(c.arrivals == "poisson" or c.cores is not None for c in (*others, group)):
        return None
    same = [c for c in others if c.priority == group.priority]
    higher = [c for c in others if c.priority > group.priority]
    blocking = max((_descriptor_us(scenario, c) for c in lower), default=0.0)
    fixed = blocking + machine.switch_us + worst_run_us(scenario, scenario.models[group.model])
    response = fixed
    for _ in range(_MOST_ROUNDS):
        before = sum(_work_us(scenario, c) * _waiting(c, response, c is group) for c in same)
        over = sum(_work_us(scenario, c) * _arriving(scenario, c, response) for c in higher)
        found = fixed + before / machine.cores + over
        if found <= response + _SLIVER:
            return found
        if found > scenario.duration_us:
            return None
        response = found
    return None


def _descriptor_us(scenario: Scenario, client: Client) -> float:
    model = scenario.models[client.model]
    return model.descriptor_us * worst_run_us(scenario, model) / model.work.alone_us


def _work_us(scenario: Scenario, client: Client) -> float:
    """Return what one job of others costs, with the switches to it and back."""
    run = worst_run_us(scenario, scenario.models[client.model])
    return run + 2 * scenario.machine.switch_us


def _waiting(client: Client, window_us: float, itself: bool) -> float:
    """Return how many jobs of a group of the same priority can stand before one that comes."""
    if client.arrivals == "closed":
        return client.count - itself
    return client.count * _in_window(client, window_us) - itself


def _arriving(scenario: Scenario, client: Client, window_us: float) -> float:
    """Return how many jobs of a group of a higher priority can come into a window."""
    if client.arrivals == "closed":
        alone = scenario.models[client.model].work.alone_us + client.values["gap_ms"]
        return client.count * (1.0 + window_us // alone)
    return client.count * _in_window(client, window_us)


def _in_window(client: Client, window_us: float) -> float:
    values = client.values
    late = values.get("jitter_ms", 0.0)
    return values.get("size", 1.0) * math.ceil((window_us + late) / values["period_ms"])
