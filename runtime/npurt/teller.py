"""Tells a service's observer what becomes of jobs.

Invariant: an observer that raises is logged and changes nothing; without one nothing is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from npurt.device import DeviceMemory
from npurt.jobqueue import Core, JobQueue, now_us
from npurt.observer import Observer
from npurt.policy import Job, JobState

__all__ = ["Teller"]

_LOG = logging.getLogger("npurt")


@dataclass(frozen=True, slots=True)
class Teller:
    """Gives *observer* the time, the jobs that wait and the bytes in use along with the news."""

    observer: Observer | None
    queue: JobQueue
    device: DeviceMemory

    def submitted(self, job: Job) -> None:
        """*job* was taken."""
        if self.observer is not None:
            waiting = len(self.queue.policy)
            _tell(partial(self.observer.submitted, now_us(), job, waiting))

    def refused(self, reason: str) -> None:
        """A job was not taken."""
        if self.observer is not None:
            _tell(partial(self.observer.refused, now_us(), reason))

    def core(self, core: Core, job: Job, what: str) -> None:
        """*core* began, resumed, preempted or lost *job*, or it is done or failed there."""
        if self.observer is not None:
            waiting = len(self.queue.policy)
            _tell(partial(self.observer.core, now_us(), core.number, job, what, waiting))

    def ended(self, job: Job, state: JobState) -> None:
        """*job* has ended."""
        if self.observer is not None:
            _tell(partial(self.observer.ended, now_us(), job, state, len(self.queue.policy)))

    def memory(self) -> None:
        """Device memory may be used otherwise than before."""
        if self.observer is not None:
            usage = self.device.allocator.usage()
            _tell(partial(self.observer.memory, now_us(), usage.used, usage.largest))


def _tell(call: Callable[[], None]) -> None:
    # An observer is told in the middle of a job: what it raises must not look like a fault.
    try:
        call()
    except Exception:
        _LOG.exception("an observer failed")
