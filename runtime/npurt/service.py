"""The service: any number of threads submit jobs of any models, and each gets its own result.

Invariant: every job ends exactly once, as done, failed or cancelled; nothing of the application is
called by a device thread, and nothing at all after ``close`` has returned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from npuabi.target import load_target
from npufw.boot import Port
from npufw.faults import Hook
from npufw.host import named_inputs, runs_of
from npurt.buffers import BufferPool, Leak
from npurt.contexts import Contexts, Version
from npurt.device import DeviceMemory
from npurt.errors import NoHealthyCore, QueueFull
from npurt.futures import Dispatcher, JobFuture
from npurt.jobqueue import Core, JobQueue, now_us
from npurt.leases import Leases, calling_line
from npurt.models import Blob, Model, Models
from npurt.observer import Observer
from npurt.policy import Job, JobState, Policy
from npurt.requests import Given, Request, arrays_of, bound
from npurt.teller import Teller
from npurt.tensors import HostTensor, Outputs, lent_tensor, why_copied
from npurt.watch import Watch
from npurt.workers import Incident, OnFull, Workers

__all__ = ["CoreStats", "MemoryStats", "Service"]

_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class CoreStats:
    """What a core has done so far."""

    core: int
    healthy: bool
    jobs: int
    preemptions: int
    busy_us: int


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes now. ``host_lent`` are those of inputs and outputs that somebody has."""

    device_free: int
    device_largest_free: int
    host_lent: int
    host_free: int
    loads: int
    evictions: int
    boots: int


