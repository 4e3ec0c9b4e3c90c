"""Playing scenarios: each way to arrive, each fault, cancels, deadlines, full queues, C38."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from npurt.bench import played_dict
from npurt.bounds import worst_run_us
from npurt.events import Model, Simulation
from npurt.observer import Observer
from npurt.physics import Machine, Work
from npurt.play import Group, Played, play
from npurt.policy import HIGHEST, Job, JobState, Policy
from npurt.scenario import Scenario, parse_scenario

MODEL = '[[model]]\nname = "m"\nrun_ms = 10\ndescriptor_ms = 0.5\n'


class Seen(Observer):
    """What the tests look at of a history."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.began: list[tuple[float, int]] = []

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        self.asked.append(time_us)

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        if what == "began":
            self.began.append((time_us, core))


def scenario(client: str, *, cores: int = 1, seconds: float = 1.0, more: str = "") -> Scenario:
    head = f"duration_s = {seconds}\n[machine]\ncores = {cores}\nswitch_ms = 1\n"
    return parse_scenario(f'{head}{MODEL}[[client]]\nmodel = "m"\n{client}\n{more}')


def group_of(client: str, **more: object) -> Group:
    return play(scenario(client, **more)).groups[0]  # type: ignore[arg-type]


def counts(group: Group) -> tuple[int, int, int, int]:
    return group.done, group.failed, group.cancelled, group.rejected


def test_a_closed_client_asks_again_after_its_gap() -> None:
    group = group_of('arrivals = "closed"\ngap_ms = 10')
    assert counts(group) == (50, 0, 0, 0)
    assert set(group.responses) == {10_000.0}


def test_a_periodic_client_asks_once_a_period_and_late_by_its_jitter_at_most() -> None:
    steady = group_of('arrivals = "periodic"\nperiod_ms = 100', seconds=2)
    assert steady.submitted == 20
    jittery = scenario('arrivals = "periodic"\nperiod_ms = 100\njitter_ms = 50', seconds=20)
    seen = Seen()
    play(jittery, observer=seen)
    gaps = [b - a for a, b in pairwise(seen.asked)]
    assert 50_000 <= min(gaps) < 90_000 < 110_000 < max(gaps) <= 150_000


def test_poisson_clients_ask_as_often_as_their_rate_says() -> None:
    group = group_of('arrivals = "poisson"\nrate_per_s = 20\ncount = 4', seconds=50, cores=3)
    assert group.submitted == pytest.approx(4000, abs=4 * 4000**0.5)


def test_a_burst_comes_at_once() -> None:
    group = group_of('arrivals = "burst"\nperiod_ms = 500\nsize = 4')
    assert group.submitted == 8
    assert sorted(group.responses[:4]) == pytest.approx([10_000, 20_000, 30_000, 40_000])


def test_what_is_cancelled_before_it_begins_ends_cancelled() -> None:
    burst = 'arrivals = "burst"\nperiod_ms = 200\nsize = 10\ncancel_after_ms = '
    assert counts(group_of(burst + "0\ncancel = 1")) == (0, 0, 50, 0)
    some = group_of(burst + "100\ncancel = 0.5")
    assert some.done + some.cancelled == some.submitted == 50
    assert min(some.done, some.cancelled) > 10


def test_what_has_not_begun_by_its_deadline_fails() -> None:
    group = group_of('arrivals = "burst"\nperiod_ms = 200\nsize = 3\ndeadline_ms = 15')
    assert counts(group) == (10, 5, 0, 0)
    assert max(group.waits) <= 15_000


def test_a_full_queue_refuses_and_a_closed_client_tries_again() -> None:
    more = "[policy]\nqueue_limit = 1"
    assert counts(group_of('arrivals = "burst"\nperiod_ms = 500\nsize = 4', more=more)) == (
        2,
        0,
        0,
        6,
    )
    closed = group_of('arrivals = "closed"\ncount = 4\ngap_ms = 5', more=more)
    assert closed.done >= 95
    assert closed.rejected > 100


