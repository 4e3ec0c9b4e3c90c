"""Who wants to know what becomes of jobs: metrics, logs, traces.

The simulation and the service tell the same observer the same things, so that what is written about
an emulated hour and about a real one looks alike. Times are microseconds of the teller's clock.

Invariant: an observer changes nothing. A service calls it from several threads, holding no lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from npurt.policy import Job, JobState

__all__ = ["Observer", "Observers"]


class Observer:
    """Told what happens; a method that is not overridden does nothing.

    ``waiting`` is how many jobs wait then. Of each job that was submitted there is one ``ended``.
    """

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        """*job* waits from now on."""

    def refused(self, time_us: float, reason: str) -> None:
        """A job was not taken: ``queue full`` or ``no core``."""

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        """Core *core* began, resumed, preempted or lost *job*, or it is done or failed there."""

    def ended(self, time_us: float, job: Job, state: JobState, waiting: int) -> None:
        """*job* is done, failed or cancelled."""

    def memory(self, time_us: float, used_bytes: int, largest_free_bytes: int) -> None:
        """Device memory is taken so far."""


class Observers(Observer):
    """Tells several observers, in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        """Tell all."""
        for each in self._observers:
            each.submitted(time_us, job, waiting)

    def refused(self, time_us: float, reason: str) -> None:
        """Tell all."""
        for each in self._observers:
            each.refused(time_us, reason)

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        """Tell all."""
        for each in self._observers:
            each.core(time_us, core, job, what, waiting)

    def ended(self, time_us: float, job: Job, state: JobState, waiting: int) -> None:
        """Tell all."""
        for each in self._observers:
            each.ended(time_us, job, state, waiting)

    def memory(self, time_us: float, used_bytes: int, largest_free_bytes: int) -> None:
        """Tell all."""
        for each in self._observers:
            each.memory(time_us, used_bytes, largest_free_bytes)
