"""Worst-case responses: no simulation of periodic, bursting and closed clients exceeds one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from npurt.bounds import worst_responses_us, worst_run_us
from npurt.events import Model
from npurt.physics import Machine, Work
from npurt.play import play
from npurt.scenario import Client, Fault, Scenario

NEVER_US = 10**12
ROUNDING_US = 1e-2


def scenario_of(seed: int) -> Scenario:
    """A random load of at most five groups, with at most four cores, now and then too much."""
    source = random.Random(seed)
    models = {name: _model(source, name) for name in "abc"[: source.randrange(1, 4)]}
    clients = tuple(
        _client(source, source.choice(list(models))) for _ in range(source.randrange(1, 6))
    )
    return Scenario(
        seed=seed,
        duration_us=2e6,
        machine=Machine(
            cores=source.randrange(1, 5), switch_us=source.choice((0, 100, 1000, 5000))
        ),
        ageing_us=source.choice((NEVER_US, 10**6)),
        queue_limit=source.choice((10**9, 5)),
        models=models,
        clients=clients,
        faults=(Fault(kind="heat", values={"at_s": 5e5, "slowdown": source.choice((1.0, 1.4))}),),
    )


def _model(source: random.Random, name: str) -> Model:
    alone = source.randrange(500, 20_000)
    work = Work(alone, source.randrange(alone) // source.choice((1, 2, 8)))
    return Model(name=name, work=work, descriptor_us=source.choice((0.0, 50.0, 700.0, 5000.0)))


def _client(source: random.Random, model: str) -> Client:
    arrivals = source.choice(("closed", "periodic", "burst"))
    values = {
        "count": float(source.randrange(1, 4)),
        "priority": float(source.choice((0, 0, 1, 3, 3, 7))),
        "deadline_ms": source.choice((0.0, 0.0, 3e4)),
        "cancel": source.choice((0.0, 0.0, 0.3)),
        "cancel_after_ms": source.random() * 5e4,
        "gap_ms": source.choice((0.0, 500.0, source.random() * 1e5)),
        "period_ms": source.choice((3e4, 1e5, 3e5)) * (0.5 + source.random()),
    }
    if arrivals == "periodic":
        values["jitter_ms"] = source.choice((0.0, source.random() * 2e4))
    if arrivals == "burst":
        values["size"] = float(source.randrange(1, 5))
    return Client(model=model, arrivals=arrivals, values=values)


def test_no_simulated_response_exceeds_its_bound() -> None:
    bounded = 0
    for seed in range(100):
        made = scenario_of(seed)
        played = play(made)
        if played.simulation.risen:
            continue
        for group, bound in zip(played.groups, worst_responses_us(made), strict=True):
            if bound is not None and group.responses:
                bounded += 1
                assert max(group.responses) <= bound + ROUNDING_US, f"seed {seed}: {group.client}"
    assert bounded > 100


def one(*clients: tuple[str, int, dict[str, float]], switch_us: int = 1000) -> Scenario:
    model = Model(name="m", work=Work(10_000, 0), descriptor_us=500.0)
    return Scenario(
        seed=1,
        duration_us=1e6,
        machine=Machine(cores=1, switch_us=switch_us),
        ageing_us=NEVER_US,
        queue_limit=10**9,
        models={"m": model},
        clients=tuple(
            Client(
                model="m", arrivals=arrivals, values={"count": 1.0, "priority": float(p), **more}
            )
            for arrivals, p, more in clients
        ),
    )


CLOSED = ("closed", 0, {"gap_ms": 0.0})
URGENT = ("periodic", 7, {"period_ms": 50_000.0, "jitter_ms": 0.0})


@pytest.mark.parametrize(
    ("clients", "bounds"),
    [
        # alone: a switch and the run
        ([CLOSED], [11_000]),
        # two of one priority: the other one before it
        ([CLOSED, CLOSED], [22_000, 22_000]),
        # an urgent one waits for a descriptor; below it comes one run of it with two switches
        ([URGENT, CLOSED], [11_500, 11_000 + 12_000]),
        ([("poisson", 7, {"rate_per_s": 1.0}), CLOSED], [None, None]),
        ([CLOSED, ("poisson", 0, {"rate_per_s": 1.0})], [None, None]),
        # a load from above that fills the core
        ([("periodic", 7, {"period_ms": 12_000.0, "jitter_ms": 0.0}), CLOSED], [11_500, None]),
    ],
)
def test_a_bound_is_what_can_stand_before_a_job(
    clients: list[tuple[str, int, dict[str, float]]], bounds: list[float | None]
) -> None:
    assert worst_responses_us(one(*clients)) == [
        b if b is None else pytest.approx(b) for b in bounds
    ]


def test_clients_that_name_their_cores_have_no_bound() -> None:
    made = one(CLOSED)
    client = Client(
        model="m", arrivals="closed", values=made.clients[0].values, cores=frozenset({0})
    )
    assert worst_responses_us(replace(made, clients=(client,))) == [None]


def test_the_worst_run_is_under_full_contention() -> None:
    heavy = Model(name="heavy", work=Work(10_000, 10_000))
    made = one(CLOSED)
    made = replace(made, models={**made.models, "heavy": heavy}, machine=Machine(cores=3))
    assert worst_run_us(made, heavy) == pytest.approx(30_000)
    assert worst_run_us(made, made.models["m"]) == 10_000