class Service:
    """The cores of one device, and the models that run on them.

    *cores* are as many as the *target* has. *device_bytes* is what models and jobs may take of its
    memory, *model_bytes* what the constants of models may; *on_full* says whether a job that finds
    no room waits ("queue") or fails ("refuse"). At most *queue* jobs wait; one that waits rises a
    priority every *ageing* seconds. Each core runs the known-answer test of the model at hand
    before its first job and once every *test_every* jobs (0: never); one that fails it, or that
    finishes no TOA in *stall* seconds, is taken out. *faults* are hooks of npufw.faults by core.
    *observer* is told what becomes of jobs, by several threads: npurt.metrics.Metrics,
    npurt.logs.JobLog.
    """

    def __init__(
        self,
        cores: int | None = None,
        *,
        target: str = "edge",
        device_bytes: int | None = None,
        model_bytes: int | None = None,
        on_full: OnFull = "queue",
        queue: int = 65_536,
        ageing: float = 1.0,
        test_every: int = 1000,
        stall: float = 60.0,
        faults: Mapping[int, Sequence[Hook]] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.target = load_target(target)
        count = self.target.cores if cores is None else cores
        size = self.target.ddr_bytes if device_bytes is None else device_bytes
        if not 1 <= count <= self.target.cores:
            raise ValueError(f"{target} has {self.target.cores} cores, got cores={count}")
        if size > self.target.ddr_bytes:
            raise ValueError(f"{target} has {self.target.ddr_bytes} bytes, got device_bytes={size}")
        if on_full not in ("queue", "refuse"):
            raise ValueError(f"on_full is 'queue' or 'refuse', got {on_full!r}")
        self._device = DeviceMemory(size)
        self._contexts = Contexts(self._device, model_bytes, faults or {})
        self._models = Models(self.target, self._contexts)
        self._pool = BufferPool()
        self._leases = Leases(self._pool)
        policy = Policy(ageing_us=int(ageing * _MICRO))
        self._jobs = JobQueue(policy, [Core(number) for number in range(count)], queue)
        self._numbers = itertools.count(1)
        self._stall = stall
        self._progress: dict[int, tuple[int, int, int]] = {}
        self._teller = Teller(observer, self._jobs, self._device)
        self._workers = Workers(
            queue=self._jobs,
            contexts=self._contexts,
            pool=self._pool,
            end=self._end,
            teller=self._teller,
            begin=self._leases.begin,
            give_back=self._leases.give_back,
            on_full=on_full,
            test_every=test_every,
        )
        self._dispatcher = Dispatcher("npurt-callbacks")
        self._workers.start()
        self._watch = Watch("npurt-watch", self._look)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(cancel=kind is not None)

    # --- models -----------------------------------------------------------------------------------

    def load(self, blob: Blob, name: str | None = None) -> Model:
        """Return the model of *blob*, read and checked now.

        Raises AbiError, OSError; ValueError when *name* stands for another blob.
        """
        model = self._models.named(blob) if name is None else self._models.add(blob, name)
        self._models.release(self._models.acquire(model))
        return model

    def swap(self, model: Model | Blob, blob: Blob) -> None:
        """Let *model* stand for *blob* from the next job on; jobs that wait keep the old one.

        Raises AbiError, and then nothing has changed.
        """
        self._models.swap(self._models.named(model), blob)

    def unload(self, model: Model | Blob) -> None:
        """Forget *model*: what it holds is free when its last job has ended."""
        self._models.unload(self._models.named(model))

    # --- jobs -------------------------------------------------------------------------------------

    def submit(
        self,
        model: Model | Blob,
        inputs: Given,
        *,
        priority: int = 0,
        deadline: float | None = None,
        user_data: Any = None,
        callback: Callable[[JobFuture], object] | None = None,
        cores: Collection[int] | None = None,
    ) -> JobFuture:
        """Queue a job and return its future; *inputs* are arrays or host tensors by name.

        *priority* is 0 to 7, 7 the most urgent. A job that has not begun *deadline* seconds from
        now fails with DeadlineMissed. *callback* is called with the future when it is done.
        *cores* are those that may run it. Raises FirmwareError for inputs that do not fit,
        LifecycleError for tensors that another job has, ServiceClosed, QueueFull, NoHealthyCore,
        and what ``load`` raises.
        """
        job = Job(
            number=next(self._numbers),
            priority=priority,
            submitted_us=now_us(),
            cores=None if cores is None else self._known(cores),
        )
        if deadline is not None:
            job.deadline_us = job.submitted_us + int(deadline * _MICRO)
        try:
            future = self._submit(job, self._models.named(model), inputs, user_data, callback)
        except (QueueFull, NoHealthyCore) as error:
            self._teller.refused("queue full" if isinstance(error, QueueFull) else "no core")
            raise
        self._teller.submitted(job)
        if deadline is not None:
            self._watch.wake()
        return future

    def run(
        self, model: Model | Blob, inputs: Given, *, priority: int = 0
    ) -> dict[str, NDArray[Any]]:
        """Submit a job, wait for it, and return arrays that are the caller's own."""
        with self.submit(model, inputs, priority=priority).result() as outputs:
            return outputs.copy()

    def tensor(self, model: Model | Blob, name: str, runs: int = 1) -> HostTensor:
        """Return a tensor for input *name* in memory that the device reads without a copy."""
        port = self._port(model, name)
        return lent_tensor(self._pool, port, runs, self.target.row_pitch)

    def wrap(self, model: Model | Blob, name: str, array: NDArray[Any]) -> HostTensor:
        """Return *array* as a tensor for input *name*: without a copy where its memory allows it.

        Its ``copied`` says why not. The array is read-only while a job has it.
        """
        port = self._port(model, name)
        runs = runs_of([port], {name: array})
        reason = why_copied(port, np.asarray(array), runs, self.target.row_pitch)
        return HostTensor(name, array, copied=reason)

    def close(self, *, wait: bool = True, cancel: bool = False) -> None:
        """Take no more jobs and end: all that wait are run, or with *cancel* cancelled.

        Jobs that run are always waited for; without *wait* this returns while jobs still run, and
        a later ``close()`` waits. After a waiting close nothing is called any more. Outputs that
        are still held are reported as leaks.
        """
        self._jobs.close()
        if cancel:
            for job in self._jobs.waiting():
                self._withdraw(job)
        if not wait:
            return
        self._workers.join()
        self._watch.stop()
        self._dispatcher.stop()
        self._models.clear()
        self._leases.close()

    # --- what can be seen -------------------------------------------------------------------------

    @property
    def leaks(self) -> list[Leak]:
        """Outputs that nobody released."""
        return list(self._leases.leaks)

    @property
    def incidents(self) -> list[Incident]:
        """Cores that were taken out."""
        return list(self._workers.incidents)

    @property
    def callback_failures(self) -> int:
        """How many callbacks raised; each is logged."""
        return self._dispatcher.failures

    def jobs(self) -> dict[JobState, int]:
        """Return how many jobs wait, run, and have ended in which way."""
        return self._jobs.counts()

    def cores(self) -> list[CoreStats]:
        """Return what each core has done."""
        return [
            CoreStats(c.number, c.healthy, c.jobs, c.preemptions, c.busy_us)
            for c in self._jobs.cores
        ]

    def memory(self) -> MemoryStats:
        """Return the bytes in use on device and host."""
        return MemoryStats(
            device_free=self._device.free_bytes,
            device_largest_free=self._device.largest_free,
            host_lent=self._pool.lent_bytes,
            host_free=self._pool.free_bytes,
            loads=self._contexts.loads,
            evictions=self._contexts.evictions,
            boots=self._models.boots,
        )

    def occupancy(self) -> list[str]:
        """Return the lines of a map of the device's memory."""
        return self._contexts.occupancy()

    # --- inside -----------------------------------------------------------------------------------

    def _submit(
        self,
        job: Job,
        model: Model,
        inputs: Given,
        user_data: Any,
        callback: Callable[[JobFuture], object] | None,
    ) -> JobFuture:
        self._jobs.check_open()
        version, job.model = self._models.acquire(model), model.name
        try:
            request = self._request(job, version, inputs, user_data)
            job.payload = request
            if callback is not None:
                request.future.add_done_callback(callback)
            self._queue(job, request)
        except BaseException:
            self._models.release(version)
            raise
        return request.future

    def _request(self, job: Job, version: Version, inputs: Given, user_data: Any) -> Request:
        ports = version.image.inputs
        _, runs = arrays_of(ports, inputs)
        tensors, copies, copied = bound(ports, inputs, runs, self._pool, self.target)
        return Request(
            version=version,
            future=JobFuture(job, user_data, copied, self._withdraw, self._dispatcher),
            place=calling_line(),
            runs=runs,
            tensors=tensors,
            copies=copies,
        )

    def _queue(self, job: Job, request: Request) -> None:
        try:
            request.submit()
            try:
                self._jobs.submit(job)
            except BaseException:
                request.withdraw()
                raise
        except BaseException:
            request.let_go()
            raise

    def _withdraw(self, job: Job) -> bool:
        """Cancel *job* if it waits and has not begun."""
        request: Request | None = job.payload
        if request is None or request.future.running():
            return False
        if not self._jobs.withdraw(job, JobState.CANCELLED):
            return False
        job.payload = None
        request.withdraw()
        request.let_go()
        self._models.release(request.version)
        self._teller.ended(job, JobState.CANCELLED)
        request.future.cancelled_now()
        self._jobs.end(JobState.CANCELLED)
        return True

    def _end(self, job: Job, request: Request, result: Outputs | Exception) -> None:
        """Complete a job's future; called once a job."""
        job.payload = None
        request.let_go()
        self._models.release(request.version)
        state = JobState.DONE if isinstance(result, Outputs) else JobState.FAILED
        self._teller.ended(job, state)
        if isinstance(result, Outputs):
            request.future.set_result(result)
        else:
            request.future.set_exception(result)
        self._jobs.end(state)

    def _port(self, model: Model | Blob, name: str) -> Port:
        version = self._models.acquire(self._models.named(model))
        ports = version.image.inputs
        self._models.release(version)
        named_inputs(ports, {port.name: _NOTHING for port in ports} | {name: _NOTHING})
        return next(port for port in ports if port.name == name)

    def _known(self, cores: Collection[int]) -> frozenset[int]:
        there = {core.number for core in self._jobs.cores}
        if not cores or not set(cores) <= there:
            raise ValueError(f"cores are some of {sorted(there)}, got {sorted(cores)}")
        return frozenset(cores)

    def _look(self) -> float:
        """Fail what has passed its deadline, look for stalled cores; return when to look again."""
        self._workers.expire(self._jobs.late())
        due = self._jobs.next_deadline_us()
        waits = [self._stalled()]
        if due is not None:
            waits.append(max(0.0, (due - now_us() + 1) / _MICRO))
        return min(waits)

    def _stalled(self) -> float:
        """Take out cores that have not finished a TOA for too long; return when to look again."""
        now = now_us()
        for core in self._jobs.cores:
            job = core.running[-1] if core.running else None
            if job is None or not core.healthy:
                self._progress.pop(core.number, None)
                continue
            seen = self._progress.get(core.number)
            if seen is None or seen[:2] != (job.number, core.boundaries):
                self._progress[core.number] = (job.number, core.boundaries, now)
            elif now - seen[2] > self._stall * _MICRO:
                self._workers.abandon(core, f"no TOA of job {job.number} ended in {self._stall} s")
        return self._stall / 4


_NOTHING: NDArray[Any] = np.empty(0)
