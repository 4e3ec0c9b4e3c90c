"""One thread a core: runs job after job, and gives the core to more urgent ones between TOAs.

A more urgent job runs nested, on the same thread with another context, and the first one goes on
after it: nothing has to be saved, for each has its own arena and SRAM image.

Invariant: every job that is taken either ends here or waits again; a core that answers its
known-answer test wrongly takes no further job, and what it was running runs elsewhere.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from numpy.typing import NDArray

from npufw.cores import tested
from npufw.engine import Engine
from npurt.buffers import Block, BufferPool
from npurt.contexts import Busy, Context, Contexts
from npurt.errors import (
    DeadlineMissed,
    DeviceMemoryFull,
    JobFailed,
    NoHealthyCore,
    NpurtError,
)
from npurt.jobqueue import Core, JobQueue
from npurt.lifecycle import Owner, Step
from npurt.policy import Job, JobState
from npurt.requests import Request
from npurt.teller import Teller
from npurt.tensors import Outputs

__all__ = ["Ending", "Incident", "OnFull", "Workers"]

OnFull = Literal["queue", "refuse"]
"""What becomes of a job that finds no room on the device while others run: wait, or fail."""

_LOG = logging.getLogger("npurt")
_FAULTS = 2
"""Attempts that may end in a fault on cores that are sound, before the job itself is to blame."""

Ending = Callable[[Job, Request, Outputs | Exception], None]
"""Tells the service how a job ended."""


class _CoreLost(Exception):
    """The core was taken out: every job that it was running waits again."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A core that was taken out: why, and the jobs that it had ended since its last good test."""

    core: int
    reason: str
    suspects: tuple[int, ...]


