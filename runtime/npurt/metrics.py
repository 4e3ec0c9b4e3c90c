"""Figures of jobs, cores and memory in Prometheus' text form; needs the extra ``serve``.

Invariant: every series is of its own registry, and what is counted once is never uncounted.
"""

from __future__ import annotations

from npurt.errors import NpurtError
from npurt.observer import Observer
from npurt.policy import Job, JobState

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)


class Metrics(Observer):
    """Counts what it is told. Raises NpurtError where prometheus_client is not installed."""

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            text = "metrics need prometheus_client: pip install 'npu-toolchain[serve]'"
            raise NpurtError(text) from error
        self.registry = prometheus.CollectorRegistry()
        more = {"namespace": "npurt", "registry": self.registry}
        counter, gauge, histogram = prometheus.Counter, prometheus.Gauge, prometheus.Histogram
        self._text = prometheus.generate_latest
        self._submitted = counter(
            "jobs_submitted", "Jobs that were taken.", ["model", "priority"], **more
        )
        self._refused = counter("jobs_refused", "Jobs that were not taken.", ["reason"], **more)
        self._ended = counter("jobs_ended", "Jobs by how they ended.", ["model", "outcome"], **more)
        self._core = counter("core_events", "What cores did with jobs.", ["core", "event"], **more)
        self._waiting = gauge("jobs_waiting", "Jobs that wait for a core.", **more)
        self._running = gauge("jobs_running", "Jobs that are on a core.", ["core"], **more)
        self._wait = histogram(
            "job_wait_seconds",
            "From submission to a job's first core.",
            ["priority"],
            buckets=_SECONDS,
            **more,
        )
        self._response = histogram(
            "job_response_seconds",
            "From submission to result, of jobs that are done.",
            ["priority"],
            buckets=_SECONDS,
            **more,
        )
        self._used = gauge("device_bytes_used", "Device memory that is taken.", **more)
        self._largest = gauge("device_largest_free_bytes", "Its largest free block.", **more)

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        """Count a job that was taken."""
        self._submitted.labels(job.model, job.priority).inc()
        self._waiting.set(waiting)

    def refused(self, time_us: float, reason: str) -> None:
        """Count a job that was not taken."""
        self._refused.labels(reason).inc()

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        """Count what a core did."""
        self._core.labels(core, what).inc()
        self._running.labels(core).set(what in ("began", "resumed"))
        self._waiting.set(waiting)
        if what == "began":
            self._wait.labels(job.priority).observe((time_us - job.submitted_us) / 1e6)

    def ended(self, time_us: float, job: Job, state: JobState, waiting: int) -> None:
        """Count how a job ended."""
        self._ended.labels(job.model, state.name.lower()).inc()
        self._waiting.set(waiting)
        if state is JobState.DONE:
            self._response.labels(job.priority).observe((time_us - job.submitted_us) / 1e6)

    def memory(self, time_us: float, used_bytes: int, largest_free_bytes: int) -> None:
        """Note the bytes that are taken."""
        self._used.set(used_bytes)
        self._largest.set(largest_free_bytes)

    def text(self) -> bytes:
        """Return all figures as they now are, in Prometheus' text form."""
        return bytes(self._text(self.registry))
