"""The engine: order by the timeline, data through memory, host arrays checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npuabi.enums import Direction, DType, Layout, Opcode, Space, Unit
from npuabi.errors import AbiError, ErrorCode
from npuabi.geometry import device_dims
from npuabi.target import load_target
from npufw.boot import boot
from npufw.engine import Engine
from npufw.memory import POISON, Memory
from tests.builders import EDGE, Builder, take
from tests.poison import Poisoner
from tests.unit.npufw.programs import SHAPE, codes, expected, rescaler


def engine(**options: Any) -> Engine:
    return Engine(boot(rescaler(**options).builder.blob(), EDGE))


def test_a_program_of_six_toas_gives_the_right_codes_run_after_run() -> None:
    device = engine()
    for seed in range(3):
        x = codes(seed=seed)
        result = device.run({"x": x})
        assert list(result) == ["y"]
        assert result["y"].dtype == np.int8
        np.testing.assert_array_equal(result["y"], expected(x))


def test_the_same_program_runs_on_every_target() -> None:
    for name in ("edge-quad", "tiny"):
        target = load_target(name)
        device = Engine(boot(rescaler(target=target).builder.blob(), target))
        np.testing.assert_array_equal(device.run({"x": codes()})["y"], expected(codes()))


@pytest.mark.parametrize("skip", ["pack", "save"])
def test_a_missing_wait_shows_as_wrong_data(skip: str) -> None:
    x = codes()
    result = engine(skip=skip).run({"x": x})["y"]
    assert (result != expected(x)).any()
    assert (result == (POISON if skip == "save" else 64)).all()


def test_an_observer_sees_each_start_and_end_in_the_order_of_time() -> None:
    seen: list[tuple[int, str]] = []
    device = engine()
    device.observe = lambda index, phase: seen.append((index, phase))
    device.run({"x": codes()})
    assert sorted(seen) == [(i, p) for i in range(6) for p in ("end", "start")]
    slots = device.image.timeline.slots
    times = [slots[i].start if phase == "start" else slots[i].end for i, phase in seen]
    assert times == sorted(times)
    assert all(seen.index((i, "start")) < seen.index((i, "end")) for i in range(6))


def test_a_pause_comes_after_each_toa_and_another_engine_may_run_in_it() -> None:
    device, other = engine(), engine()
    pauses, inner = [], []

    def pause() -> None:
        pauses.append(device.memory.spaces[Space.ARENA].copy())
        inner.append(other.run({"x": codes(seed=len(pauses))})["y"])

    device.pause = pause
    np.testing.assert_array_equal(device.run({"x": codes()})["y"], expected(codes()))
    assert len(pauses) == 6
    for number, result in enumerate(inner, start=1):
        np.testing.assert_array_equal(result, expected(codes(seed=number)))
    device.observe = lambda index, phase: None
    device.run({"x": codes()})
    assert len(pauses) == 12


def test_a_run_that_a_pause_ends_leaves_an_engine_that_runs_again() -> None:
    device = engine()

    def pause() -> None:
        raise KeyError

    device.pause = pause
    with pytest.raises(KeyError):
        device.run({"x": codes(seed=1)})
    device.pause = None
    np.testing.assert_array_equal(device.run({"x": codes()})["y"], expected(codes()))


def test_engines_run_in_memory_that_is_given_and_fill_arrays_that_are_given() -> None:
    image = boot(rescaler().builder.blob(), EDGE)
    arena, x = image.program.header.arena_bytes, codes()
    pool = np.full(arena + 64, 0x11, np.uint8)
    memory = Memory.create(
        sram_bytes=EDGE.sram_bytes, arena_bytes=0, constants=image.program.constants
    )
    memory.spaces[Space.ARENA] = pool[64:]
    device = Engine(image, memory=memory)
    taken = np.zeros((1, *device.image.outputs[0].tensor.dims), np.int8)
    device.transfer([x.reshape(1, *device.image.inputs[0].tensor.dims)], [taken])
    np.testing.assert_array_equal(taken.reshape(expected(x).shape), expected(x))
    assert (pool[:64] == 0x11).all()
    assert (pool[64:] != 0x11).any()


@pytest.mark.parametrize("fill", [0x00, 0x55, 0x7F, 0x80])
def test_results_do_not_depend_on_bytes_that_nobody_owns(fill: int) -> None:
    device = engine()
    Poisoner(device, fill)
    for seed in range(2):
        x = codes(seed=seed)
        np.testing.assert_array_equal(device.run({"x": x})["y"], expected(x))


def test_poison_shows_a_tensor_that_is_read_after_its_bytes_were_freed() -> None:
    made = rescaler()
    b, t = made.builder, made.tensors
    other = b.tensor(SHAPE, space=Space.ARENA, name="other", layout=Layout.NCHW)
    b.port(Direction.OUTPUT, "other", SHAPE, other)
    # "plain" was read for the last time by the copy; nobody rewrites it.
    b.toa(Opcode.DMA_OUT, input=t["plain"], output=other, waits=[(Unit.VECTOR, 3)])
    device = Engine(boot(b.blob(), EDGE))
    Poisoner(device, 0x11)
    x = codes()
    np.testing.assert_array_equal(device.run({"x": x})["other"], x)
    shorter = engine()
    Poisoner(shorter, 0x11)
    shorter.run({"x": x})
    plain = shorter.image.program.tensors[t["plain"]]
    assert (take(shorter.memory.spaces[Space.SRAM], plain) == 0x11).all()


def test_a_multiple_of_the_batch_is_that_many_runs() -> None:
    x = codes(runs=3)
    np.testing.assert_array_equal(engine().run({"x": x})["y"], expected(x))


def test_strided_and_read_only_arrays_are_copied_not_misread() -> None:
    wide = np.repeat(codes(), 2, axis=3)
    for x in (wide[..., ::2], codes().copy(order="F"), codes()[::-1][::-1]):
        x.flags.writeable = False
        np.testing.assert_array_equal(engine().run({"x": x})["y"], expected(codes()))


REFUSED = [
    ({}, ErrorCode.INPUT_MISSING, "'x' is not given"),
    ({"x": codes(), "z": codes()}, ErrorCode.INPUT_UNKNOWN, "no input is called 'z'"),
    (
        {"x": codes().astype(np.float32)},
        ErrorCode.INPUT_DTYPE,
        "expected 2x5x3x7 int8, 210 bytes, got 2x5x3x7 float32, 840 bytes",
    ),
    ({"x": codes().astype(">i2")}, ErrorCode.INPUT_DTYPE, "int16 big-endian, 420 bytes"),
    ({"x": codes()[:, :4]}, ErrorCode.INPUT_SHAPE, "got 2x4x3x7 int8, 168 bytes"),
    ({"x": codes().ravel()}, ErrorCode.INPUT_SHAPE, "got 210 int8, 210 bytes"),
    ({"x": codes(runs=2)[:3]}, ErrorCode.INPUT_BATCH, "a multiple of 2"),
    ({"x": codes()[:0]}, ErrorCode.INPUT_BATCH, "a multiple of 2"),
]


@pytest.mark.parametrize(("arrays", "code", "text"), REFUSED)
def test_host_arrays_that_do_not_fit_are_refused(
    arrays: dict[str, Any], code: ErrorCode, text: str
) -> None:
    with pytest.raises(AbiError) as caught:
        engine().run(arrays)
    assert caught.value.code is code
    assert text in caught.value.detail


def test_nan_in_a_float_input_is_refused_and_infinity_is_not() -> None:
    b = Builder()
    rows: dict[str, Any] = {"dtype": DType.F32, "layout": Layout.NHWC}
    x = b.tensor((1, 4, 1, 1), space=Space.ARENA, name="x", **rows)
    y = b.tensor((1, 4, 1, 1), space=Space.ARENA, name="y", **rows)
    held = b.tensor((1, 4, 1, 1), **rows)
    b.port(Direction.INPUT, "x", (4,), x)
    b.port(Direction.OUTPUT, "y", (1, 4), y)
    b.toa(Opcode.DMA_IN, input=x, output=held)
    b.toa(Opcode.DMA_OUT, input=held, output=y, waits=[(Unit.DMA_IN, 1)])
    device = Engine(boot(b.blob(), EDGE))
    good = np.array([1.5, math.inf, -math.inf, 0], np.float32)
    np.testing.assert_array_equal(device.run({"x": good})["y"], good[None])
    with pytest.raises(AbiError, match=r"'x' is NaN at index \[1\]"):
        device.run({"x": np.array([1.5, math.nan, 0, 0], np.float32)})


def test_shapes_of_rank_zero_to_three_reach_the_device_as_documented() -> None:

    assert device_dims(()) == (1, 1, 1, 1)
    assert device_dims((7,)) == (1, 7, 1, 1)
    assert device_dims((2, 7)) == (2, 7, 1, 1)
    assert device_dims((2, 7, 5)) == (2, 7, 1, 5)
    assert device_dims(SHAPE) == SHAPE