@dataclass(slots=True)
class Workers:
    """The threads of a service's cores."""

    queue: JobQueue
    contexts: Contexts
    pool: BufferPool
    end: Ending
    teller: Teller
    begin: Callable[[int, int, str], None]
    give_back: Callable[[int, Sequence[Block], bool], None]
    on_full: OnFull = "queue"
    test_every: int = 0
    incidents: list[Incident] = field(default_factory=list)
    _threads: dict[int, threading.Thread] = field(default_factory=dict)

    def start(self) -> None:
        """Start a thread for each core."""
        for core in self.queue.cores:
            name = f"npurt-core-{core.number}"
            thread = threading.Thread(target=self._work, args=(core,), name=name, daemon=True)
            self._threads[core.number] = thread
            thread.start()

    def join(self) -> None:
        """Wait until the threads have ended, but for those of stalled cores."""
        for core in self.queue.cores:
            thread = self._threads[core.number]
            while thread.is_alive() and not core.stalled:
                thread.join(timeout=0.1)

    def expire(self, late: Sequence[Job]) -> None:
        """Fail those of the *late* jobs that still wait."""
        for job in late:
            if self.queue.withdraw(job, JobState.FAILED):
                text = f"job {job.number} had not begun when its deadline passed"
                self._end_waiting(job, DeadlineMissed(text))

    def abandon(self, core: Core, reason: str) -> None:
        """Take out *core*, which hangs: its jobs run elsewhere, whatever its thread still does."""
        core.stalled = True
        self._take_out(core, reason)
        self.contexts.abandon(core.number)
        for job in list(core.running):
            request: Request | None = job.payload
            if request is not None:
                self._again(job, request.attempt)
        self.queue.room()
        self._fail_waiting()

    # --- a core's thread --------------------------------------------------------------------------

    def _work(self, core: Core) -> None:
        while self._turn(core):
            pass

    def _turn(self, core: Core) -> bool:
        """Wait for a job and run it; False at the end. A thread that waits holds no job."""
        job, late = self.queue.next(core)
        self.expire(late)
        if job is not None:
            self._timed(core, job)
        return job is not None or bool(late)

    def _timed(self, core: Core, job: Job) -> None:
        begun = time.perf_counter_ns()
        try:
            self._run(core, job)
        except _CoreLost:
            self._fail_waiting()
        core.busy_us += (time.perf_counter_ns() - begun) // 1000

    def _run(self, core: Core, job: Job) -> bool:
        """Run *job*, the last of the core's running ones; False when it waits for room again."""
        request: Request = job.payload
        attempt, freed = request.attempt, self.queue.freed
        try:
            context = self.contexts.take(request.version, (core.number, len(core.running) - 1))
            self._attempt(core, job, context, attempt)
            return True
        except Busy:
            if self.on_full == "queue":
                core.blocked_at = freed
                self._again(job, attempt)
                return False
            text = "no room on the device while other jobs run, and on_full is 'refuse'"
            self._fail(job, attempt, DeviceMemoryFull(f"job {job.number}: {text}"))
            return True
        except (DeviceMemoryFull, MemoryError) as error:
            self._fail(job, attempt, error)
            return True
        finally:
            core.running.pop()

    def _attempt(self, core: Core, job: Job, context: Context, attempt: int) -> None:
        request: Request = job.payload
        outputs: Outputs | None = None
        taken: list[NDArray[Any]] = []
        keep = False
        try:
            if not core.healthy:
                raise _CoreLost
            outputs = self._outputs(job, request, taken)
            job.begun = True
            if not request.future.running():
                request.future.set_running_or_notify_cancel()
            request.advance(Step.START, Owner.FIRMWARE)
            outputs.advance(Step.START, Owner.FIRMWARE)
            self.teller.core(core, job, "began")
            self.teller.memory()
            self._compute(core, job, context.engine, taken)
            keep = True
        except _CoreLost:
            self.teller.core(core, job, "lost")
            self._again(job, attempt)
            raise
        except MemoryError:
            # The host's, not the core's: nothing was begun.
            raise
        except Exception as error:
            self._blame(core, job, context.engine, attempt, error)
        finally:
            taken.clear()
            if outputs is not None and not keep:
                outputs.abandon()
            self.contexts.give_back(context, keep=keep)
            self.queue.room()
        if keep and outputs is not None:
            self._finish(core, job, outputs, attempt)

    def _compute(self, core: Core, job: Job, engine: Engine, taken: Sequence[NDArray[Any]]) -> None:
        request: Request = job.payload
        if not core.tested and self.test_every:
            self._test(core, engine)
        engine.pause = partial(self._boundary, core, job)
        try:
            if engine.image.states:
                engine.reset()
            engine.transfer(request.given(), taken)
        finally:
            engine.pause = None
        if self.test_every:
            core.untested.append(job.number)
            if len(core.untested) >= self.test_every:
                self._test(core, engine)

    def _boundary(self, core: Core, job: Job) -> None:
        """Between two TOAs: give the core to whoever is more urgent."""
        core.boundaries += 1
        if not core.healthy:
            raise _CoreLost
        while core.attention:
            inner = self.queue.preempting(core, job)
            if inner is None:
                return
            self.teller.core(core, job, "preempted")
            ran = self._run(core, inner)
            self.teller.core(core, job, "resumed")
            if not ran:
                return
            core.attention = True

    def _outputs(self, job: Job, request: Request, taken: list[NDArray[Any]]) -> Outputs:
        """Return a job's outputs, and in *taken* the same memory as the engine fills it."""
        blocks: list[Block] = []
        arrays: dict[str, NDArray[Any]] = {}
        try:
            for port in request.version.image.outputs:
                shape, dtype = port.shape_of(request.runs), port.tensor.dtype
                blocks.append(self.pool.lend(math.prod(shape) * dtype.size))
                arrays[port.name] = blocks[-1].array(shape, dtype.numpy)
                taken.append(arrays[port.name].reshape(request.runs, *port.tensor.dims))
        except BaseException:
            arrays.clear()
            taken.clear()
            self.pool.take_back(blocks)
            raise
        return Outputs(job.number, arrays, blocks, self.give_back)

    # --- how jobs end -----------------------------------------------------------------------------

    def _finish(self, core: Core, job: Job, outputs: Outputs, attempt: int) -> None:
        request: Request = job.payload
        if not self.queue.claim(job, request, attempt, JobState.DONE):
            outputs.abandon()
            return
        core.jobs += 1
        self.teller.core(core, job, "done")
        request.advance(Step.FINISH, Owner.FIRMWARE)
        outputs.advance(Step.FINISH, Owner.FIRMWARE)
        self.begin(job.number, outputs.size, request.place)
        self.end(job, request, outputs)

    def _fail(self, job: Job, attempt: int, error: Exception) -> None:
        """End a job that was picked, unless another attempt at it decides."""
        request: Request = job.payload
        if self.queue.claim(job, request, attempt, JobState.FAILED):
            self._end_waiting(job, error)

    def _end_waiting(self, job: Job, error: Exception) -> None:
        """End a job that gives no result and whose fate is decided."""
        request: Request = job.payload
        request.requeue()
        request.withdraw()
        self.end(job, request, error)

    def _again(self, job: Job, attempt: int) -> None:
        """Let *job* wait for a core again, or fail it when none is left."""
        request: Request = job.payload
        if not self.queue.claim(job, request, attempt, JobState.WAITING):
            return
        request.requeue()
        if not self.queue.give_back(job):
            self._end_waiting(job, _no_core(job))

    def _blame(self, core: Core, job: Job, engine: Engine, attempt: int, error: Exception) -> None:
        """A job raised: find out whether the core or the job is to blame."""
        request: Request = job.payload
        reason = f"job {job.number} failed on it ({error})"
        found = self._answers(core, engine)
        if found:
            self._take_out(core, f"{reason}; known-answer test: {found}")
            self._again(job, attempt)
            raise _CoreLost from error
        request.faults += 1
        if request.faults < _FAULTS:
            self._again(job, attempt)
            return
        failure = JobFailed(f"job {job.number} failed on sound cores: {error}")
        failure.__cause__ = error
        self.teller.core(core, job, "failed")
        self._fail(job, attempt, failure)

    # --- sick cores -------------------------------------------------------------------------------

    def _test(self, core: Core, engine: Engine) -> None:
        """Run the known-answer test; raises _CoreLost when the core fails it."""
        found = self._answers(core, engine)
        if found:
            self._take_out(core, f"known-answer test: {found}")
            raise _CoreLost
        core.tested = True
        core.untested.clear()

    def _answers(self, core: Core, engine: Engine) -> str:
        """Return how *core* fails its known-answer test, "" when it passes."""
        # Whatever a sick core raises, it has not answered.
        try:
            found = tested(core.number, engine)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "" if found.passed else found.text

    def _take_out(self, core: Core, reason: str) -> None:
        again = {job.number for job in core.running}
        suspects = tuple(number for number in core.untested if number not in again)
        incident = Incident(core.number, reason, suspects)
        self.incidents.append(incident)
        _LOG.error("core %d was taken out: %s", core.number, reason)
        self.queue.take_out(core)

    def _fail_waiting(self) -> None:
        """With no core left, nothing that waits will run."""
        if self.queue.healthy:
            return
        for job in self.queue.waiting():
            if self.queue.withdraw(job, JobState.FAILED):
                self._end_waiting(job, _no_core(job))


def _no_core(job: Job) -> NpurtError:
    return NoHealthyCore(f"job {job.number}: every core was taken out; see incidents")