FAULT = '[[fault]]\nat_s = 0.5\nkind = "{}"\n'
STEADY = 'arrivals = "closed"\ncount = 3\n'


def test_heat_slows_everything_from_then_on() -> None:
    group = group_of('arrivals = "closed"', more=FAULT.format("heat") + "slowdown = 2\n")
    assert group.done == 50 + 25
    assert group.responses[:50] == pytest.approx([10_000.0] * 50)
    assert group.responses[-24:] == pytest.approx([20_000.0] * 24)


def test_a_job_that_fails_is_one_and_its_client_goes_on() -> None:
    group = group_of(STEADY, cores=3, more=FAULT.format("job").replace("5", "505") + "core = 1\n")
    assert group.failed == 1
    assert group.done == pytest.approx(300, abs=3)


def test_a_core_that_is_taken_out_leaves_its_jobs_to_the_others_and_the_last_one_stays() -> None:
    faults = "".join(FAULT.format("core") + f"core = {core}\n" for core in (2, 1, 0))
    played = play(scenario(STEADY, cores=3, more=faults))
    assert [core.healthy for core in played.simulation.cores] == [True, False, False]
    group = played.groups[0]
    assert group.failed == group.cancelled == 0
    assert group.done == pytest.approx(150 + 50, abs=3)
    assert played.open == group.submitted - group.done


def test_clients_of_cores_that_are_all_taken_out_are_refused() -> None:
    faults = FAULT.format("core") + "core = 1\n"
    group = group_of(STEADY + "cores = [1]\ngap_ms = 1", cores=3, more=faults)
    assert group.rejected > 300
    assert group.done == pytest.approx(50, abs=3)


def test_a_stalled_core_takes_nothing_for_so_long() -> None:
    seen = Seen()
    more = FAULT.format("stall") + "core = 0\nfor_ms = 200\n"
    play(scenario(STEADY, cores=3, more=more), observer=seen)
    stalled = [time for time, core in seen.began if core == 0 and 500_000 < time < 700_000]
    assert not stalled
    assert [core for time, core in seen.began if time > 700_000].count(0) > 20
    assert [core for time, core in seen.began if 500_000 < time < 700_000].count(1) >= 19


EVERYTHING = scenario(
    'arrivals = "poisson"\nrate_per_s = 120\npriority = 2\ncancel = 0.1\ndeadline_ms = 300',
    cores=3,
    seconds=5,
    more='[[client]]\nmodel = "m"\narrivals = "periodic"\nperiod_ms = 20\n'
    "jitter_ms = 9\npriority = 7\n"
    '[[client]]\nmodel = "m"\narrivals = "burst"\nperiod_ms = 400\nsize = 20\ncores = [0, 2]\n'
    + FAULT.format("stall")
    + "core = 1\nfor_ms = 300\n"
    + FAULT.format("core")
    + "core = 2\n",
)


def test_a_seed_is_a_history() -> None:
    assert played_dict(play(EVERYTHING)) == played_dict(play(EVERYTHING))
    assert played_dict(play(EVERYTHING)) != played_dict(play(replace(EVERYTHING, seed=2)))


def test_every_job_is_done_failed_cancelled_or_open() -> None:
    played = play(EVERYTHING)
    for group in played.groups:
        assert group.submitted >= group.done + group.failed + group.cancelled
    ended = sum(g.done + g.failed + g.cancelled for g in played.groups)
    assert sum(g.submitted for g in played.groups) == ended + played.open


