"""The service: one completion a job, bound to its request; deadlines, priorities, closing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from npuabi.enums import Opcode
from npufw.errors import FirmwareError
from npufw.fault_models.die import Die, DieHook
from npufw.fault_models.instruction import StuckInstruction
from npurt import (
    DeadlineMissed,
    DeviceMemoryFull,
    JobFailed,
    JobFuture,
    NoHealthyCore,
    QueueFull,
    Service,
    ServiceClosed,
    Session,
)
from npurt.observer import Observer
from npurt.policy import Job, JobState
from tests.served import Gate, Sick, equal, served

WAIT = 60
"""Seconds after which a test has hung."""


def _release(future: JobFuture) -> None:
    future.result().release()


def test_a_session_gives_the_outputs_and_ends() -> None:
    model = served("dense")
    with Session(model.blob) as session:
        assert equal(session.run(model.inputs[0]), model.outputs[0])
    with pytest.raises(ServiceClosed):
        session.run(model.inputs[0])


def test_a_session_keeps_states_from_run_to_run_and_a_service_starts_each_job_anew() -> None:
    model, x = served("frames"), np.ones((1, 4), np.float32)
    with Session(model.blob) as session:
        assert [session.run({"x": x})["y"][0, 0] for _ in range(3)] == [1, 2, 3]
        session.reset()
        assert session.run({"x": x})["y"][0, 0] == 1
    with Service() as service:
        assert [service.run(model.blob, {"x": x})["y"][0, 0] for _ in range(3)] == [1, 1, 1]
        frames = service.run(model.blob, {"x": np.ones((3, 4), np.float32)})["y"]
        assert frames[:, 0].tolist() == [1, 2, 3]


def test_a_result_belongs_to_its_request_whatever_the_order() -> None:
    model = served("conv")
    with Service() as service:
        futures = [
            service.submit(model.blob, x, priority=i % 8, user_data=i)
            for i, x in enumerate(model.inputs)
        ]
        for future in concurrent.futures.as_completed(futures, WAIT):
            assert isinstance(future, JobFuture)
            with future.result() as outputs:
                assert equal(outputs, model.outputs[future.user_data])
        assert sum(core.jobs for core in service.cores()) == len(futures)
        assert service.memory().boots == 1


def test_futures_are_awaitable_and_their_cancellation_is_the_jobs() -> None:
    model, gate = served("dense"), Gate()

    async def both(service: Service) -> list[bool]:
        first = service.submit(model.blob, model.inputs[0])
        second = service.submit(model.blob, model.inputs[1])
        task = asyncio.ensure_future(asyncio.wrap_future(second))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        gate.open()
        with await first as outputs:
            return [equal(outputs, model.outputs[0]), second.cancelled()]

    with Service(cores=1, faults={0: [gate]}, test_every=0) as service:
        assert asyncio.run(both(service)) == [True, True]


def test_only_a_waiting_job_can_be_cancelled_and_it_ends_as_cancelled() -> None:
    model, gate = served("dense"), Gate()
    told: list[JobFuture] = []
    with Service(cores=1, faults={0: [gate]}, test_every=0) as service:
        running = service.submit(model.blob, model.inputs[0])
        assert gate.reached.wait(WAIT)
        waiting = service.submit(model.blob, model.inputs[1], callback=told.append)
        assert not running.cancel()
        assert waiting.cancel()
        assert waiting.cancel()
        assert waiting.cancelled()
        assert concurrent.futures.wait([waiting], WAIT).done == {waiting}
        gate.open()
        running.result(WAIT).release()
        assert not running.cancel()
        with pytest.raises(CancelledError):
            waiting.result()
    assert told == [waiting]
    assert service.memory().host_lent == 0


def test_what_does_not_start_before_its_deadline_fails_and_what_has_begun_does_not() -> None:
    model, gate = served("dense"), Gate()
    with Service(cores=1, faults={0: [gate]}, test_every=0) as service:
        begun = service.submit(model.blob, model.inputs[0], deadline=30)
        assert gate.reached.wait(WAIT)
        late = service.submit(model.blob, model.inputs[1], deadline=0.01)
        # The only core is held: the deadline is noticed all the same.
        with pytest.raises(DeadlineMissed, match="had not begun when its deadline passed"):
            late.result(WAIT)
        gate.open()
        begun.result(WAIT).release()
    assert service.memory().host_lent == 0


def test_a_more_urgent_job_takes_the_core_between_two_toas() -> None:
    long, short = served("conv"), served("dense")
    gate, order = Gate(), list[object]()
    with Service(cores=1, faults={0: [gate]}, test_every=0) as service:

        def submit(model: Any, index: int, priority: int, name: str) -> JobFuture:
            return service.submit(
                model.blob,
                model.inputs[index],
                priority=priority,
                user_data=name,
                callback=lambda future: order.append(future.user_data),
            )

        low = submit(long, 0, 0, "low")
        assert gate.reached.wait(WAIT)
        same = submit(long, 1, 0, "same")
        middle = submit(short, 1, 3, "middle")
        high = submit(long, 2, 5, "high")
        gate.open()
        for future, model, index in (
            (low, long, 0),
            (same, long, 1),
            (middle, short, 1),
            (high, long, 2),
        ):
            with future.result(WAIT) as outputs:
                assert equal(outputs, model.outputs[index])
        assert service.cores()[0].preemptions >= 2
    assert order == ["high", "middle", "low", "same"]


def test_a_full_queue_refuses_and_takes_jobs_again_later() -> None:
    model, gate = served("dense"), Gate()
    with Service(cores=1, queue=2, faults={0: [gate]}, test_every=0) as service:
        futures = [service.submit(model.blob, model.inputs[0])]
        assert gate.reached.wait(WAIT)
        futures += [service.submit(model.blob, x) for x in model.inputs[:2]]
        with pytest.raises(QueueFull, match="2 jobs wait already"):
            service.submit(model.blob, model.inputs[0])
        gate.open()
        for future in futures:
            future.result(WAIT).release()
        service.run(model.blob, model.inputs[0])
    assert service.memory().host_lent == 0


def test_jobs_keep_to_the_cores_that_they_name() -> None:
    model = served("dense")
    with Service() as service:
        futures = [service.submit(model.blob, model.inputs[0], cores={2}) for _ in range(20)]
        for future in futures:
            future.result(WAIT).release()
        assert [core.jobs for core in service.cores()] == [0, 0, 20]
        with pytest.raises(ValueError, match=r"cores are some of \[0, 1, 2\]"):
            service.submit(model.blob, model.inputs[0], cores={3})
        with pytest.raises(ValueError, match="priorities are 0 to 7"):
            service.submit(model.blob, model.inputs[0], priority=8)
        assert service.memory().host_lent == 0


def test_close_waits_for_every_job_or_cancels_what_waits() -> None:
    model, gate = served("conv"), Gate()
    with Service() as service:
        futures = [service.submit(model.blob, x, callback=_release) for x in model.inputs]
    assert all(future.done() for future in futures)
    service = Service(cores=1, faults={0: [gate]}, test_every=0)
    running = service.submit(model.blob, model.inputs[0])
    waiting = [service.submit(model.blob, x) for x in model.inputs]
    assert gate.reached.wait(WAIT)
    service.close(wait=False, cancel=True)
    assert all(future.cancelled() for future in waiting)
    with pytest.raises(ServiceClosed):
        service.submit(model.blob, model.inputs[0])
    gate.open()
    running.result(WAIT).release()
    service.close()
    service.close()
    assert service.memory().host_lent == 0


def test_an_error_inside_with_cancels_what_waits() -> None:
    model, gate = served("dense"), Gate()
    service = Service(cores=1, faults={0: [gate]}, test_every=0)
    running = service.submit(model.blob, model.inputs[0], callback=_release)
    assert gate.reached.wait(WAIT)
    waiting = service.submit(model.blob, model.inputs[0])
    waiting.add_done_callback(lambda _: gate.open())
    with pytest.raises(KeyError), service:
        raise KeyError
    assert waiting.cancelled()
    assert running.done()


def test_callbacks_resubmit_cancel_and_close_off_the_device_threads() -> None:
    model, threads = served("dense"), set[str]()
    service = Service()
    ended, chain = threading.Event(), list[JobFuture]()

    def step(future: JobFuture) -> None:
        threads.add(threading.current_thread().name)
        future.result().release()
        if len(chain) == 20:
            service.submit(model.blob, model.inputs[0], callback=never).cancel()
            # Waiting in a callback for another job works too.
            service.submit(model.blob, model.inputs[1]).result(WAIT).release()
            service.close()
            ended.set()
            return
        chain.append(service.submit(model.blob, model.inputs[0], callback=step))

    def never(future: JobFuture) -> None:
        threads.add(threading.current_thread().name)
        if not future.cancelled():
            future.result().release()

    chain.append(service.submit(model.blob, model.inputs[0], callback=step))
    assert ended.wait(WAIT)
    service.close()
    assert threads == {"npurt-callbacks"}
    assert service.memory().host_lent == 0
    assert service.callback_failures == 0


def test_nothing_is_called_after_close_has_returned() -> None:
    model, closed, late = served("dense"), threading.Event(), list[JobFuture]()

    def callback(future: JobFuture) -> None:
        time.sleep(0.001)
        if closed.is_set():
            late.append(future)
        future.result().release()

    with Service() as service:
        for x in model.inputs:
            service.submit(model.blob, x, callback=callback)
    closed.set()
    time.sleep(0.02)
    assert not late
    assert service.memory().host_lent == 0


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_the_nth_callback_that_fails_takes_nothing_with_it(error: type[BaseException]) -> None:
    """X1: one of four callbacks raises, then all from it on; the next job is right."""
    model = served("dense")
    for first in range(4):
        for last in (first + 1, 4):
            calls: list[JobFuture] = []

            def callback(
                future: JobFuture, bad: range = range(first, last), calls: list[JobFuture] = calls
            ) -> None:
                calls.append(future)
                future.result().release()
                if len(calls) - 1 in bad:
                    raise error("in a callback")

            with Service() as service:
                for x in model.inputs[:4]:
                    service.submit(model.blob, x, callback=callback)
                assert equal(service.run(model.blob, model.inputs[5]), model.outputs[5])
            assert len(calls) == 4
            assert service.callback_failures == last - first
            assert service.memory().host_lent == 0


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "input 'x' is not given"),
        ({"x": 1, "z": 2}, "no input is called 'z'"),
        ({"x": np.zeros((1, 4))}, "expected 1x4 float32, 16 bytes, got 1x4 float64, 32 bytes"),
        ({"x": np.zeros((1, 4), ">f4")}, "got 1x4 float32 big-endian, 16 bytes"),
        ({"x": np.zeros((4, 1), np.float32)}, "expected 1x4 float32, 16 bytes, got 4x1"),
        ({"x": np.zeros((0, 4), np.float32)}, "the first axis is a multiple of 1"),
        ({"x": np.full((1, 4), np.nan, np.float32)}, "input 'x' is NaN at index"),
        ({"x": b"0123"}, "input 'x'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_before_they_wait(
    inputs: dict[str, Any], words: str
) -> None:
    """C37: expected and given are named, and nothing is held afterwards."""
    model = served("dense")
    with Service() as service:
        with pytest.raises(FirmwareError, match=words):
            service.submit(model.blob, inputs)
        assert service.memory().host_lent == 0
        assert equal(service.run(model.blob, model.inputs[0]), model.outputs[0])


def test_strided_and_read_only_inputs_are_read_as_they_are_meant() -> None:
    """C37: non-contiguous is copied, not misread; the caller may change its array at once."""
    model = served("conv")
    x = model.inputs[0]["x"]
    forms = [np.asfortranarray(x), np.repeat(x, 2, axis=3)[..., ::2], x[:, :, ::-1][:, :, ::-1]]
    forms.append(x.copy())
    forms[-1].flags.writeable = False
    changed = x.copy()
    with Service() as service:
        future = service.submit(model.blob, {"x": changed})
        changed[:] = -1
        with future.result(WAIT) as outputs:
            assert equal(outputs, model.outputs[0])
        for form in forms:
            assert equal(service.run(model.blob, {"x": form}), model.outputs[0])


def test_a_core_that_fails_its_test_is_taken_out_and_its_jobs_run_elsewhere() -> None:
    """X5: the core turns bad in the middle; no result is wrong, none is lost."""
    model = served("dense")
    sick = Sick(range(9, 1000))
    with Service(test_every=1, faults={1: [sick]}) as service:
        futures = [
            service.submit(model.blob, x, user_data=i) for i, x in enumerate(model.inputs * 20)
        ]
        for future in futures:
            with future.result(WAIT) as outputs:
                assert equal(outputs, model.outputs[future.user_data % len(model.inputs)])
        (incident,) = service.incidents
        assert incident.core == 1
        assert "known-answer test: 3 outputs" in incident.reason
        assert incident.suspects == ()
        assert [core.healthy for core in service.cores()] == [True, False, True]
        assert sum(core.jobs for core in service.cores()) == len(futures)
        bound = service.submit(model.blob, model.inputs[0], cores={0, 1})
        bound.result(WAIT).release()
        with pytest.raises(NoHealthyCore, match=r"cores \[1\] were taken out"):
            service.submit(model.blob, model.inputs[0], cores={1})
    assert service.memory().host_lent == 0


def test_an_instruction_that_a_core_computes_wrongly_is_found_and_a_die_is_no_fault() -> None:
    """The known-answer test leaves out the gain of a die's columns, as the compiler does."""
    model = served("dense", precision="int8")
    stuck = StuckInstruction(Opcode.CONV, bit=6, lane=1, value=1)
    die = DieHook(Die(seed=3), 0)
    with Service(cores=2, faults={0: [die], 1: [stuck]}) as service:
        for core in range(2):
            service.submit(model.blob, model.inputs[0], cores={core}).result(WAIT).release()
        assert [incident.core for incident in service.incidents] == [1]
        assert service.cores()[0].jobs == 2


