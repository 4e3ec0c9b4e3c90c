"""The service in emulated time: the policy driven by discrete events.

Cores take jobs as the policy says. A job of a higher priority takes a core at the next descriptor
boundary of what runs there. A switch is paid when a core takes up another model than its last one,
a job on top of a preempted one, or a preempted job again. Cores that compute slow each other down
at DDR (physics.py), and heat slows all.

Invariant: the same stations, seed and faults give the same history; each job ends exactly once, as
done, failed or cancelled.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from npurt.physics import Machine, Work, slowdowns
from npurt.policy import Job, JobState, Policy

__all__ = ["Core", "Model", "Request", "Simulation"]

_SLIVER = 1e-6
"""Microseconds that are rounding error and not work."""

_FINAL = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a job of a model costs: its work, and its longest descriptor alone."""

    name: str
    work: Work
    descriptor_us: float = 0.0


@dataclass(slots=True)
class Request:
    """The payload of a job: its model, who asked, and what is left of it.

    ``first_us`` is when a core first took it, None before that.
    """

    model: Model
    client: int
    left_us: float
    first_us: float | None = None
    ended_us: float = 0.0


@dataclass(slots=True)
class Core:
    """A core: the job on it, what is left of a switch, and its account.

    ``stop_us`` is how much of the job is left where the core stops next: 0 at the job's end, more
    at the descriptor boundary where the job is to yield. ``stacked`` are preempted jobs whose
    contexts it holds.
    """

    number: int
    job: Job | None = None
    switch_us: float = 0.0
    stop_us: float = 0.0
    slowdown: float = 1.0
    since_us: float = 0.0
    end_us: float = math.inf
    last: str | None = None
    stacked: int = 0
    healthy: bool = True
    stalled_until_us: float = 0.0
    busy_us: float = 0.0
    switches: int = 0

    def settle(self, now: float) -> None:
        """Account for what was done since the last time."""
        if self.job is not None:
            passed = now - self.since_us
            self.busy_us += passed
            if self.switch_us:
                left = self.switch_us - passed
                self.switch_us = left if left > _SLIVER else 0.0
            else:
                self.job.payload.left_us -= passed / self.slowdown
        self.since_us = now

    def plan(self, now: float, slowdown: float) -> None:
        """Go on from *now*, to which it is settled, at another speed."""
        self.slowdown = slowdown
        if self.job is None:
            self.end_us = self.stalled_until_us if self.stalled_until_us > now else math.inf
        elif self.switch_us:
            self.end_us = now + self.switch_us
        else:
            self.end_us = now + (self.job.payload.left_us - self.stop_us) * slowdown


