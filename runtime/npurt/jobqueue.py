"""What the threads of a service share: the policy, its jobs and the cores, under one condition.

Invariant: nothing is called and nothing waits for long while the condition is held; whoever changes
what another thread waits for notifies it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from npurt.errors import NoHealthyCore, QueueFull, ServiceClosed
from npurt.policy import Job, JobState, Policy
from npurt.requests import Request

__all__ = ["Core", "JobQueue", "now_us"]

_ENDS = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


def now_us() -> int:
    """Return the time that the policy is given: microseconds of the monotonic clock."""
    return time.monotonic_ns() // 1000


@dataclass(eq=False, slots=True)
class Core:
    """A core as its thread and the others see it. ``running`` holds preempted jobs first."""

    number: int
    healthy: bool = True
    stalled: bool = False
    """Whether its thread hangs: it was taken out, and nobody waits for it."""
    attention: bool = False
    """Whether a job came that may take the core from a running one."""
    running: list[Job] = field(default_factory=list)
    blocked_at: int = -1
    """What ``freed`` was when it found no room on the device: it waits for the next time."""
    boundaries: int = 0
    """TOAs since the start: what a stalled core does not do."""
    busy_us: int = 0
    jobs: int = 0
    preemptions: int = 0
    tested: bool = False
    """Whether it has passed a known-answer test."""
    untested: list[int] = field(default_factory=list)
    """Numbers of the jobs that ended on it since then."""


@dataclass(slots=True)
class JobQueue:
    """The jobs of a service and its cores."""

    policy: Policy
    cores: list[Core]
    limit: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    closing: bool = False
    outstanding: int = 0
    """Jobs that have not ended."""
    ends: dict[JobState, int] = field(default_factory=lambda: dict.fromkeys(_ENDS, 0))
    freed: int = 0
    """How often room on the device may have come free."""

    def check_open(self) -> None:
        """Raise ServiceClosed, NoHealthyCore or QueueFull when no job can be taken."""
        if self.closing:
            raise ServiceClosed("the service was closed and takes no more jobs")
        if not self.healthy:
            raise NoHealthyCore("every core was taken out; see incidents")
        if len(self.policy) >= self.limit:
            raise QueueFull(f"{self.limit} jobs wait already: wait for some, or raise queue")

    @property
    def healthy(self) -> frozenset[int]:
        """The cores that take jobs."""
        return frozenset(core.number for core in self.cores if core.healthy)

    def submit(self, job: Job) -> None:
        """Let *job* wait. Raises as ``check_open`` does."""
        with self.changed:
            self.check_open()
            if job.cores is not None and not job.cores & self.healthy:
                raise NoHealthyCore(f"cores {sorted(job.cores)} were taken out; see incidents")
            self.policy.submit(job)
            self.outstanding += 1
            self._announce(job)

    def give_back(self, job: Job) -> bool:
        """Let *job* wait in front again; False when there is no core left for it."""
        with self.changed:
            if not self.healthy:
                return False
            if job.cores is not None and not job.cores & self.healthy:
                job.cores = None
            self.policy.give_back(job)
            self._announce(job)
            return True

    def next(self, core: Core) -> tuple[Job | None, list[Job]]:
        """Wait for *core*'s next job; None at the end. The others are jobs past their deadline."""
        with self.changed:
            while core.healthy and not (self.closing and not self.outstanding):
                late = self.policy.overdue(now_us())
                blocked = core.blocked_at == self.freed
                job = None if blocked else self.policy.pick(core.number, now_us())
                if job is not None or late:
                    self._begin(core, job)
                    return job, late
                self.changed.wait()
        return None, []

    def preempting(self, core: Core, running: Job) -> Job | None:
        """Return the job that takes *core* from *running* now, None when none does."""
        with self.changed:
            core.attention = False
            if core.blocked_at == self.freed or not self.policy.preempts(running, core.number):
                return None
            job = self.policy.pick(core.number, now_us())
            core.preemptions += job is not None
            self._begin(core, job)
            return job

    def late(self) -> list[Job]:
        """Return the jobs that have passed their deadline."""
        with self.changed:
            return self.policy.overdue(now_us())

    def next_deadline_us(self) -> int | None:
        """Return when to look for late jobs again."""
        with self.changed:
            return self.policy.next_deadline_us

    def withdraw(self, job: Job, state: JobState) -> bool:
        """Take a waiting *job* out; False when it does not wait."""
        with self.changed:
            return self.policy.give_up(job, state)

    def waiting(self) -> list[Job]:
        """Return the jobs that wait."""
        with self.changed:
            return list(self.policy)

    def claim(self, job: Job, request: Request, attempt: int, state: JobState) -> bool:
        """Decide what becomes of a running *job*; False when another attempt does that."""
        with self.changed:
            if job.state is not JobState.RUNNING or request.attempt != attempt:
                return False
            request.attempt += 1
            job.state = state
            return True

    def room(self) -> None:
        """Room on the device may have come free."""
        with self.changed:
            blocked = any(core.blocked_at == self.freed for core in self.cores)
            self.freed += 1
            if blocked:
                self.changed.notify_all()

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        with self.changed:
            waiting = len(self.policy)
            running = self.outstanding - waiting
            return {JobState.WAITING: waiting, JobState.RUNNING: running, **self.ends}

    def end(self, state: JobState) -> None:
        """A job has ended as *state*, and its future is complete."""
        with self.changed:
            self.ends[state] += 1
            self.outstanding -= 1
            if self.closing and not self.outstanding:
                self.changed.notify_all()

    def take_out(self, core: Core) -> None:
        """Let *core* take no more jobs; those bound to it may run on any other."""
        with self.changed:
            core.healthy = False
            healthy = self.healthy
            for job in list(self.policy):
                if healthy:
                    self.policy.free(job, core.number, healthy)
            self.changed.notify_all()

    def close(self) -> None:
        """Take no more jobs."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def _announce(self, job: Job) -> None:
        """Wake who may run *job*; when no idle core will, tell those that run less urgent ones."""
        blocked = [core for core in self.cores if core.blocked_at == self.freed]
        free = [core for core in self.cores if core.healthy and not core.running]
        idle = len(free) - sum(core in blocked for core in free)
        for core in self.cores:
            urgent = core.running and job.priority > core.running[-1].level
            if urgent and (job.cores is not None or len(self.policy) > idle):
                core.attention = True
        if job.cores is None and not blocked:
            self.changed.notify()
        else:
            self.changed.notify_all()

    @staticmethod
    def _begin(core: Core, job: Job | None) -> None:
        if job is not None:
            core.running.append(job)
