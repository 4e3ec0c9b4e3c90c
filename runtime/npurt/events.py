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

from npurt.observer import Observer
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

    ``submitted_us`` is exact where the policy's is whole; ``first_us`` is when a core first took
    it, None before that.
    """

    model: Model
    client: int
    left_us: float
    submitted_us: float
    first_us: float | None = None
    ended_us: float = 0.0


@dataclass(slots=True)
class Core:
    """A core: the job on it, what is left of a switch, and its account.

    ``stop_us`` is how much of the job is left where the core stops next: 0 at the job's end, more
    at the descriptor boundary where the job was ``asked`` to yield. ``stacked`` are preempted jobs
    whose contexts it holds. ``fresh`` says that something changed since ``end_us`` was found.
    """

    number: int
    job: Job | None = None
    switch_us: float = 0.0
    stop_us: float = 0.0
    asked: bool = False
    slowdown: float = 1.0
    since_us: float = 0.0
    end_us: float = math.inf
    fresh: bool = False
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
        """Go on from *now* at another speed, or with other work."""
        self.settle(now)
        self.slowdown, self.fresh = slowdown, False
        if self.job is None:
            self.end_us = self.stalled_until_us if self.stalled_until_us > now else math.inf
        elif self.switch_us:
            self.end_us = now + self.switch_us
        else:
            self.end_us = now + (self.job.payload.left_us - self.stop_us) * slowdown

    def boundary_us(self) -> float:
        """Return how much of its job is left at the next descriptor boundary; it is settled."""
        request: Request | None = self.job.payload if self.job is not None else None
        if request is None or not request.model.descriptor_us:
            return request.left_us if request is not None else 0.0
        size = request.model.descriptor_us
        return math.floor((request.left_us + _SLIVER) / size) * size


@dataclass(slots=True)
class Simulation:
    """All cores, the jobs that wait, and what is to happen.

    ``on_end`` is told of each job that has ended, and may submit others. ``queue_limit`` is how
    many jobs may wait. ``risen`` counts how often a job ran above its own priority.
    """

    machine: Machine
    policy: Policy
    queue_limit: int | None = None
    on_end: Callable[[Job, JobState], None] | None = None
    observer: Observer | None = None
    time: float = 0.0
    cores: list[Core] = field(default_factory=list)
    submitted: int = 0
    rejected: int = 0
    risen: int = 0
    counts: dict[JobState, int] = field(default_factory=lambda: dict.fromkeys(_FINAL, 0))
    _heat: float = 1.0
    _due: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    _numbers: int = 0
    _changed: bool = True
    _next_us: float = math.inf
    _came: list[Job] = field(default_factory=list)
    """Jobs that have not asked yet whether a core would yield to them."""

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
        """Submit a job now; None when the queue is full or all of its cores were taken out."""
        full = self.queue_limit is not None and len(self.policy) >= self.queue_limit
        if full or (cores is not None and not any(self.cores[core].healthy for core in cores)):
            self.rejected += 1
            if self.observer is not None:
                self.observer.refused(self.time, "queue full" if full else "no core")
            return None
        self.submitted += 1
        request = Request(model, client, float(model.work.alone_us), self.time)
        job = Job(
            number=self.submitted,
            priority=priority,
            submitted_us=int(self.time),
            cores=cores,
            deadline_us=deadline_us,
            payload=request,
            model=model.name,
        )
        self.policy.submit(job)
        for core in self.cores:
            running = core.job
            if running is None or running.level < priority:
                self._came.append(job)
                self._changed = True
                break
        if self.observer is not None:
            self.observer.submitted(self.time, job, len(self.policy))
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
            job = self._release(core)
            job.state = JobState.FAILED
            self._tell(core, job, "failed")
            self._end(job, JobState.FAILED)

    def stall(self, number: int, until_us: float) -> None:
        """Let core *number* take no further job until then."""
        core = self.cores[number]
        core.stalled_until_us = until_us
        core.fresh = self._changed = True
        self._came = list(self.policy)

    def heat(self, slowdown: float) -> None:
        """Let everything take *slowdown* times as long from now on."""
        self._heat, self._changed = slowdown, True

    def take_out(self, number: int) -> None:
        """Take core *number* out: its job and those bound to it begin again elsewhere."""
        core = self.cores[number]
        core.healthy, core.stacked = False, 0
        others = [other.number for other in self.cores if other.healthy]
        if core.job is not None:
            self.policy.put_back(self._release(core), number)
        for job in list(self.policy):
            if job.cores is not None and number in job.cores:
                if job.begun:
                    job.payload.left_us = float(job.payload.model.work.alone_us)
                    self._tell(core, job, "lost")
                self.policy.free(job, number, others)
        self._changed, self._came = True, list(self.policy)

    def run(self, until_us: float = math.inf) -> None:
        """Let everything up to *until_us* happen, or until nothing more will."""
        due, policy = self._due, self.policy
        while True:
            if self._changed:
                self._assign()
            next_us = self._next_us
            if due and due[0][0] < next_us:
                next_us = due[0][0]
            deadline = policy.next_deadline_us
            if deadline is not None and deadline + 1.0 < next_us:
                next_us = deadline + 1.0
            if next_us > until_us or next_us == math.inf:
                break
            if next_us > self.time:
                self.time = next_us
            self._happen()
        if until_us != math.inf:
            self.time = max(self.time, until_us)
        for core in self.cores:
            core.settle(self.time)

    def _happen(self) -> None:
        now = self.time + _SLIVER
        if self._next_us <= now:
            self._changed = True
            for core in self.cores:
                if core.end_us <= now:
                    core.settle(self.time)
                    core.fresh = True
                    if core.job is not None and not core.switch_us:
                        self._stop(core, core.job)
        deadline = self.policy.next_deadline_us
        if deadline is not None and deadline < self.time:
            for job in self.policy.overdue(int(self.time)):
                self.policy.give_up(job, JobState.FAILED)
                self._end(job, JobState.FAILED)
        due = self._due
        while due and due[0][0] <= now:
            heapq.heappop(due)[2]()

    def _stop(self, core: Core, job: Job) -> None:
        """End *job*, the one of *core*, or let it yield where one waits that may take its core."""
        if job.payload.left_us > core.stop_us + _SLIVER:
            return
        if core.stop_us <= 0:
            self._release(core)
            job.state = JobState.DONE
            self._tell(core, job, "done")
            self._end(job, JobState.DONE)
        elif self.policy.preempts(job, core.number):
            self._put_aside(core)
        else:
            core.stop_us, core.asked = 0.0, False

    def _release(self, core: Core) -> Job:
        """Take the job off *core*, settled."""
        core.settle(self.time)
        job, core.job = core.job, None
        assert job is not None
        core.fresh = self._changed = True
        return job

    def _put_aside(self, core: Core) -> None:
        job = self._release(core)
        core.stacked += 1
        self.policy.put_back(job, core.number)
        self._tell(core, job, "preempted")

    def _assign(self) -> None:
        """Give free cores their next jobs, ask others to yield, and find out what ends next."""
        now = self.time
        for core in self.cores:
            if core.job is None and core.healthy and core.stalled_until_us <= now:
                self._take_up(core)
        if self._came:
            came, self._came = self._came, []
            for job in came:
                if job.state is JobState.WAITING:
                    self._ask_one_to_yield(job)
        self._changed = False
        self._set_speeds(now)
        self._next_us = min([core.end_us for core in self.cores])

    def _set_speeds(self, now: float) -> None:
        at_work: list[Core] = []
        works: list[Work] = []
        for core in self.cores:
            if core.job is None or core.switch_us:
                if core.fresh:
                    core.plan(now, 1.0)
            else:
                at_work.append(core)
                works.append(core.job.payload.model.work)
        for core, alone in zip(at_work, slowdowns(tuple(works)), strict=True):
            slowdown = alone * self._heat
            if core.fresh or core.slowdown != slowdown:
                core.plan(now, slowdown)

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
        core.settle(self.time)
        core.job, core.last, core.stop_us = job, request.model.name, 0.0
        core.asked, core.fresh = False, True
        job.begun = True
        self.risen += job.level > job.priority
        if request.first_us is None:
            request.first_us = self.time
        self._tell(core, job, "resumed" if resumed else "began")

    def _ask_one_to_yield(self, job: Job) -> None:
        """Let the least urgent of the jobs that run yield to *job* at its next boundary.

        Of equal ones that is the one whose boundary is next. A core that still switches to a job
        has nothing to save and turns to another at once.
        """
        best: Core | None = None
        rank: tuple[int, float] | None = None
        for core in self.cores:
            running = core.job
            if running is None or core.asked or running.level >= job.priority:
                continue
            if core.stalled_until_us > self.time or not job.may_run_on(core.number):
                continue
            core.settle(self.time)
            wait = 0.0 if core.switch_us else running.payload.left_us - core.boundary_us()
            if rank is None or (running.level, wait * core.slowdown) < rank:
                best, rank = core, (running.level, wait * core.slowdown)
        if best is None:
            return
        if best.switch_us:
            self._put_aside(best)
            self._take_up(best)
        else:
            best.stop_us, best.asked, best.fresh = best.boundary_us(), True, True

    def _end(self, job: Job, state: JobState) -> None:
        self.counts[state] += 1
        job.payload.ended_us = self.time
        if self.observer is not None:
            self.observer.ended(self.time, job, state, len(self.policy))
        if self.on_end is not None:
            self.on_end(job, state)

    def _tell(self, core: Core, job: Job, what: str) -> None:
        if self.observer is not None:
            self.observer.core(self.time, core.number, job, what, len(self.policy))