def test_an_urgent_closed_client_waits_for_a_descriptor_and_a_switch_under_any_low_load() -> None:
    """p99 <= its run under full DDR contention + one descriptor + one switch (issue 5)."""
    text = """
        duration_s = 20
        [[model]]
        name = "urgent"
        run_ms = 4
        ddr_ms = 1.2
        [[model]]
        name = "image"
        run_ms = 80
        ddr_ms = 24
        descriptor_ms = 0.5
        [[model]]
        name = "large"
        run_ms = 300
        ddr_ms = 200
        descriptor_ms = 2
        [[client]]
        model = "urgent"
        arrivals = "closed"
        gap_ms = GAP
        priority = 7
        [[client]]
        model = "image"
        arrivals = "closed"
        count = 12
        [[client]]
        model = "large"
        arrivals = "poisson"
        rate_per_s = 2
        priority = 1
        """
    for cores in (1, 3):
        for gap in (0.0, 3.0, 40.0):
            made = parse_scenario(text.replace("GAP", str(gap)))
            made = replace(made, machine=Machine(cores=cores), ageing_us=10**9)
            played = play(made)
            found = played_dict(played)["groups"][0]
            promised = worst(made, "urgent") + worst(made, "large") * 2 / 300 + 5
            assert found["bound_ms"] == pytest.approx(promised)
            assert found["p99_ms"] <= found["max_ms"] <= promised
            assert found["done"] > 300
            # The load leaves no core idle: what the urgent client gets, it takes.
            assert sum(c.busy_us for c in played.simulation.cores) > 0.99 * cores * 20e6


def worst(made: Scenario, name: str) -> float:
    return worst_run_us(made, made.models[name]) / 1e3


def test_the_lowest_priority_starves_under_no_load_of_the_highest() -> None:
    """It waits until it has risen to the top, then for what is there before it."""
    limit, ageing_ms = 30, 50
    made = scenario(
        f'arrivals = "poisson"\nrate_per_s = 600\npriority = {HIGHEST}',
        cores=3,
        seconds=20,
        more=f'[policy]\nageing_ms = {ageing_ms}\nqueue_limit = {limit}\n[[client]]\nmodel = "m"\n'
        'arrivals = "closed"\ncount = 4\n',
    )
    played = play(made)
    low = played.groups[1]
    run_us = 10_000 + 1_000
    assert low.done > 80
    assert max(low.waits) > HIGHEST * ageing_ms * 1e3
    assert max(low.waits) <= HIGHEST * ageing_ms * 1e3 + (limit / 3 + 1) * run_us
    assert played.simulation.risen >= low.done


MODELS = [Model(name=f"m{n}", work=Work(1_000, 200), descriptor_us=100.0) for n in range(30)]
LONGEST = Model(name="long", work=Work(100_000, 20_000), descriptor_us=100.0)


def thirty(jobs: int, **more: object) -> Simulation:
    """C38: thirty models at once on three cores, and one job that is 100 times as long."""
    made = Simulation(Machine(cores=3, switch_us=50), Policy(ageing_us=10**9), **more)  # type: ignore[arg-type]
    made.submit(LONGEST)
    for number in range(jobs):
        for client, model in enumerate(MODELS):
            made.submit(model, client, priority=(number + client) % 3)
    return made


def test_thirty_models_share_three_cores_evenly_and_none_is_lost() -> None:
    made = thirty(1000)
    made.run()
    assert made.counts[JobState.DONE] == made.submitted == 30 * 1000 + 1
    busy = [core.busy_us for core in made.cores]
    assert max(busy) / min(busy) <= 1.2


def test_thirty_models_and_a_full_queue_are_an_error_at_once() -> None:
    made = thirty(10, queue_limit=100)
    assert (made.submitted, made.rejected) == (100, 201)
    made.run()
    assert made.counts[JobState.DONE] == 100


def test_when_one_core_stalls_thirty_models_go_on_with_the_others() -> None:
    made = thirty(20)
    made.stall(1, 10e6)
    made.run(5e6)
    assert made.counts[JobState.DONE] == made.submitted
    assert made.cores[1].busy_us == 0
    busy = [made.cores[number].busy_us for number in (0, 2)]
    assert max(busy) / min(busy) <= 1.2


def test_a_played_scenario_has_a_bound_where_arrivals_have_one() -> None:
    played: Played = play(EVERYTHING)
    found = [group["bound_ms"] for group in played_dict(played)["groups"]]
    assert found[0] is None
    assert found[1] is not None
    assert found[2] is None
