"""The soak: the same in one piece and in two, and a fault planted in the runtime is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from npurt import soak_check
from npurt.cli import main
from npurt.errors import NpurtError
from npurt.events import Core, Simulation
from npurt.policy import Job, JobState, Policy
from npurt.soak import ROUND_JOBS, Failure, Totals, keep_totals, load_totals, run_round, soak

SEED = 11


@pytest.fixture(scope="module")
def whole() -> Totals:
    return soak(Totals(seed=SEED), 4)


def test_every_kind_of_trouble_is_met_and_survived(whole: Totals) -> None:
    assert whole.jobs == 4 * ROUND_JOBS
    asked = whole.counts["taken"] + sum(
        n for k, n in whole.counts.items() if k.startswith("refused")
    )
    assert asked == whole.jobs
    ends = sum(whole.counts[name] for name in ("done", "failed", "cancelled"))
    assert ends == whole.counts["taken"]
    for name in ("core preempted", "core lost", "out of memory", "evictions", "cancelled too late"):
        assert whole.counts[name] > 0, name
    for fault in ("fail", "swap", "heat", "stall", "lose"):
        assert whole.counts[f"fault {fault}"] > 0, fault


def test_a_soak_that_goes_on_from_a_file_gives_what_one_in_one_piece_gives(
    whole: Totals, tmp_path: Path
) -> None:
    path = str(tmp_path / "state.json")
    for rounds in (1, 3, 4):
        soak(load_totals(path, SEED), rounds, keep=lambda totals: keep_totals(path, totals))
    assert load_totals(path, None) == whole
    assert json.loads(Path(path).read_text())["schema"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


def test_a_soak_ends_when_its_time_is_over() -> None:
    assert soak(Totals(seed=SEED), 10**6, minutes=1e-9).rounds == 0


def _told_twice(end: Callable[..., None]) -> Callable[..., None]:
    def twice(self: Simulation, job: Job, state: JobState) -> None:
        end(self, job, state)
        if job.number % 100 == 99:
            end(self, job, state)

    return twice


def _never_told(end: Callable[..., None]) -> Callable[..., None]:
    def seldom(self: Simulation, job: Job, state: JobState) -> None:
        if job.number % 100 != 99:
            end(self, job, state)

    return seldom


def _late_first(submit: Callable[..., None]) -> Callable[..., None]:
    def in_front(self: Policy, job: Job) -> None:
        submit(self, job)
        if job.number % 50 == 49:
            queue = self._queue(job)
            queue.rotate(1)

    return in_front


def _unpaid(settle: Callable[..., None]) -> Callable[..., None]:
    def cheaply(self: Core, now: float) -> None:
        before = self.busy_us
        settle(self, now)
        if self.switch_us:
            self.busy_us = before

    return cheaply


def _anywhere(pick: Callable[..., Job | None]) -> Callable[..., Job | None]:
    def elsewhere(self: Policy, core: int, now_us: int) -> Job | None:
        return pick(self, core, now_us) or pick(self, (core + 1) % 3, now_us)

    return elsewhere


def _kept(end: Callable[..., None]) -> Callable[..., None]:
    def leaking(self: soak_check.Memory, job: Job) -> None:
        if job.number % 100 != 99:
            end(self, job)

    return leaking


def _stuck(pick: Callable[..., Job | None]) -> Callable[..., Job | None]:
    def lazily(self: Policy, core: int, now_us: int) -> Job | None:
        return None if 3e6 < now_us < 6e6 else pick(self, core, now_us)

    return lazily


PLANTED: dict[str, tuple[type, str, Callable[[Any], Any], str]] = {
    "a job ends twice": (Simulation, "_end", _told_twice, "ended twice"),
    "a job never ends": (Simulation, "_end", _never_told, "never ended|but it has ended"),
    "a job overtakes": (Policy, "submit", _late_first, "begins behind job"),
    "switches are not paid": (Core, "settle", _unpaid, "it ran"),
    "a job runs on a core of others": (Policy, "pick", _anywhere, "none of its own|not aside"),
    "an arena is kept": (soak_check.Memory, "end", _kept, "never given back"),
    "nothing runs for a while": (Policy, "pick", _stuck, "nothing happened in a second"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_and_named_with_what_replays_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, method, change, story = PLANTED[name]
    monkeypatch.setattr(owner, method, change(getattr(owner, method)))
    with pytest.raises(Failure, match=story) as caught:
        soak(Totals(seed=SEED), 4)
    assert "npurt soak --seed 11 --round " in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[1]",
        b"\xff\xfe",
        b'{"schema": 2}',
        b'{"schema": 1, "seed": 1, "rounds": -1}',
        b'{"schema": 1, "seed": true}',
        b'{"schema": 1, "seed": 1, "emulated_s": NaN}',
        b'{"schema": 1, "seed": 1, "emulated_s": 0.0, "counts": {"done": "x"}}',
        b'{"schema": 1, "seed": 1, "what": 1}',
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_no_state_is_refused_and_left_alone(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(raw)
    with pytest.raises(NpurtError, match="this is no state of npurt soak"):
        load_totals(str(path), None)
    assert path.read_bytes() == raw


def test_the_state_of_another_seed_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "state.json")
    keep_totals(path, Totals(seed=3))
    with pytest.raises(NpurtError, match="of seed 3, not of seed 4"):
        load_totals(path, 4)


def test_a_round_is_the_same_alone(whole: Totals) -> None:
    rounds = [run_round(SEED, number) for number in range(4)]
    together = Totals(seed=SEED)
    for each in rounds:
        together.add(each)
    assert together == whole
    assert replace(rounds[0], seed=0) != replace(rounds[1], seed=0)


def test_the_command_prints_totals_and_replays_a_round() -> None:
    run = CliRunner().invoke
    told = run(main, ["soak", "--jobs", "1", "--seed", "11"])
    assert told.exit_code == 0
    assert "seed 11, 1 rounds: 2,000 jobs in" in told.output
    again = run(main, ["soak", "--round", "0", "--seed", "11", "--json"])
    assert json.loads(again.output)["digest"] == run_round(SEED, 0).digest
    assert run(main, ["soak", "--round", "0", "--minutes", "1"]).exit_code == 2
