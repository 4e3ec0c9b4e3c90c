"""Which job a core runs next: one policy for real threads and for emulated time.

Jobs of a higher priority come first, those of one priority in the order of their submission. A
waiting job rises one level each ``ageing_us`` and keeps that level while it runs, so that none
waits for ever. A job that came in with a higher priority than a running one's level takes its core
at the next descriptor boundary; a job that has only aged does not, or jobs would take turns and
lose time in switches. A preempted job goes back to the front of its level, and to the core that
holds its context.

Invariant: the policy knows no clock and no threads. Times are whole microseconds that its caller
gives, and the same calls give the same answers.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

__all__ = ["HIGHEST", "PRIORITIES", "Job", "JobState", "Policy"]

PRIORITIES = 8
"""Levels of priority, 0 to 7; 7 is the most urgent."""

HIGHEST = PRIORITIES - 1


class JobState(Enum):
    """Where a job is; the last three are final, and each job reaches exactly one of them."""

    WAITING = auto()
    RUNNING = auto()
    DONE = auto()
    FAILED = auto()
    CANCELLED = auto()


_FINAL = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


@dataclass(eq=False, slots=True)
class Job:
    """A request, as far as the policy must know it, and what observers call its ``model``.

    ``payload`` is its driver's business.

    ``cores`` are those that may run it, None for all; while it is preempted, the one that holds its
    context, and ``wanted`` keeps what they were. ``deadline_us`` is when it must have begun.
    ``level`` is the priority that it had risen to when it was picked.
    """

    number: int
    priority: int
    submitted_us: int
    cores: frozenset[int] | None = None
    deadline_us: int | None = None
    payload: Any = None
    model: str = ""
    state: JobState = JobState.WAITING
    core: int | None = None
    level: int = 0
    begun: bool = False
    kept: bool = False
    wanted: frozenset[int] | None = None

    def may_run_on(self, core: int) -> bool:
        """Whether *core* is one of its cores."""
        return self.cores is None or core in self.cores


_Key = tuple[int, frozenset[int] | None]


@dataclass(slots=True)
class Policy:
    """The jobs that wait, by priority and by the cores that may run them."""

    ageing_us: int
    _queues: dict[_Key, deque[Job]] = field(default_factory=dict)
    _deadlines: list[tuple[int, int, Job]] = field(default_factory=list)
    _counts: list[int] = field(default_factory=lambda: [0] * PRIORITIES)
    """Jobs that wait, by priority."""

    def __post_init__(self) -> None:
        if self.ageing_us <= 0:
            raise ValueError(f"ageing_us is above 0, got {self.ageing_us}")

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[Job]:
        """The jobs that wait, level by level, in no order between levels."""
        return (job for queue in self._queues.values() for job in queue if _waits(job))

    def submit(self, job: Job) -> None:
        """Let *job* wait. Raises ValueError for a priority that there is not."""
        if not 0 <= job.priority < PRIORITIES:
            raise ValueError(f"priorities are 0 to {HIGHEST}, got {job.priority}")
        self._queue(job).append(job)
        self._counts[job.priority] += 1
        if job.deadline_us is not None:
            heapq.heappush(self._deadlines, (job.deadline_us, job.number, job))

    def put_back(self, job: Job, core: int) -> None:
        """Let *job*, which was preempted on *core*, wait in front of its level for that core."""
        job.state, job.core = JobState.WAITING, None
        if not job.kept:
            job.wanted, job.kept = job.cores, True
        job.cores = frozenset({core})
        self._queue(job).appendleft(job)
        self._counts[job.priority] += 1

    def give_back(self, job: Job) -> None:
        """Let *job*, which could not run where it was picked, wait in front of its level again."""
        job.state, job.core = JobState.WAITING, None
        self._queue(job).appendleft(job)
        self._counts[job.priority] += 1
        if job.deadline_us is not None and not job.begun:
            # It may have passed while the job was picked.
            heapq.heappush(self._deadlines, (job.deadline_us, job.number, job))

    def give_up(self, job: Job, state: JobState) -> bool:
        """Take a waiting *job* out for good; False when it does not wait any more."""
        if job.state is not JobState.WAITING:
            return False
        job.state = state
        self._counts[job.priority] -= 1
        return True

    def free(self, job: Job, sick: int, cores: Collection[int]) -> None:
        """Let *job*, which waits, run on any of *cores*: core *sick* was taken out.

        A context that was kept there is lost, so the job begins again.
        """
        if job.cores is None or sick not in job.cores:
            return
        self._queue(job).remove(job)
        left = frozenset(cores)
        wanted = job.wanted if job.kept else job.cores
        job.cores = left if wanted is None else wanted & left or left
        job.kept = job.begun = False
        queue = self._queue(job)
        queue.append(job)
        if len(queue) > 1 and queue[-2].number > job.number:
            self._queues[job.priority, job.cores] = deque(sorted(queue, key=_number))

    def pick(self, core: int, now_us: int) -> Job | None:
        """Return the job that *core* is to run, which then runs; None when none may."""
        key = self._best(core, now_us)
        if key is None:
            return None
        job = self._queues[key].popleft()
        self._counts[job.priority] -= 1
        job.state, job.core, job.level = JobState.RUNNING, core, self._level(job, now_us)
        return job

    def preempts(self, running: Job, core: int) -> bool:
        """Whether a job waits that may take *core* from *running*: of a higher priority than it."""
        if not any(self._counts[running.level + 1 :]):
            return False
        return any(
            priority > running.level and _allows(cores, core) and self._head(queue) is not None
            for (priority, cores), queue in self._queues.items()
        )

    def overdue(self, now_us: int) -> list[Job]:
        """Return the waiting jobs whose deadline has passed and that have not begun; each once."""
        found: dict[int, Job] = {}
        while self._deadlines and self._deadlines[0][0] < now_us:
            job = heapq.heappop(self._deadlines)[2]
            if _waits(job) and not job.begun:
                found[job.number] = job
        return list(found.values())

    @property
    def next_deadline_us(self) -> int | None:
        """When a job that waits and has not begun is next overdue."""
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].begun or deadlines[0][2].state in _FINAL):
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def _level(self, job: Job, now_us: int) -> int:
        return min(HIGHEST, job.priority + (now_us - job.submitted_us) // self.ageing_us)

    def _queue(self, job: Job) -> deque[Job]:
        return self._queues.setdefault((job.priority, job.cores), deque())

    def _best(self, core: int, now_us: int) -> _Key | None:
        best: _Key | None = None
        rank: tuple[int, int, int] | None = None
        for key, queue in self._queues.items():
            if not queue or not (key[1] is None or core in key[1]):
                continue
            head = self._head(queue)
            if head is None:
                continue
            found = (self._level(head, now_us), -head.submitted_us, -head.number)
            if rank is None or found > rank:
                best, rank = key, found
        return best

    @staticmethod
    def _head(queue: deque[Job]) -> Job | None:
        """Return the first job of *queue* that still waits; those given up are dropped."""
        while queue and not _waits(queue[0]):
            queue.popleft()
        return queue[0] if queue else None


def _number(job: Job) -> int:
    return job.number


def _waits(job: Job) -> bool:
    return job.state is JobState.WAITING


def _allows(cores: frozenset[int] | None, core: int) -> bool:
    return cores is None or core in cores