@dataclass(slots=True)
class Simulation:
    """All cores, the jobs that wait, and what is to happen.

    ``on_end`` is told of each job that has ended, and may submit others. ``observe`` is told
    (time, core, job, what) of whatever a core does. ``queue_limit`` is how many jobs may wait.
    """

    machine: Machine
    policy: Policy
    queue_limit: int | None = None
    on_end: Callable[[Job, JobState], None] | None = None
    observe: Callable[[float, int, Job, str], None] | None = None
    time: float = 0.0
    cores: list[Core] = field(default_factory=list)
    submitted: int = 0
    rejected: int = 0
    counts: dict[JobState, int] = field(default_factory=lambda: dict.fromkeys(_FINAL, 0))
    _heat: float = 1.0
    _due: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    _numbers: int = 0
    _changed: bool = True

    def __post_init__(self) -> None:
        self.cores = [Core(number) for number in range(self.machine.cores)]

    def at(self, time_us: float, action: Callable[[], object]) -> None:
        """Let *action* happen at *time_us*; those of one time in the order of the calls."""
        self._numbers += 1
        heapq.heappush(self._due, (time_us, self._numbers, action))

    def submit(
        self,
        model: Model,
        client: int = 0,
        priority: int = 0,
        *,
        cores: frozenset[int] | None = None,
        deadline_us: int | None = None,
    ) -> Job | None:
        """Submit a job now; None when the queue is full."""
        if self.queue_limit is not None and len(self.policy) >= self.queue_limit:
            self.rejected += 1
            return None
        self.submitted += 1
        request = Request(model, client, float(model.work.alone_us))
        job = Job(
            number=self.submitted,
            priority=priority,
            submitted_us=int(self.time),
            cores=cores,
            deadline_us=deadline_us,
            payload=request,
        )
        self.policy.submit(job)
        self._changed = True
        if all(core.job is not None for core in self.cores if core.healthy):
            self._ask_one_to_yield()
        return job

    def cancel(self, job: Job) -> bool:
        """Cancel *job* where it still waits and has not begun; it has then ended."""
        if job.begun or not self.policy.give_up(job, JobState.CANCELLED):
            return False
        self._end(job, JobState.CANCELLED)
        return True

    def fail(self, number: int) -> None:
        """Let the job on core *number* fail, if there is one."""
        core = self.cores[number]
        if core.job is not None:
            core.settle(self.time)
            job, core.job = core.job, None
            job.state = JobState.FAILED
            self._tell(core, job, "failed")
            self._changed = True
            self._end(job, JobState.FAILED)

    def stall(self, number: int, until_us: float) -> None:
        """Let core *number* take no further job until then."""
        self.cores[number].stalled_until_us = until_us
        self._changed = True

    def heat(self, slowdown: float) -> None:
        """Let everything take *slowdown* times as long from now on."""
        self._heat, self._changed = slowdown, True

    def take_out(self, number: int) -> None:
        """Take core *number* out: its job and those bound to it begin again elsewhere."""
        core = self.cores[number]
        core.healthy, core.stacked, self._changed = False, 0, True
        others = [other.number for other in self.cores if other.healthy]
        core.settle(self.time)
        if core.job is not None:
            self.policy.put_back(core.job, number)
            core.job = None
        for job in list(self.policy):
            if job.cores is not None and number in job.cores:
                job.payload.left_us = float(job.payload.model.work.alone_us)
                self.policy.free(job, number, others)

    def run(self, until_us: float = math.inf) -> None:
        """Let everything up to *until_us* happen, or until nothing more will."""
        due, cores = self._due, self.cores
        while True:
            if self._changed:
                self._assign()
            next_us = due[0][0] if due else math.inf
            for core in cores:
                next_us = min(next_us, core.end_us)
            deadline = self.policy.next_deadline_us
            if deadline is not None:
                next_us = min(next_us, max(self.time, deadline + 1.0))
            if next_us > until_us or next_us == math.inf:
                break
            self.time = max(self.time, next_us)
            self._happen()
        if until_us != math.inf:
            self.time = max(self.time, until_us)

    def _happen(self) -> None:
        now = self.time + _SLIVER
        for core in self.cores:
            if core.end_us <= now:
                self._changed = True
                core.settle(self.time)
                if core.job is not None and core.job.payload.left_us <= core.stop_us + _SLIVER:
                    self._stop(core)
        if self.policy.next_deadline_us is not None:
            for job in self.policy.overdue(int(self.time)):
                self.policy.give_up(job, JobState.FAILED)
                self._end(job, JobState.FAILED)
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()

    def _stop(self, core: Core) -> None:
        """End the job of *core*, or let it yield where one waits that may take its core."""
        job = core.job
        assert job is not None
        if core.stop_us <= 0:
            core.job = None
            job.state = JobState.DONE
            self._tell(core, job, "done")
            self._end(job, JobState.DONE)
        elif self.policy.preempts(job, core.number):
            core.job = None
            core.stacked += 1
            self.policy.put_back(job, core.number)
            self._tell(core, job, "preempted")
        else:
            core.stop_us = 0.0

    def _assign(self) -> None:
        """Give free cores their next jobs, and set the speeds."""
        self._changed, now = False, self.time
        at_work: list[Core] = []
        for core in self.cores:
            core.settle(now)
            if core.job is None and core.healthy and core.stalled_until_us <= now:
                self._take_up(core)
            if core.job is None or core.switch_us:
                core.plan(now, 1.0)
            else:
                at_work.append(core)
        works = tuple([core.job.payload.model.work for core in at_work if core.job is not None])
        for core, slowdown in zip(at_work, slowdowns(works), strict=True):
            core.plan(now, slowdown * self._heat)

    def _take_up(self, core: Core) -> None:
        job = self.policy.pick(core.number, int(self.time))
        if job is None:
            return
        request: Request = job.payload
        resumed = job.begun
        if resumed or core.stacked or core.last not in (None, request.model.name):
            core.switch_us = float(self.machine.switch_us)
            core.switches += 1
        core.stacked -= resumed
        core.job, core.last, core.stop_us = job, request.model.name, 0.0
        job.begun = True
        if request.first_us is None:
            request.first_us = self.time
        self._tell(core, job, "resumed" if resumed else "began")

    def _ask_one_to_yield(self) -> None:
        """Let the least urgent job that a waiting one may preempt yield at its next boundary."""
        least: Core | None = None
        for core in self.cores:
            job = core.job
            if job is None or core.stop_us or not self.policy.preempts(job, core.number):
                continue
            if least is None or least.job is None or job.level < least.job.level:
                least = core
        if least is not None and least.job is not None:
            least.settle(self.time)
            request: Request = least.job.payload
            size = request.model.descriptor_us
            left = request.left_us
            least.stop_us = math.floor(left / size) * size if size else left

    def _end(self, job: Job, state: JobState) -> None:
        self.counts[state] += 1
        job.payload.ended_us = self.time
        if self.on_end is not None:
            self.on_end(job, state)

    def _tell(self, core: Core, job: Job, what: str) -> None:
        if self.observe is not None:
            self.observe(self.time, core.number, job, what)
