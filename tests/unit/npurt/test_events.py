"""The service in emulated time: what a job takes, who preempts whom, and that no job is lost."""

from __future__ import annotations

import random
from functools import partial

import pytest

from npurt.events import Model, Simulation
from npurt.observer import Observer
from npurt.physics import Machine, Work, slowdowns
from npurt.policy import HIGHEST, Job, JobState, Policy

MACHINE = Machine(cores=3, switch_us=1000)
LONG = Model(name="long", work=Work(100_000, 0), descriptor_us=700.0)
SHORT = Model(name="short", work=Work(2_000, 0), descriptor_us=50.0)


def simulation(machine: Machine = MACHINE, ageing_us: int = 10**9, **more: object) -> Simulation:
    return Simulation(machine, Policy(ageing_us=ageing_us), **more)  # type: ignore[arg-type]


def one(machine: Machine = MACHINE) -> Machine:
    return Machine(cores=1, switch_us=machine.switch_us)


def ended(job: Job | None) -> float:
    assert job is not None
    assert job.state is JobState.DONE
    return float(job.payload.ended_us)


def test_jobs_of_one_model_run_one_behind_the_other_without_a_switch() -> None:
    made = simulation(one())
    jobs = [made.submit(LONG) for _ in range(3)]
    made.run()
    assert [ended(job) for job in jobs] == [100_000, 200_000, 300_000]


def test_another_model_costs_a_switch() -> None:
    made = simulation(one())
    jobs = [made.submit(model) for model in (LONG, SHORT, LONG)]
    made.run()
    assert [ended(job) for job in jobs] == [100_000, 103_000, 204_000]


def test_an_urgent_job_waits_for_the_descriptor_and_a_switch_and_the_other_goes_on() -> None:
    made = simulation(one())
    slow = made.submit(LONG)
    urgent: list[Job | None] = []
    made.at(10_000, lambda: urgent.append(made.submit(SHORT, priority=HIGHEST)))
    made.run()
    boundary = 100_000 - (100_000 - 10_000) // 700 * 700
    assert ended(urgent[0]) == pytest.approx(boundary + 1000 + 2000)
    assert boundary - 10_000 < 700
    assert ended(slow) == pytest.approx(100_000 + 1000 + 2000 + 1000)


def test_no_job_preempts_one_of_its_own_priority() -> None:
    made = simulation(one())
    first, second = made.submit(LONG, priority=3), made.submit(SHORT, priority=3)
    made.run()
    assert ended(first) < ended(second)


def test_cores_that_read_ddr_slow_each_other_down() -> None:
    work = Work(80_000, 24_000)
    model = Model(name="m", work=work)
    made = simulation()
    jobs = [made.submit(model) for _ in range(2)]
    made.run()
    assert ended(jobs[0]) == pytest.approx(80_000 * slowdowns((work, work))[0])


def test_heat_slows_what_is_left() -> None:
    made = simulation(one())
    job = made.submit(LONG)
    made.at(50_000, lambda: made.heat(2.0))
    made.run()
    assert ended(job) == pytest.approx(150_000)


def test_a_core_that_is_taken_out_loses_no_job() -> None:
    made = simulation()
    jobs = [made.submit(LONG) for _ in range(6)]
    made.at(30_000, lambda: made.take_out(1))
    made.run()
    assert max(ended(job) for job in jobs) == pytest.approx(300_000)
    assert made.cores[1].busy_us == pytest.approx(30_000)


def test_the_context_of_a_preempted_job_is_lost_with_its_core_and_the_job_begins_again() -> None:
    made = simulation(Machine(cores=2, switch_us=0))
    slow = [made.submit(LONG) for _ in range(2)]
    made.at(10_000, lambda: made.submit(LONG, priority=HIGHEST))
    made.at(50_000, lambda: made.take_out(0))
    made.run()
    assert all(ended(job) for job in slow)
    assert made.counts[JobState.DONE] == 3


def test_a_stalled_core_takes_no_job_and_the_others_go_on() -> None:
    made = simulation(Machine(cores=2, switch_us=0))
    made.stall(0, 500_000)
    jobs = [made.submit(LONG) for _ in range(3)]
    made.run()
    assert [job.core for job in jobs if job] == [1, 1, 1]


