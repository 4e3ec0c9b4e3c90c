"""Heat: its physics, the choice of timing sets, sensors that fail, sets that are lost (G1.*)."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.bands import BANDS, BASE_BAND, band_of, limits
from npuabi.errors import AbiError, ErrorCode
from npuc.driver import Options, compile_graph
from npuc.frontend.text import parse_text
from npufw.boot import Image, boot
from npufw.defences.reloader import HYSTERESIS_C, BandPicker, Reloader, SetMemory
from npufw.engine import Engine
from npufw.fault_models.heat import Constant, Heat, SelfHeating, Steps, read_trace
from npufw.fault_models.sensor import Sensor
from npufw.fault_plan import plan_of
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.perf import profile, profile_at
from npufw.selftest import generated_inputs
from npufw.thermal import (
    EXTREMES_C,
    Activity,
    Junction,
    Regulator,
    late_bits,
    late_chances,
    timeline_with,
)
from tests.builders import EDGE

SEED = 20_261_201
OPS = {
    "conv": ("conv2d(%x, %w) {pads = [1, 1, 1, 1]}", "int8"),
    "depthwise": ("conv2d(%x, %d) {pads = [1, 1, 1, 1], group = 16}", "int8"),
    "matmul": ("matmul(%x, %x)", "int8"),
    "wide": ("conv2d(%x, %w) {pads = [1, 1, 1, 1]}", "int16"),
    "floats": ("conv2d(%x, %w) {pads = [1, 1, 1, 1]}", "fp32"),
}


@cache
def image_of(name: str) -> Image:
    op, precision = OPS[name]
    text = f"""graph @g(%x: tensor<1x16x8x8xf32>) {{
  %w = const random(seed = 1, mean = 0.0, std = 0.2) : tensor<24x16x3x3xf32>
  %d = const random(seed = 2, mean = 0.0, std = 0.4) : tensor<16x1x3x3xf32>
  %y = {op}
  return %y
}}"""
    options = Options(precision=precision, calibrate="random")
    return boot(compile_graph(parse_text(text), options).blob, EDGE)


def output(image: Image, *hooks: Hook, runs: int = 1) -> list[NDArray[Any]]:
    engine = Engine(image, hooks=hooks)
    inputs = generated_inputs(image)
    return [next(iter(engine.run(inputs).values())) for _ in range(runs)]


def reloader(heat: Heat, image: Image, fault: str = "none", start: float = 0.0) -> Reloader:
    return Reloader(heat, Sensor(fault, start=start, seed=SEED), image.program.bands)


# --- physics ------------------------------------------------------------------------------------


def test_a_junction_follows_the_rc_law() -> None:
    chip = Junction(ambient_c=20, celsius=20)
    chip.pass_time(1, 0)
    power = Junction(ambient_c=20, celsius=20).watts(2.0)
    warm = Junction(ambient_c=20, celsius=20)
    warm.pass_time(60, 2.0)
    expected = 20 + 12 * power * (1 - math.exp(-60 / 1200))
    assert warm.celsius == pytest.approx(expected, rel=0.01)
    warm.pass_time(20_000, 2.0)
    assert warm.celsius == pytest.approx(20 + 12 * warm.watts(2.0), abs=0.01)


def test_more_work_is_more_power_and_a_slower_clock_is_less() -> None:
    idle, busy = (Activity(macs=m, ddr_bytes=1000, cycles=1000) for m in (0, 256_000))
    assert busy.watts(1e9, 3) > idle.watts(1e9, 3)
    assert busy.watts(0.5e9, 3) == pytest.approx(busy.watts(1e9, 3) / 2)


def test_the_clock_steps_down_at_once_and_up_two_kelvin_below() -> None:
    regulator = Regulator()
    parts = [regulator.settle(t) for t in (84.9, 85.0, 84.0, 83.1, 82.9, 120.0, 112.5, 20.0)]
    assert parts == [1.0, 0.9, 0.9, 0.9, 1.0, 0.5, 0.65, 1.0]


def test_lateness_grows_with_heat_and_shrinks_with_a_later_window() -> None:
    table = np.array([late_chances(668.0, t) for t in range(25, 125, 5)])
    assert (np.diff(table, axis=0) >= 0).all()
    assert (np.diff(table[:, :32], axis=1) <= 0).all()
    assert (late_chances(668.0, 90) >= late_chances(672.0, 90)).all()
    draws = np.linspace(0, 0.999, 1000)
    late = late_bits(late_chances(668.0, 120), draws)
    assert late.max() > 1
    assert (late > 0).mean() == pytest.approx(late_chances(668.0, 120)[0], abs=2e-3)


def test_a_trace_is_read_from_csv_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("# seconds,celsius\n0,25\n10,45\n", encoding="utf-8")
    trace = read_trace(path)
    trace.pass_time(5, Activity(macs=0, ddr_bytes=0, cycles=1), 1e9)
    assert trace.celsius == 35
    for bad in ("", "1,2,3\n", "a,b\n", "5,1\n4,1\n", "0,nan\n", "0,151\n", "0,-1e308\n",
                "\0\n", "0," + "2" * 200_000):  # fmt: skip
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(ValueError, match=r"seconds,celsius|numbers|-55 to 150"):
            read_trace(path)
    path.write_bytes(b"\xff\xfe0,25\n")
    with pytest.raises(ValueError, match="seconds,celsius"):
        read_trace(path)


def test_leakage_that_feeds_on_its_own_heat_ends_at_the_hottest_and_is_refused() -> None:
    """Nothing overflows, and the reloader believes what a live chip can be."""
    junction = Junction(ambient_c=150, celsius=25)
    assert junction.pass_time(86_400, 10.0) == EXTREMES_C[1]
    image = image_of("conv")
    for celsius in (125.2, EXTREMES_C[1]):
        heat = Heat(image, Constant(celsius))
        engine = Engine(image, hooks=(heat, reloader(heat, image)))
        with pytest.raises(AbiError) as refused:
            engine.run(generated_inputs(image))
        assert refused.value.code is ErrorCode.TOO_HOT


# --- runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_sets_change_no_number_at_their_own_temperature(name: str) -> None:
    """G1.6: 33 sets, int8, int16 and floats."""
    image = image_of(name)
    (plain,) = output(image)
    for band in range(BANDS):
        heat = Heat(image, Constant(sum(limits(band)) / 2), seed=band)
        (found,) = output(image, heat, reloader(heat, image))
        np.testing.assert_array_equal(found, plain)
        assert heat.runs[0].band == band
        assert heat.runs[0].replays == 0


@pytest.mark.parametrize("name", OPS)
def test_the_boot_set_goes_wrong_in_heat_and_the_same_way_each_time(name: str) -> None:
    image = image_of(name)
    (plain,) = output(image)
    with np.errstate(all="ignore"):
        heats = [Heat(image, Constant(110.0), seed=3) for _ in range(2)]
        (one,), (two,) = (output(image, heat) for heat in heats)
    assert (one != plain).any()
    np.testing.assert_array_equal(one, two)
    assert heats[0].runs == heats[1].runs
    assert heats[0].runs[0].replays == 2
    base = image.timeline.cycles
    assert heats[0].runs[0].cycles == timeline_with(image, heats[0].timing, _all(image)).cycles
    assert heats[0].runs[0].cycles > base


def _all(image: Image) -> dict[int, int]:
    return {i: 2 for i, work in enumerate(image.works) if work.macs}


class _MovesAt(Hook):
    """The chip gets another temperature when TOA *position* reads."""

    def __init__(self, source: Constant, position: int, celsius: float) -> None:
        self._source, self._position, self._celsius = source, position, celsius

    def at(self, machine: Machine, moment: Moment) -> None:
        if moment.phase is not Phase.TOA_READS or moment.step is None:
            return
        if moment.step.index == self._position:
            self._source.celsius = self._celsius


@pytest.mark.parametrize(("before", "after"), [(70.0, 88.0), (88.0, 70.0)])
def test_a_swap_that_is_due_inside_a_job_waits_for_its_end(before: float, after: float) -> None:
    """G1.3: at every descriptor; the job is that of the old set, the next that of the new one."""
    image = image_of("conv")
    (plain,) = output(image)
    for position in range(len(image.steps)):
        source = Constant(before)
        heat = Heat(image, source, seconds=1.0)
        guard = reloader(heat, image)
        found = output(image, _MovesAt(source, position, after), heat, guard, runs=2)
        assert all((one == plain).all() for one in found), position
        assert [run.band for run in heat.runs] == [band_of(before), band_of(after)]


def test_two_hours_of_running_warm_the_chip_and_the_reloader_follows() -> None:
    image = image_of("conv")
    junction = Junction(ambient_c=45, celsius=25)
    heat = Heat(image, SelfHeating(junction, 3), seconds=120)
    guard = reloader(heat, image)
    output(image, heat, guard, runs=60)
    bands = [run.band for run in heat.runs]
    assert bands == sorted(bands)
    assert guard.swaps == len(set(bands)) - (bands[0] == BASE_BAND)
    assert all(limits(run.band)[1] > run.celsius for run in heat.runs)


# --- the reloader's choice ----------------------------------------------------------------------


@pytest.mark.parametrize("band", range(1, BANDS))
def test_one_swap_at_each_boundary_up_at_once_and_down_with_hysteresis(band: int) -> None:
    """G1.1."""
    low = limits(band)[0]
    up = BandPicker(band - 1)
    step = 1 / 16  # of the sensor
    rising = (low - step, low, low + step, low + 1)
    assert [up.pick(t) for t in rising] == [band - 1, band, band, band]
    edge = low - HYSTERESIS_C
    falling = (low - step, edge, edge - step, edge - 0.5)
    assert [up.pick(t) for t in falling] == [band, band, band - 1, band - 1]


def test_chatter_around_a_boundary_swaps_no_more_than_it_crosses_the_hysteresis() -> None:
    """G1.2: a square wave of half a degree, and a random walk of 10^5 steps."""
    picker = BandPicker(band_of(39.5))
    found = [picker.pick(t) for t in (39.5, 40.5) * 5000]
    assert _swaps(found) == 1
    words = np.asarray(np.random.PCG64(SEED).random_raw(100_000), np.uint64)
    walk = 60.0 + np.cumsum((words % np.uint64(3)).astype(float) - 1) * 0.05
    picker = BandPicker(band_of(walk[0]))
    found = [picker.pick(t) for t in walk]
    assert all(limits(band)[1] > t for band, t in zip(found, walk, strict=True))
    assert _swaps(found) <= _crossings(walk)


def _swaps(bands: list[int]) -> int:
    return sum(a != b for a, b in pairwise(bands))


def _crossings(walk: NDArray[np.float64]) -> int:
    """Count how often the walk reaches a boundary from below it and 1 degC below it from above."""
    total = 0
    for boundary in range(-40, 125, 5):
        above = walk[0] >= boundary
        for value in walk:
            if (not above and value >= boundary) or (above and value < boundary - HYSTERESIS_C):
                above, total = not above, total + 1
    return total


@pytest.mark.parametrize(
    ("fault", "celsius"),
    [
        ("nan", 50.0),
        ("high", 50.0),
        ("low", 50.0),
        ("jump", 80.0),
        ("stale", 50.0),
        ("stuck", 50.0),
    ],
)
def test_a_bad_sensor_gives_the_safe_set_and_one_event(fault: str, celsius: float) -> None:
    """G1.4: the safe set stays until the next boot."""
    image = image_of("conv")
    (plain,) = output(image)
    heat = Heat(image, Constant(celsius), seconds=1.0)
    engine = Engine(image, hooks=(heat, reloader(heat, image, fault, start=3.0)))
    for _ in range(50):
        (found,) = engine.run(generated_inputs(image)).values()
        np.testing.assert_array_equal(found, plain)
    assert [run.band for run in heat.runs[:3]] == [band_of(celsius)] * 3
    assert heat.runs[-1].band == BANDS - 1
    (event,) = engine.log
    assert (event.kind, event.outcome) == ("sensor", Outcome.DETECTED)


def test_a_sensor_that_works_is_trusted_for_a_day() -> None:
    sensor, image = Sensor(seed=SEED), image_of("conv")
    heat = Heat(image, Steps([0.0], [61.0]))
    guard = Reloader(heat, sensor, image.program.bands)
    faults = [guard._monitor.fault(sensor.read(s, 61.0), s) for s in range(86_400)]
    assert not any(faults)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_set_that_does_not_hold_is_passed_over_for_the_nearest_hotter_one(how: str) -> None:
    """G1.5: never a cooler one; without a safe one the job is refused."""
    image = image_of("conv")
    wanted = band_of(62.0)
    for lost in (1, 2, BANDS - 1 - wanted, BANDS - wanted):
        heat = Heat(image, Constant(62.0))
        guard = reloader(heat, image)
        for band in range(wanted, wanted + lost):
            if how == "missing":
                del guard.memory.records[band]
            else:
                raw = bytearray(guard.memory.records[band])
                raw[band % 32] ^= 1 << band % 8
                guard.memory.records[band] = bytes(raw)
        engine = Engine(image, hooks=(heat, guard))
        if wanted + lost < BANDS:
            engine.run(generated_inputs(image))
            engine.run(generated_inputs(image))
            assert [run.band for run in heat.runs] == [wanted + lost] * 2
            assert len(engine.log) == lost
        else:
            with pytest.raises(AbiError) as refused:
                engine.run(generated_inputs(image))
            assert refused.value.code is ErrorCode.NO_TIMING_SET


def test_every_flipped_bit_of_a_set_is_seen() -> None:
    entry = image_of("conv").program.bands[20]
    raw = entry.encode()
    for bit in range(8 * len(raw)):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        assert SetMemory({20: bytes(bad)}).nearest(20)[0] is None


def test_a_chip_beyond_all_bands_is_refused_and_goes_on_when_it_has_cooled() -> None:
    image = image_of("conv")
    (plain,) = output(image)
    source = Constant(124.0)
    heat = Heat(image, source)
    engine = Engine(image, hooks=(heat, reloader(heat, image)))
    engine.run(generated_inputs(image))
    source.celsius = 130.0
    heat.second += 1
    with pytest.raises(AbiError) as refused:
        engine.run(generated_inputs(image))
    assert refused.value.code is ErrorCode.TOO_HOT
    source.celsius = 118.0
    heat.second += 1
    (found,) = engine.run(generated_inputs(image)).values()
    np.testing.assert_array_equal(found, plain)


def test_the_profile_s_thermal_stall_is_replays_and_derated_cycles() -> None:
    image = image_of("conv")
    cool, hot, stale = (
        profile_at(image, celsius, reload=reload)
        for celsius, reload in ((27.0, True), (90.0, True), (90.0, False))
    )
    assert cool.stalls == profile(image).stalls
    assert cool.cycles == image.timeline.cycles
    # The clock runs at 90 % from 85 degC on.
    base = image.timeline.cycles
    assert hot.stalls["thermal"] == round(hot.cycles / 0.9) - base
    assert stale.cycles > 1.3 * hot.cycles
    assert stale.stalls["thermal"] == round(stale.cycles / 0.9) - base
    assert stale.time_ms == pytest.approx(stale.cycles / 0.9e6)
    assert sum(layer.cycles for layer in stale.layers) == stale.cycles


@pytest.mark.parametrize("name", ["heat", "sensor", "die:seed=1"])
def test_a_chip_has_one_temperature_one_sensor_one_silicon(name: str) -> None:
    with pytest.raises(AbiError, match="2 times") as refused:
        plan_of([name, name], [])
    assert refused.value.code is ErrorCode.FAULT_SPEC


def test_heat_and_flips_in_one_run_are_survived_together() -> None:
    """G1.7: at every temperature the flips are repaired, and the set is the band's."""
    image = image_of("conv")
    (plain,) = output(image)
    for celsius in (27.0, 60.0, 92.0, 110.0):
        specs = [f"heat:celsius={celsius},seconds=1", "flips:space=sram,rate=1e-6,seed=5"]
        engine = plan_of(specs, []).engine(image)
        for _ in range(4):
            (found,) = engine.run(generated_inputs(image)).values()
            np.testing.assert_array_equal(found, plain)
    bare = plan_of([f"heat:celsius={110.0}"], ["heat"]).engine(image)
    (wrong,) = bare.run(generated_inputs(image)).values()
    assert (wrong != plain).any()
