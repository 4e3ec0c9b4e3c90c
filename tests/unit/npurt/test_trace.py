"""Traces: JSON as Perfetto takes it, and no core that does two things at once."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from npurt import trace as module
from npurt.play import play
from npurt.scenario import parse_scenario
from npurt.trace import Tracer

TEXT = """
duration_s = 2
[[model]]
name = "a"
run_ms = 8
ddr_ms = 2
descriptor_ms = 0.5
[[model]]
name = "b"
run_ms = 3
[[client]]
model = "a"
arrivals = "closed"
count = 5
[[client]]
model = "b"
arrivals = "poisson"
rate_per_s = 60
priority = 5
cancel = 0.2
[[fault]]
kind = "job"
at_s = 0.5
core = 0
[[fault]]
kind = "core"
at_s = 1.0
core = 2
[[fault]]
kind = "stall"
at_s = 1.2
core = 1
for_ms = 100
"""


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    scenario = parse_scenario(TEXT)
    tracer = Tracer(scenario.machine.cores)
    play(scenario, observer=tracer)
    tracer.close(scenario.duration_us)
    found = json.loads(tracer.text())
    assert found["displayTimeUnit"] == "ms"
    return list(found["traceEvents"])


def test_every_event_has_what_its_kind_needs(events: list[dict[str, Any]]) -> None:
    needs = {
        "M": {"pid", "tid", "name", "args"},
        "X": {"pid", "tid", "name", "ts", "dur"},
        "C": {"pid", "name", "ts", "args"},
        "b": {"pid", "tid", "name", "ts", "cat", "id"},
        "e": {"pid", "tid", "name", "ts", "cat", "id"},
    }
    assert {event["ph"] for event in events} == set(needs)
    for event in events:
        assert needs[event["ph"]] <= set(event)
        assert 0 <= event.get("ts", 0) <= 2e6
        assert event.get("dur", 0) >= 0


def test_slices_of_a_core_never_overlap_and_those_of_a_job_have_two_ends(
    events: list[dict[str, Any]],
) -> None:
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    ends: set[str] = set()
    for event in events:
        if event["ph"] == "X":
            spans[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
            ends.add(event["args"]["end"])
    assert set(spans) == {0, 1, 2}
    for found in spans.values():
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(sorted(found)))
    assert ends == {"done", "failed", "preempted", "lost", "running"}
    begun = sorted(event["id"] for event in events if event["ph"] == "b")
    assert begun == sorted(event["id"] for event in events if event["ph"] == "e")
    assert len(begun) == len(set(begun)) > 200


def test_no_slice_of_a_core_lies_behind_its_loss(events: list[dict[str, Any]]) -> None:
    slices = [e for e in events if e["ph"] == "X" and e["tid"] == 2]
    assert max(e["ts"] + e["dur"] for e in slices) <= 1e6 + 1e-6


def test_a_long_trace_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_EVENTS", 50)
    scenario = parse_scenario(TEXT)
    tracer = Tracer(scenario.machine.cores)
    play(scenario, observer=tracer)
    assert len(json.loads(tracer.text())["traceEvents"]) == 50
    assert tracer.dropped > 500
