"""Host buffers, device memory and models: who holds what, what is evicted, what leaks are told."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from npuabi.errors import AbiError
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npurt import (
    DeviceMemoryFull,
    HostTensor,
    JobFuture,
    LifecycleError,
    Service,
    UnreleasedOutputs,
)
from npurt.buffers import ALIGNMENT, BufferPool
from npurt.device import DeviceMemory
from npurt.lifecycle import State
from tests.served import Gate, equal, served

WAIT = 60
UNIT = 64 << 10


def test_blocks_are_aligned_reused_and_never_lent_while_somebody_holds_an_array() -> None:
    pool = BufferPool()
    block = pool.lend(100)
    array = block.array((5, 5), np.float32)
    assert array.ctypes.data % ALIGNMENT == 0
    assert (block.size, pool.lent_bytes) == (UNIT, UNIT)
    row = array[2][1:]
    del array
    pool.take_back([block])
    assert pool.lent_bytes == 0
    assert pool.retired_bytes == UNIT
    other = pool.lend(100)
    assert other is not block
    other.array((5, 5), np.float32)[:] = 7
    assert not (row == 7).all()
    pool.take_back([other])
    assert pool.lend(UNIT) is other
    assert [pool.lend(size).size for size in (UNIT + 1, 5 * UNIT)] == [2 * UNIT, 8 * UNIT]


def test_outputs_are_gone_after_their_release_and_arrays_kept_from_them_stay_whole() -> None:
    model = served("conv")
    with Service() as service:
        with service.submit(model.blob, model.inputs[0]).result(WAIT) as outputs:
            kept, own = outputs["y"], outputs.copy()
        assert outputs.state is State.RELEASED
        with pytest.raises(LifecycleError, match="outputs of job 1 is released and belongs to"):
            outputs["y"]
        with pytest.raises(LifecycleError, match="the application may not release it"):
            outputs.release()
        for x in model.inputs:
            service.run(model.blob, x)
        assert kept.tobytes() == model.outputs[0]["y"].tobytes()
        assert equal(own, model.outputs[0])
        assert service.memory().host_lent == 0


def test_a_leak_is_reported_with_the_line_that_made_it() -> None:
    model = served("dense")
    service = Service()
    line = _line() + 1
    future = service.submit(model.blob, model.inputs[0])
    future.result(WAIT)
    with pytest.warns(UnreleasedOutputs, match="dropped unreleased") as told:
        del future
    assert (told[0].filename, told[0].lineno) == (__file__, line)
    assert service.memory().host_lent == 0
    second = _line() + 1
    held = service.submit(model.blob, model.inputs[1])
    with pytest.warns(UnreleasedOutputs, match="still held when the service closed"):
        service.close()
    places = [leak.place for leak in service.leaks]
    assert places == [f"{__file__}:{line}", f"{__file__}:{second}"]
    # What was held stays readable.
    assert equal(held.result(), model.outputs[1])


def _state(tensor: HostTensor) -> State:
    return tensor.state


def _line() -> int:
    return sys._getframe(1).f_lineno


def test_tensors_of_the_device_are_not_copied_and_each_belongs_to_one_job() -> None:
    model, gate = served("conv"), Gate()
    with Service(cores=1, faults={0: [gate]}, test_every=0) as service:
        tensor = service.tensor(model.blob, "x")
        with tensor.map() as array:
            array[:] = model.inputs[0]["x"]
        assert array.strides[-2] == 32, "rows of 6 float32 have the pitch of 16 bytes"
        future = service.submit(model.blob, {"x": tensor})
        assert gate.reached.wait(WAIT)
        assert future.copied == {}
        assert _state(tensor) is State.IN_USE
        for step in (lambda: service.submit(model.blob, {"x": tensor}), tensor.release):
            with pytest.raises(LifecycleError, match="in use and belongs to the firmware"):
                step()
        with pytest.raises(LifecycleError, match="may not map it"), tensor.map():
            pass
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
        with pytest.raises(TimeoutError):
            tensor.wait(0.01)
        gate.open()
        tensor.wait(WAIT)
        with future.result() as outputs:
            assert equal(outputs, model.outputs[0])
        with tensor.map() as again:
            again[:] = model.inputs[1]["x"]
        with service.submit(model.blob, {"x": tensor}).result(WAIT) as outputs:
            assert equal(outputs, model.outputs[1])
        del array, again
        tensor.release()
        assert _state(tensor) is State.RELEASED
        with pytest.raises(FirmwareError, match="no input is called 'z'"):
            service.tensor(model.blob, "z")
        assert service.memory().host_lent == 0


def test_wrapped_memory_is_read_where_it_lies_if_it_can_be_and_says_why_not() -> None:
    model = served("dense")
    raw = np.empty(2 * ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    whole = np.ndarray((1, 4), np.float32, raw, first)
    odd = np.ndarray((1, 4), np.float32, raw, first + 16)
    wide = np.ndarray((1, 4), np.float32, raw, first, (32, 8))
    with Service() as service:
        for array, reason in ((whole, ""), (odd, "is no multiple of 65536"), (wide, "its strides")):
            array[:] = model.inputs[0]["x"]
            tensor = service.wrap(model.blob, "x", array)
            assert reason in tensor.copied
            assert bool(tensor.copied) == bool(reason)
            future = service.submit(model.blob, {"x": tensor})
            with future.result(WAIT) as outputs:
                assert equal(outputs, model.outputs[0])
            assert future.copied == ({"x": tensor.copied} if reason else {})
            tensor.wait()
            array[:] = 0
            tensor.release()
        plain = service.submit(model.blob, model.inputs[0])
        assert "stays the application's" in plain.copied["x"]
        plain.result(WAIT).release()
        assert service.memory().host_lent == 0


def test_a_tensor_shows_nothing_of_who_had_its_memory_before() -> None:
    model = served("dense")
    with Service(cores=1, test_every=0) as service:
        for _ in range(2):
            tensor = service.tensor(model.blob, "x")
            with tensor.map() as array:
                assert not array.any()
                array[...] = np.nan
            tensor.release()


def test_a_cancelled_job_gives_its_tensors_back() -> None:
    model, gate = served("dense"), Gate()
    with Service(cores=1, faults={0: [gate]}, test_every=0) as service:
        running = service.submit(model.blob, model.inputs[0])
        assert gate.reached.wait(WAIT)
        tensor = service.tensor(model.blob, "x")
        waiting = service.submit(model.blob, {"x": tensor})
        assert _state(tensor) is State.QUEUED
        assert waiting.cancel()
        assert _state(tensor) is State.HOST_OWNED
        tensor.release()
        gate.open()
        running.result(WAIT).release()
    assert service.memory().host_lent == 0


def test_device_memory_says_who_holds_what() -> None:
    device = DeviceMemory(1 << 20)
    regions = [device.allocate(100_000, name) for name in ("one", "two", "three")]
    with pytest.raises(DeviceMemoryFull, match=r"four: .*300000 bytes.*one"):
        device.allocate(300_000, "four")
    text = "\n".join(device.occupancy())
    assert all(name in text for name in ("one", "two", "three"))
    for region in regions:
        device.free(region)
    assert (device.free_bytes, device.largest_free) == (1 << 20, 1 << 20)


def test_a_write_beyond_an_arena_is_noticed_when_it_is_freed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = DeviceMemory(1 << 20)
    region = device.allocate(100, "arena")
    device._bytes[region.address + 100] ^= 1
    device.free(region)
    assert "canary" in caplog.text
    assert device.free_bytes == 1 << 20


def test_a_model_is_loaded_once_however_many_threads_ask() -> None:
    model, start = served("dense"), threading.Barrier(16)

    def ask(index: int) -> bool:
        start.wait(WAIT)
        with service.submit(model.blob, model.inputs[index]).result(WAIT) as outputs:
            return equal(outputs, model.outputs[index])

    with Service() as service, ThreadPoolExecutor(16) as threads:
        assert all(threads.map(ask, range(16)))
        memory = service.memory()
        assert (memory.boots, memory.loads) == (1, 1)
        assert len([line for line in service.occupancy() if "constants" in line]) == 1


def test_models_beyond_the_budget_are_evicted_the_least_recently_used_first() -> None:
    models = [served("dense", seed=seed) for seed in range(1, 5)]
    size = len(models[0].image.program.constants)
    with Service(cores=1, model_bytes=3 * size) as service:
        for index in (0, 1, 2, 0, 3, 0, 1):
            model = models[index]
            assert equal(service.run(model.blob, model.inputs[0]), model.outputs[0])
        memory = service.memory()
        # 3 displaces 1, which then displaces 2; images go when another model is read.
        assert (memory.loads, memory.evictions, memory.boots) == (5, 2, 4)
        service.run(served("conv").blob, served("conv").inputs[0])
        service.run(models[2].blob, models[2].inputs[0])
        assert service.memory().boots == 6
    with (
        Service(model_bytes=size - 1) as service,
        pytest.raises(DeviceMemoryFull, match="model_bytes"),
    ):
        service.run(models[0].blob, models[0].inputs[0])


@pytest.mark.parametrize("on_full", ["queue", "refuse"])
def test_a_job_without_room_waits_or_is_refused_and_nothing_breaks(on_full: str) -> None:
    """Room for one arena and two models: two cores want to run at once."""
    models, gate = [served("dense", seed=seed) for seed in (1, 2)], Gate()
    with Service(
        cores=2,
        device_bytes=6 * UNIT,
        on_full=on_full,  # type: ignore[arg-type]
        faults={0: [gate]},
        test_every=0,
    ) as service:
        holding = service.submit(models[0].blob, models[0].inputs[0], cores={0})
        assert gate.reached.wait(WAIT)
        other = service.submit(models[1].blob, models[1].inputs[0], cores={1})
        if on_full == "refuse":
            with pytest.raises(DeviceMemoryFull, match="on_full is 'refuse'"):
                other.result(WAIT)
        gate.open()
        holding.result(WAIT).release()
        if on_full == "queue":
            with other.result(WAIT) as outputs:
                assert equal(outputs, models[1].outputs[0])
        assert equal(service.run(models[1].blob, models[1].inputs[1]), models[1].outputs[1])
    memory = service.memory()
    assert (memory.device_free, memory.host_lent) == (6 * UNIT, 0)


def test_a_swap_loses_no_job_and_keeps_each_to_the_blob_it_was_submitted_to() -> None:
    old, new, gate = served("dense", seed=1), served("dense", seed=2), Gate()
    with Service(cores=1, faults={0: [gate]}, test_every=0) as service:
        model = service.load(old.blob, "net")
        before = [service.submit("net", x) for x in old.inputs]
        assert gate.reached.wait(WAIT)
        service.swap(model, new.blob)
        after = [service.submit(model, x) for x in old.inputs]
        with pytest.raises(FirmwareError, match="swap of net: the inputs are x 1x4 f32"):
            service.swap(model, served("conv").blob)
        with pytest.raises(AbiError):
            service.swap(model, b"no blob")
        gate.open()
        for future, expected in zip(before, old.outputs, strict=True):
            with future.result(WAIT) as outputs:
                assert equal(outputs, expected)
            reference = Engine(new.image)
        for future, x in zip(after, old.inputs, strict=True):
            with future.result(WAIT) as outputs:
                assert equal(outputs, reference.run(x))
        held = [line for line in service.occupancy() if "constants" in line]
        assert len(held) == 1, "the old blob's constants are gone"


def test_names_and_paths_lead_to_models(tmp_path: Path) -> None:
    model, path = served("dense"), tmp_path / "net.bin"
    path.write_bytes(model.blob)
    with Service() as service:
        named = service.load(path, "net")
        assert service.load(path, "net") is named
        with pytest.raises(ValueError, match="model 'net' is there with another blob: use swap"):
            service.load(model.blob, "net")
        for form in (named, "net", path, str(path)):
            assert equal(service.run(form, model.inputs[0]), model.outputs[0])
        service.unload("net")
        with pytest.raises(FileNotFoundError):
            service.run("net", model.inputs[0])


def test_the_nth_allocation_that_fails_is_a_defined_error_and_leaves_nothing() -> None:
    """X1: once, and from then on; the next job is right."""
    model = served("dense")
    for forever in (False, True):
        for number in range(1, 5):
            with Service(cores=1, test_every=0) as service:
                whole = service.memory().device_free
                service._device.allocator.fail_at(number, forever=forever)
                failures = []
                for x in model.inputs[:3]:
                    future = service.submit(model.blob, x)
                    failure = future.exception(WAIT)
                    failures.append(failure)
                    if failure is None:
                        future.result().release()
                    else:
                        assert isinstance(failure, DeviceMemoryFull)
                assert (failures[0] is not None) == (number <= 2)
                service._device.allocator.fail_at(0)
                assert equal(service.run(model.blob, model.inputs[3]), model.outputs[3])
            assert (service.memory().device_free, service.memory().host_lent) == (whole, 0)


def test_the_nth_host_buffer_that_fails_is_a_defined_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X1, for the buffers of inputs and outputs."""
    model, lend, calls = served("conv"), BufferPool.lend, 0
    with Service(cores=1, test_every=0) as service:
        for number in range(1, 5):
            calls = 0

            def failing(pool: BufferPool, size: int, number: int = number) -> object:
                nonlocal calls
                calls += 1
                if calls == number:
                    raise MemoryError("made to fail")
                return lend(pool, size)

            monkeypatch.setattr(BufferPool, "lend", failing)
            if number == 1:
                with pytest.raises(MemoryError):
                    service.submit(model.blob, model.inputs[0])
            else:
                future = service.submit(model.blob, model.inputs[0])
                assert isinstance(future.exception(WAIT), MemoryError) == (number < 4)
                _release(future)
            monkeypatch.setattr(BufferPool, "lend", lend)
            assert service.memory().host_lent == 0
            assert equal(service.run(model.blob, model.inputs[1]), model.outputs[1])


def _release(future: JobFuture) -> None:
    if future.exception() is None:
        future.result().release()
