"""Metrics and logs: what they say of a load, and that both drivers can feed them."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from npurt.cli import main
from npurt.logs import JobLog, JsonLines, job_log
from npurt.observer import Observers
from npurt.play import Played, play
from npurt.policy import Job, JobState
from npurt.scenario import parse_scenario

TEXT = """
duration_s = 2
[policy]
queue_limit = 6
[[model]]
name = "a"
run_ms = 30
descriptor_ms = 1
[[model]]
name = "b"
run_ms = 4
[[client]]
model = "a"
arrivals = "poisson"
rate_per_s = 120
cancel = 0.2
deadline_ms = 100
[[client]]
model = "b"
arrivals = "periodic"
period_ms = 50
priority = 7
[[fault]]
kind = "core"
at_s = 1.01
core = 0
"""


@pytest.fixture(scope="module")
def logged() -> tuple[Played, list[dict[str, object]]]:
    with job_log() as (log, lines):
        played = play(parse_scenario(TEXT), observer=Observers([log]))
        return played, [json.loads(line) for line in lines.getvalue().splitlines()]


def test_a_log_has_a_line_for_each_thing_that_became_of_a_job(
    logged: tuple[Played, list[dict[str, object]]],
) -> None:
    played, lines = logged
    events = Counter(line["event"] for line in lines)
    counts = played.simulation.counts
    assert events["submitted"] == played.simulation.submitted
    assert events["refused"] == played.simulation.rejected > 0
    for state, count in counts.items():
        assert events[f"ended {state.name.lower()}"] == count > 0
    assert events["lost"] == 1
    assert "began" not in events
    assert {line["level"] for line in lines if line["event"] in ("refused", "lost")} == {"warning"}
    times = [float(str(line["time_us"])) for line in lines]
    assert times == sorted(times)


def test_a_line_is_json_whatever_a_name_holds() -> None:
    record = logging.LogRecord("x", logging.ERROR, "f", 1, 'line\nwith "%s"', ("\0\ud800",), None)
    record.job, record.model = 7, object()
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["job"]) == ("error", 7)
    assert found["at"].endswith("+00:00")


def test_a_service_logs_to_the_standard_loggers(caplog: pytest.LogCaptureFixture) -> None:
    job = Job(number=3, priority=1, submitted_us=1_000, model="m")
    with caplog.at_level(logging.DEBUG, logger="npurt.jobs"):
        log = JobLog()
        log.submitted(1_000, job, 1)
        log.core(2_000, 0, job, "began", 0)
        log.ended(5_000, job, JobState.DONE, 0)
    assert [record.message for record in caplog.records] == ["submitted", "began", "ended done"]
    assert json.loads(JsonLines().format(caplog.records[-1]))["response_us"] == 4_000


def test_metrics_count_what_happened() -> None:
    pytest.importorskip("prometheus_client")
    from npurt.metrics import Metrics

    metrics, other = Metrics(), Metrics()
    played = play(parse_scenario(TEXT), observer=metrics)
    value = metrics.registry.get_sample_value
    counts, submitted = played.simulation.counts, played.simulation.submitted
    for state, count in counts.items():
        named = ({"model": m, "outcome": state.name.lower()} for m in "ab")
        assert sum(value("npurt_jobs_ended_total", labels) or 0 for labels in named) == count
    taken = [{"model": "a", "priority": "0"}, {"model": "b", "priority": "7"}]
    assert sum(value("npurt_jobs_submitted_total", labels) or 0 for labels in taken) == submitted
    refused = value("npurt_jobs_refused_total", {"reason": "queue full"})
    assert refused == played.simulation.rejected
    assert value("npurt_jobs_waiting") == len(played.simulation.policy)
    assert value("npurt_job_response_seconds_count", {"priority": "7"}) == played.groups[1].done
    metrics.memory(0.0, 5, 7)
    text = metrics.text().decode()
    assert "npurt_device_bytes_used 5.0" in text
    assert "jobs_submitted_total{" not in other.text().decode()


def test_the_command_writes_trace_log_and_metrics(tmp_path: Path) -> None:
    path = tmp_path / "load.toml"
    path.write_text(TEXT)
    files = [str(tmp_path / name) for name in ("t.json", "l.jsonl")]
    options = [str(path), "--json", "--seed", "4", "--trace", files[0], "--log", files[1]]
    told = CliRunner().invoke(main, ["bench", *options])
    assert told.exit_code == 0
    report = json.loads(told.output)
    assert report["seed"] == 4
    assert {"mean_ms", "p99_ms", "bound_ms", "wait_max_ms"} <= set(report["groups"][0])
    assert "traceEvents" in json.loads(Path(files[0]).read_text())
    assert len(Path(files[1]).read_text().splitlines()) > 200
    people = CliRunner().invoke(main, ["bench", str(path)])
    assert "priority 7, 1 x b, periodic: " in people.output
    assert "taken out" in people.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bench", "--trace", "x.json"], 2, "go with a SCENARIO"),
        (["bench", "missing.toml"], 1, "missing.toml"),
        (["bench", "load.toml", "--trace", "load.toml"], 1, "load.toml"),
        (["soak", "--jobs", "0"], 2, "--jobs"),
        (["soak", "--resume", "load.toml"], 1, "this is no state of npurt soak"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "load.toml").write_text(TEXT)
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == code
    assert message in told.output
    assert "Traceback" not in told.output
    assert (tmp_path / "load.toml").read_text() == TEXT