def test_a_job_that_is_not_begun_in_time_fails() -> None:
    made = simulation(one())
    made.submit(LONG)
    late = made.submit(SHORT, deadline_us=50_000)
    made.run()
    assert late is not None
    assert late.state is JobState.FAILED
    assert late.payload.ended_us == 50_001


def test_a_full_queue_refuses() -> None:
    made = simulation(one(), queue_limit=2)
    assert [made.submit(LONG) is None for _ in range(3)] == [False, False, True]
    assert made.rejected == 1


def test_only_a_waiting_job_can_be_cancelled() -> None:
    made = simulation(one())
    running, waiting = made.submit(LONG), made.submit(LONG)
    assert running is not None
    assert waiting is not None
    made.at(1_000, lambda: made.cancel(running))
    made.at(1_000, lambda: made.cancel(waiting))
    made.run()
    assert (running.state, waiting.state) == (JobState.DONE, JobState.CANCELLED)


def test_two_that_come_at_once_take_the_free_core_and_one_that_yields() -> None:
    made = simulation(Machine(cores=2, switch_us=0))
    made.submit(LONG)
    urgent: list[Job | None] = []
    made.at(10_000, lambda: urgent.extend(made.submit(SHORT, priority=7) for _ in range(2)))
    made.run()
    assert max(ended(job) for job in urgent) <= 10_000 + 700 + 2_000


def test_a_core_that_still_switches_turns_to_the_urgent_job_at_once() -> None:
    made = simulation(one())
    made.submit(SHORT)
    made.submit(LONG)
    urgent: list[Job | None] = []
    made.at(2_100, lambda: urgent.append(made.submit(SHORT, priority=HIGHEST)))
    made.run()
    assert ended(urgent[0]) == pytest.approx(2_100 + 1000 + 2000)


def test_of_equal_jobs_the_one_with_the_next_boundary_yields() -> None:
    slow = Model(name="slow", work=Work(100_000, 0), descriptor_us=50_000.0)
    made = simulation(Machine(cores=2, switch_us=0))
    made.submit(slow)
    made.submit(LONG)
    urgent: list[Job | None] = []
    made.at(10_000, lambda: urgent.append(made.submit(SHORT, priority=HIGHEST)))
    made.run()
    assert ended(urgent[0]) <= 10_000 + 700 + 2000


def test_a_job_whose_cores_are_all_gone_is_refused() -> None:
    made = simulation()
    made.take_out(1)
    assert made.submit(SHORT, cores=frozenset({1})) is None
    assert made.submit(SHORT, cores=frozenset({1, 2})) is not None


def history(seed: int, jobs: int = 400) -> list[tuple[float, int, int, str]]:
    """A load with everything in it; returns all that the cores did."""
    source = random.Random(seed)
    told: list[tuple[float, int, int, str]] = []
    ends: dict[int, int] = {}

    def end(job: Job, state: JobState) -> None:
        ends[job.number] = ends.get(job.number, 0) + 1

    class Seen(Observer):
        def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
            told.append((time_us, core, job.number, what))

    made = simulation(ageing_us=200_000, on_end=end, observer=Seen())
    models = [LONG, SHORT, Model(name="third", work=Work(9_000, 5_000), descriptor_us=0.0)]
    for number in range(jobs):
        due = source.random() * 4e6
        deadline = int(due) + source.randrange(1, 10**6) if source.random() < 0.1 else None
        made.at(
            due,
            partial(
                made.submit,
                source.choice(models),
                number,
                source.randrange(HIGHEST + 1),
                deadline_us=deadline,
            ),
        )
    made.at(1e6, lambda: made.fail(0))
    made.at(2e6, lambda: made.take_out(2))
    made.at(2.5e6, lambda: made.stall(1, 2.9e6))
    made.at(3e6, lambda: made.heat(1.5))
    made.run()
    assert sum(made.counts.values()) == made.submitted == jobs
    assert set(ends.values()) == {1}
    assert len(ends) == jobs
    assert len(made.policy) == 0
    return told


@pytest.mark.parametrize("seed", range(8))
def test_each_job_ends_exactly_once_whatever_happens(seed: int) -> None:
    history(seed)


def test_one_seed_gives_one_history() -> None:
    assert history(3) == history(3)
    assert history(3) != history(4)
