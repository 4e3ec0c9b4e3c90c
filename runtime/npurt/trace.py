"""What cores did in emulated time, as a trace that Perfetto and chrome://tracing show.

One track a core with the jobs on it, a counter of waiting jobs, and a slice for each job that ran
from submission to result, in a track of its model. Times are emulated microseconds.

Invariant: the slices of a core's track do not overlap.
"""

from __future__ import annotations

import json
from typing import Any

from npurt.observer import Observer
from npurt.policy import Job

__all__ = ["Tracer"]

_CORES, _JOBS = 1, 2
_MOST_EVENTS = 2_000_000


class Tracer(Observer):
    """Collects what cores do; ``text`` is the trace.

    After two million events no more are kept, and ``dropped`` counts the rest.
    """

    def __init__(self, cores: int) -> None:
        self.dropped = 0
        self._events: list[dict[str, Any]] = [
            _named("process_name", _CORES, 0, "cores"),
            _named("process_name", _JOBS, 0, "jobs, from submission to result"),
            *(_named("thread_name", _CORES, core, f"core {core}") for core in range(cores)),
        ]
        self._began: dict[int, tuple[float, Job]] = {}

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        """Take what core *core* did with *job*."""
        if what in ("began", "resumed"):
            self._began[core] = time_us, job
        else:
            self._end(time_us, core, job, what)
        self._count(time_us, waiting)

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        """Take that one more waits."""
        self._count(time_us, waiting)

    def _count(self, time_us: float, waiting: int) -> None:
        counter = {"ph": "C", "pid": _CORES, "name": "waiting", "ts": time_us}
        self._keep({**counter, "args": {"jobs": waiting}})

    def close(self, time_us: float) -> None:
        """End the slices of the jobs that still run at *time_us*."""
        for core, (_, job) in sorted(self._began.items()):
            self._end(time_us, core, job, "running")

    def _end(self, time_us: float, core: int, job: Job, what: str) -> None:
        name = job.model
        about = {"job": job.number, "priority": job.priority, "end": what}
        if core in self._began and self._began[core][1] is job:
            begin, _ = self._began.pop(core)
            span = {"ph": "X", "pid": _CORES, "tid": core, "ts": begin, "dur": time_us - begin}
            self._keep({**span, "name": f"{name} {job.number}", "args": about})
        if what in ("done", "failed"):
            whole = {"cat": name, "id": job.number, "pid": _JOBS, "tid": 0, "name": name}
            self._keep({**whole, "ph": "b", "ts": job.payload.submitted_us, "args": about})
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
