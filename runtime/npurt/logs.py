"""Structured logs: one JSON object a line, each about one job.

``JobLog`` writes what becomes of jobs to a logger of the standard library; ``JsonLines`` is the
formatter that makes lines of its records, and of any others.

Invariant: a line is valid JSON whatever a message or a name holds, and holds no line end inside.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from npurt.observer import Observer
from npurt.policy import Job, JobState

__all__ = ["JobLog", "JsonLines", "job_log"]

_FIELDS = ("time_us", "job", "model", "priority", "core", "waiting", "reason", "response_us")
_LOGGER = logging.getLogger("npurt.jobs")


class JsonLines(logging.Formatter):
    """Formats a record as JSON: ``at``, ``level``, ``logger``, ``event``, and what it is about.

    ``at`` is the host's time, ``time_us`` the clock of the service or of the simulation. With
    *wall_clock* off there is no ``at``: the log of a simulation is then the same each time.
    """

    def __init__(self, *, wall_clock: bool = True) -> None:
        super().__init__()
        self._wall_clock = wall_clock

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        about: dict[str, object] = {}
        if self._wall_clock:
            at = datetime.fromtimestamp(record.created, UTC)
            about["at"] = at.isoformat(timespec="microseconds")
        about |= {"level": record.levelname.lower(), "logger": record.name}
        about["event"] = record.getMessage()
        about |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            about["error"] = self.formatException(record.exc_info)
        return json.dumps(about, default=str)


class JobLog(Observer):
    """Logs what becomes of jobs: failures and refusals as warnings, what a core does as DEBUG."""

    def __init__(self, logger: logging.Logger = _LOGGER) -> None:
        self._logger = logger

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        """Log a job that was taken."""
        self._log(logging.INFO, "submitted", time_us, job, waiting=waiting)

    def refused(self, time_us: float, reason: str) -> None:
        """Log that a job was not taken."""
        about = {"time_us": round(time_us, 3), "reason": reason}
        self._logger.warning("refused", extra=about)

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        """Log what a core did."""
        level = logging.WARNING if what == "lost" else logging.DEBUG
        self._log(level, what, time_us, job, core=core, waiting=waiting)

    def ended(self, time_us: float, job: Job, state: JobState, waiting: int) -> None:
        """Log how a job ended."""
        level = logging.WARNING if state is JobState.FAILED else logging.INFO
        took = round(time_us - job.submitted_us, 3)
        name = f"ended {state.name.lower()}"
        self._log(level, name, time_us, job, response_us=took, waiting=waiting)

    def _log(self, level: int, event: str, time_us: float, job: Job, **more: object) -> None:
        if self._logger.isEnabledFor(level):
            about = {"job": job.number, "model": job.model, "priority": job.priority}
            extra = {"time_us": round(time_us, 3), **about, **more}
            self._logger.log(level, event, extra=extra)


@contextmanager
def job_log() -> Iterator[tuple[JobLog, io.StringIO]]:
    """Yield a log of emulated jobs, what cores do left out, and the text that it writes."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines(wall_clock=False))
    # A logger of its own, in no hierarchy: the program's configuration does not reach it.
    logger = logging.Logger(_LOGGER.name, logging.INFO)
    logger.addHandler(handler)
    yield JobLog(logger), lines
    handler.close()