def test_a_core_that_raises_and_fails_its_test_is_taken_out_with_all_that_it_ran() -> None:
    model = served("dense")
    with Service(cores=2, faults={0: [Sick(range(3, 1000), raises=True)]}) as service:
        futures = [service.submit(model.blob, x) for x in model.inputs * 10]
        for future, expected in zip(futures, list(model.outputs) * 10, strict=True):
            with future.result(WAIT) as outputs:
                assert equal(outputs, expected)
        assert [incident.core for incident in service.incidents] == [0]
    assert service.memory().host_lent == 0


def test_a_fault_that_passes_costs_an_attempt_and_a_job_that_fails_on_sound_cores_fails() -> None:
    model = served("dense")
    with Service(cores=1, test_every=0, faults={0: [Sick([1, 3, 5], raises=True)]}) as service:
        # Runs: 0 job, 1 fault, 2 test, 3 fault, 4 test.
        assert equal(service.run(model.blob, model.inputs[0]), model.outputs[0])
        with pytest.raises(JobFailed, match="failed on sound cores: a fault of the core") as error:
            service.submit(model.blob, model.inputs[1]).result(WAIT)
        assert isinstance(error.value.__cause__, RuntimeError)
        # Runs: 5 fault, 6 test, 7 job.
        assert equal(service.run(model.blob, model.inputs[2]), model.outputs[2])
        assert not service.incidents
    assert service.memory().host_lent == 0


