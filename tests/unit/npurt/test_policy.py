"""The policy: what runs next, what preempts, that none starves and none is lost."""

from __future__ import annotations

import random

import pytest

from npurt.policy import HIGHEST, PRIORITIES, Job, JobState, Policy

AGEING_US = 1_000_000


def job(number: int, priority: int = 0, at: int = 0, **fields: object) -> Job:
    return Job(number=number, priority=priority, submitted_us=at, **fields)  # type: ignore[arg-type]


def policy(*jobs: Job) -> Policy:
    made = Policy(ageing_us=AGEING_US)
    for each in jobs:
        made.submit(each)
    return made


def order(made: Policy, core: int = 0, now: int = 0) -> list[int]:
    found = []
    while (picked := made.pick(core, now)) is not None:
        found.append(picked.number)
    return found


def test_higher_priorities_come_first_and_one_priority_in_order() -> None:
    assert order(policy(job(1), job(2, 3), job(3), job(4, 3), job(5, 7))) == [5, 2, 4, 1, 3]


def test_a_waiting_job_rises_a_level_each_ageing_time() -> None:
    old, new = job(1, 0, 0), job(2, 2, 2 * AGEING_US)
    assert order(policy(old, new), now=2 * AGEING_US) == [1, 2]
    old, new = job(1, 0, 1), job(2, 2, 2 * AGEING_US)
    assert order(policy(old, new), now=2 * AGEING_US) == [2, 1]


def test_only_a_higher_priority_preempts_and_not_what_has_risen_as_far() -> None:
    made = policy(job(1, 2))
    running = made.pick(0, 0)
    assert running is not None
    made.submit(job(2, 2))
    assert not made.preempts(running, 0)
    made.submit(job(3, 3))
    assert made.preempts(running, 0)
    aged = policy(job(1, 2, 0))
    risen = aged.pick(0, AGEING_US)
    assert risen is not None
    aged.submit(job(3, 3, AGEING_US))
    assert not aged.preempts(risen, 0)


def test_an_urgent_job_that_may_not_run_on_a_core_lets_no_equal_one_take_it() -> None:
    made = policy(job(1, 2))
    running = made.pick(0, 0)
    assert running is not None
    made.submit(job(2, 2))
    made.submit(job(3, 7, cores=frozenset({1})))
    assert not made.preempts(running, 0)
    assert made.preempts(running, 1)


def test_a_preempted_job_returns_to_the_front_on_its_own_core() -> None:
    made = policy(job(1), job(2))
    first = made.pick(0, 0)
    assert first is not None
    made.put_back(first, 0)
    assert order(made, core=1) == [2]
    assert order(made, core=0) == [1]


def test_a_job_runs_on_its_cores_only() -> None:
    made = policy(job(1, cores=frozenset({2})), job(2))
    assert order(made, core=0) == [2]
    assert order(made, core=2) == [1]


def test_what_was_given_up_is_never_picked_and_counts_no_more() -> None:
    jobs = [job(n) for n in range(3)]
    made = policy(*jobs)
    assert made.give_up(jobs[1], JobState.CANCELLED)
    assert not made.give_up(jobs[1], JobState.CANCELLED)
    assert len(made) == 2
    assert order(made) == [0, 2]
    assert len(made) == 0
    assert not made.give_up(jobs[0], JobState.CANCELLED)


def test_jobs_bound_to_a_core_that_was_taken_out_run_elsewhere() -> None:
    bound = job(1, cores=frozenset({1}))
    made = policy(bound, job(2))
    made.free(bound, 1, [0, 2])
    assert order(made, core=0) == [1, 2]


def test_a_preempted_job_whose_core_is_lost_keeps_to_the_cores_it_asked_for() -> None:
    choosy = job(1, cores=frozenset({1, 2}))
    made = policy(choosy)
    assert made.pick(1, 0) is choosy
    choosy.begun = True
    made.put_back(choosy, 1)
    made.free(choosy, 1, [0, 2])
    assert not choosy.begun
    assert order(made, core=0) == []
    assert order(made, core=2) == [1]


def test_freed_jobs_stand_in_the_order_of_their_submission() -> None:
    waiting, bound = job(2, cores=frozenset({2})), job(1, cores=frozenset({1, 2}))
    made = policy(waiting, bound)
    made.free(bound, 1, [0, 2])
    assert order(made, core=2) == [1, 2]


def test_overdue_jobs_are_named_once_and_not_when_they_have_begun() -> None:
    late, begun, later = (job(n, deadline_us=due) for n, due in ((1, 10), (2, 10), (3, 99)))
    made = policy(late, begun, later)
    begun.begun = True
    assert made.next_deadline_us == 10
    assert made.overdue(10) == []
    assert made.overdue(11) == [late]
    assert made.overdue(50) == []


def test_a_deadline_that_passes_while_a_job_is_picked_holds_when_it_is_given_back() -> None:
    made = policy(job(1, deadline_us=10))
    picked = made.pick(0, 0)
    assert picked is not None
    assert made.next_deadline_us == 10
    assert made.overdue(11) == []
    made.give_back(picked)
    made.give_back(made.pick(0, 0) or picked)
    assert made.overdue(12) == [picked]


@pytest.mark.parametrize("priority", [-1, PRIORITIES])
def test_a_priority_that_there_is_not_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="priorities are 0 to 7"):
        policy(job(1, priority))


@pytest.mark.parametrize("seed", range(20))
def test_none_waits_longer_than_ageing_allows(seed: int) -> None:
    """Behind a job that has risen to the top come only younger ones and those of the top."""
    source = random.Random(seed)
    made, now, number = Policy(ageing_us=1000), 0, 0
    run_us = 100
    worst = 0
    for _ in range(3000):
        for _ in range(source.choice((0, 1, 1, 2))):
            made.submit(job(number, source.choice((0, HIGHEST, HIGHEST)), now))
            number += 1
        ahead = len(made)
        picked = made.pick(0, now)
        if picked is not None and picked.priority == 0:
            worst = max(worst, now - picked.submitted_us - run_us * ahead)
        now += run_us
    assert worst <= HIGHEST * 1000 + run_us


def test_ageing_takes_time() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Policy(ageing_us=0)
