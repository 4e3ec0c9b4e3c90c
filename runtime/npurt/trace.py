"""What cores did in emulated time, as a trace that Perfetto and chrome://tracing show.

One track a core with the jobs on it, a counter of waiting jobs, and an arrow-free slice for each
job from submission to result in a track of its model. Times are emulated microseconds.
"""

from __future__ import annotations

import json
from typing import Any

from npurt.events import Simulation
from npurt.policy import Job

__all__ = ["Tracer"]

_CORES, _JOBS = 1, 2
_MOST_EVENTS = 2_000_000


class Tracer:
    """Collects what a simulation tells its observer; ``text`` is the trace.

    After two million events no more are kept, and ``dropped`` counts the rest.
    """

    def __init__(self, cores: int) -> None:
        self.dropped = 0
        self._events: list[dict[str, Any]] = [
            _named("process_name", _CORES, 0, "cores"),
            _named("process_name", _JOBS, 0, "jobs, from submission to result"),
            *(_named("thread_name", _CORES, core, f"core {core}") for core in range(cores)),
        ]
        self._began: dict[int, float] = {}
        self._simulation: Simulation | None = None

    def watch(self, simulation: Simulation) -> None:
        """Count the waiting jobs of *simulation*, too."""
        self._simulation = simulation

    def __call__(self, time_us: float, core: int, job: Job, what: str) -> None:
        """Take what core *core* did with *job* at *time_us*."""
        if what in ("began", "resumed"):
            self._began[core] = time_us
        else:
            self._end(time_us, core, job, what)
        if self._simulation is not None:
            waiting = {"jobs": len(self._simulation.policy)}
            self._keep(
                {"ph": "C", "pid": _CORES, "name": "waiting", "ts": time_us, "args": waiting}
            )

    def _end(self, time_us: float, core: int, job: Job, what: str) -> None:
        begin, name = self._began.pop(core, time_us), job.payload.model.name
        about = {"job": job.number, "priority": job.priority, "end": what}
        span = {"ph": "X", "pid": _CORES, "tid": core, "ts": begin, "dur": time_us - begin}
        self._keep({**span, "name": f"{name} {job.number}", "args": about})
        if what != "preempted":
            whole = {"cat": name, "id": job.number, "pid": _JOBS, "tid": 0, "name": name}
            self._keep({**whole, "ph": "b", "ts": float(job.submitted_us), "args": about})
            self._keep({**whole, "ph": "e", "ts": time_us})

    def _keep(self, event: dict[str, Any]) -> None:
        if len(self._events) < _MOST_EVENTS:
            self._events.append(event)
        else:
            self.dropped += 1

    def text(self) -> str:
        """Return the trace as JSON."""
        return json.dumps({"displayTimeUnit": "ms", "traceEvents": self._events})


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}