def test_without_a_healthy_core_every_job_ends_with_that() -> None:
    model = served("dense")
    with Service(faults={core: [Sick()] for core in range(3)}) as service:
        futures = [service.submit(model.blob, model.inputs[0], cores={core}) for core in range(3)]
        for future in futures:
            assert isinstance(future.exception(WAIT), NoHealthyCore)
        assert len(service.incidents) == 3
        with pytest.raises(NoHealthyCore):
            service.submit(model.blob, model.inputs[0])
    assert service.memory().host_lent == 0


def test_a_core_that_stalls_is_taken_out_and_the_others_go_on() -> None:
    """C38: its job runs elsewhere, once; what the stalled thread still does counts no more."""
    model, gate = served("dense"), Gate()
    with Service(cores=2, stall=0.2, test_every=0, faults={0: [gate]}) as service:
        stuck = service.submit(model.blob, model.inputs[0], cores={0})
        assert gate.reached.wait(WAIT)
        for x, expected in zip(model.inputs, model.outputs, strict=True):
            assert equal(service.run(model.blob, x), expected)
        with stuck.result(WAIT) as outputs:
            assert equal(outputs, model.outputs[0])
        assert [incident.core for incident in service.incidents] == [0]
    assert service.memory().host_lent > 0, "what the stalled thread may still write to is not lent"
    gate.open()
    end = time.monotonic() + WAIT
    while service.memory().host_lent and time.monotonic() < end:
        time.sleep(0.01)
    assert service.memory().host_lent == 0
    assert service.jobs() == {
        JobState.WAITING: 0,
        JobState.RUNNING: 0,
        JobState.DONE: len(model.inputs) + 1,
        JobState.FAILED: 0,
        JobState.CANCELLED: 0,
    }


def test_a_blob_that_cannot_be_loaded_is_refused_to_all_who_wait_for_it() -> None:
    with Service() as service:
        for _ in range(2):
            with pytest.raises(Exception, match="bad_magic"):
                service.submit(b"no blob", {})
        with pytest.raises(FileNotFoundError):
            service.load("missing.bin")


class _Diary(Observer):
    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def submitted(self, time_us: float, job: Job, waiting: int) -> None:
        self.lines.append(("submitted", job.number))

    def refused(self, time_us: float, reason: str) -> None:
        self.lines.append(("refused", reason))

    def core(self, time_us: float, core: int, job: Job, what: str, waiting: int) -> None:
        self.lines.append((what, job.number))

    def ended(self, time_us: float, job: Job, state: JobState, waiting: int) -> None:
        self.lines.append((state.name.lower(), job.number))
        raise KeyError("an observer's own fault")


def test_an_observer_is_told_what_becomes_of_jobs_and_cannot_disturb_them() -> None:
    model, gate, diary = served("dense"), Gate(), _Diary()
    options = {"faults": {0: [gate]}, "test_every": 0, "queue": 2, "observer": diary}
    with Service(cores=1, **options) as service:  # type: ignore[arg-type]
        low = service.submit(model.blob, model.inputs[0])
        assert gate.reached.wait(WAIT)
        high = service.submit(model.blob, model.inputs[1], priority=1)
        gone = service.submit(model.blob, model.inputs[2])
        with pytest.raises(QueueFull):
            service.submit(model.blob, model.inputs[3])
        gone.cancel()
        gate.open()
        for future in (low, high):
            future.result(WAIT).release()
    first = [line for line in diary.lines if line != ("submitted", 1)]
    assert first == [
        ("began", 1),
        ("submitted", 2),
        ("submitted", 3),
        ("refused", "queue full"),
        ("cancelled", 3),
        ("preempted", 1),
        ("began", 2),
        ("done", 2),
        ("done", 2),
        ("resumed", 1),
        ("done", 1),
        ("done", 1),
    ]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="edge has 3 cores, got cores=4"):
        Service(cores=4)
    with pytest.raises(ValueError, match="edge has 536870912 bytes"):
        Service(device_bytes=1 << 30)
    with pytest.raises(ValueError, match="on_full"):
        Service(on_full="wait")  # type: ignore[arg-type]
    with Service(device_bytes=4 << 20) as service:
        model = served("dense")
        assert equal(service.run(model.blob, model.inputs[0]), model.outputs[0])
    with Service(device_bytes=128 << 10) as service, pytest.raises(DeviceMemoryFull, match="arena"):
        service.submit(model.blob, model.inputs[0]).result(WAIT)
