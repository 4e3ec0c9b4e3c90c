"""eFuse arrays and the dies that they calibrate (G7.*)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from npuabi.bands import BANDS, limits
from npuabi.errors import AbiError, ErrorCode
from npuabi.target import load_target, target_names
from npuabi.wire import seal
from npufw.cli import main
from npufw.defences.calibration import Trim, calibrate, measured
from npufw.defences.reloader import Reloader
from npufw.efuse import (
    GAIN_STEP,
    ROW_BYTES,
    Efuse,
    FuseState,
    Table,
    blown,
    key_hash,
    read_efuse,
    rows_of,
    size_for,
    with_key,
    with_table,
)
from npufw.engine import Engine
from npufw.fault_models.die import Die, DieHook, Spread
from npufw.fault_models.fuses import FailingFuseRead, reader
from npufw.fault_models.heat import Constant, Heat
from npufw.fault_models.sensor import Sensor
from npufw.faults import Hook
from npufw.gates.subject import load_subject
from npufw.nth import Nth
from npufw.pattern import COLUMNS, pattern_codes, pattern_image
from npufw.selftest import generated_inputs
from tests.builders import EDGE
from tests.unit.npufw.test_heat import image_of

CORES = 3
SIZE = size_for(CORES)
Array = NDArray[Any]


@cache
def die(seed: int = 7, spread: Spread = Spread.UNIFORM) -> Die:
    return Die(seed=seed, spread=spread, cores=CORES)


@cache
def fuses(seed: int = 7) -> bytes:
    return with_key(calibrate(die(seed), EDGE), bytes(range(1, 33)))


def read(raw: bytes, cores: int = CORES) -> Efuse:
    return read_efuse(rows_of(raw), len(raw), cores)


def code_of(raw: bytes, cores: int = CORES) -> ErrorCode | FuseState:
    try:
        return read(raw, cores).state
    except AbiError as error:
        return error.code


def table_of(efuse: Efuse) -> Table:
    assert efuse.table is not None
    return efuse.table


# --- the array ----------------------------------------------------------------------------------


def test_codes_of_every_size_come_back() -> None:
    codes = np.arange(-2048, 2048).reshape(-1, COLUMNS)
    for start in range(0, len(codes) - CORES, CORES):
        gains = codes[start : start + CORES]
        table = Table(die=1 << 63, gains=gains, offsets=gains[::-1])
        found = table_of(read(with_table(bytes(SIZE), table)))
        assert found.die == 1 << 63
        np.testing.assert_array_equal(found.gains, gains)
        np.testing.assert_array_equal(found.offsets, gains[::-1])


def test_every_single_fuse_that_reads_wrong_is_seen() -> None:
    """G7.3: blown late or unread, in records and in what must stay blank."""
    for raw in (fuses(), calibrate(die(), EDGE)):
        assert code_of(raw) is FuseState.SOUND
        for bit in range(8 * len(raw)):
            bad = bytearray(raw)
            bad[bit // 8] ^= 1 << bit % 8
            assert code_of(bytes(bad)) is ErrorCode.FUSE_CRC, f"bit {bit}"


def test_every_single_fuse_of_a_blank_array_that_is_blown_is_seen() -> None:
    for bit in range(8 * SIZE):
        bad = bytearray(SIZE)
        bad[bit // 8] ^= 1 << bit % 8
        assert code_of(bytes(bad)) is ErrorCode.FUSE_CRC, f"bit {bit}"


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (bytes(SIZE), FuseState.BLANK),
        (with_key(bytes(SIZE), bytes([7] * 32)), FuseState.BLANK),
        (bytes([255] * SIZE), ErrorCode.FUSE_CRC),
        (b"", ErrorCode.FUSE_CRC),
        (bytes(64), ErrorCode.FUSE_CRC),
        (bytes(SIZE + ROW_BYTES), ErrorCode.FUSE_COLUMNS),
        (with_key(bytes(SIZE - ROW_BYTES), bytes([7] * 32)), ErrorCode.FUSE_COLUMNS),
        (bytes(SIZE - 1), ErrorCode.FUSE_CRC),
        (b"\x00" * 64 + b"\x01" * 64 + bytes(192), ErrorCode.FUSE_CRC),
    ],
)
def test_what_is_blank_blown_or_cut_off_is_no_table(raw: bytes, found: object) -> None:
    assert code_of(raw) is found


def test_another_number_of_cores_and_another_order_of_them_are_refused() -> None:
    raw = fuses()
    assert code_of(raw, 1) is ErrorCode.FUSE_COLUMNS
    assert code_of(raw + bytes(64)) is ErrorCode.FUSE_COLUMNS
    rows = [raw[i : i + ROW_BYTES] for i in range(0, SIZE, ROW_BYTES)]
    rows[2], rows[3] = rows[3], rows[2]
    assert code_of(b"".join(rows)) is ErrorCode.FUSE_CRC


def test_a_newer_layout_is_refused_with_its_number() -> None:
    header = bytearray(fuses()[:ROW_BYTES])
    header[8] = 2
    with pytest.raises(AbiError, match="layout 2, this firmware knows 1") as refused:
        read(seal(bytes(header)) + fuses()[ROW_BYTES:])
    assert refused.value.code is ErrorCode.FUSE_VERSION


def test_bits_are_blown_once_and_never_back() -> None:
    raw = blown(bytes(64), 0, b"\x0f")
    assert blown(raw, 0, b"\xff")[0] == 255
    with pytest.raises(AbiError) as refused:
        blown(raw, 0, b"\x0e")
    assert refused.value.code is ErrorCode.FUSE_BLOWN
    with pytest.raises(AbiError, match="fuse_blown"):
        calibrate(die(8), EDGE, fuses())
    with pytest.raises(AbiError, match="fuse_blown"):
        with_key(fuses(), bytes(32))


def test_the_key_stands_by_itself() -> None:
    assert key_hash(fuses()) == bytes(range(1, 33))
    assert key_hash(bytes(SIZE)) is None
    for cut in (0, ROW_BYTES, 2 * ROW_BYTES, SIZE - 1):  # a file that was cut opens no door
        with pytest.raises(AbiError, match="no rows"):
            key_hash(bytes(cut))
    bad = bytearray(fuses())
    bad[0] ^= 1
    assert key_hash(bytes(bad)) == bytes(range(1, 33))
    bad[ROW_BYTES + 9] ^= 1
    with pytest.raises(AbiError):
        key_hash(bytes(bad))


@pytest.mark.parametrize("forever", [False, True])
def test_a_read_that_does_not_settle_is_tried_again_or_refused(*, forever: bool) -> None:
    """X1: the n-th read fails, once and from then on, until a run has no failure."""
    n = 1
    while True:
        failing = Nth(n, forever)
        rows = reader(fuses(), [FailingFuseRead(failing)])
        if forever and n <= SIZE // ROW_BYTES:
            with pytest.raises(AbiError) as refused:
                read_efuse(rows, SIZE, CORES)
            assert refused.value.code is ErrorCode.FUSE_CRC
        else:
            found = read_efuse(rows, SIZE, CORES)
            np.testing.assert_array_equal(table_of(found).gains, table_of(read(fuses())).gains)
            assert len(found.again) == failing.reached
        if not failing.reached:
            break
        n += 1
    assert n == SIZE // ROW_BYTES + 1


# --- dies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", target_names())
def test_the_pattern_gives_its_codes_back_on_every_target(name: str) -> None:
    image = pattern_image(load_target(name))
    (found,) = Engine(image).run({"pattern": pattern_codes()}).values()
    np.testing.assert_array_equal(found, pattern_codes())


@pytest.mark.parametrize("spread", Spread)
def test_calibration_leaves_half_a_code_of_gain_and_a_unit_of_offset(spread: Spread) -> None:
    """G7.1: a full-scale value is off by 0.02 steps where it was by up to 22.9."""
    for seed in range(8):
        one = die(seed, spread)
        assert np.abs(one.gain - 1).max() <= 0.18 + 1e-12
        table = table_of(read(calibrate(one, EDGE)))
        left = np.abs(one.gain * (1 + table.gains * GAIN_STEP) - 1).max()
        assert left <= GAIN_STEP / 2 * 1.19
        assert np.abs(one.offset - table.offsets).max() <= 1
        assert left * 127 <= 0.5
    assert Die.of_id(one.id, CORES).id == one.id


def test_the_measured_line_is_the_column_s() -> None:
    for core in range(CORES):
        gain, offset = measured(pattern_image(EDGE), DieHook(die(), core))
        np.testing.assert_allclose(gain, die().gain[core], atol=2e-5)
        np.testing.assert_allclose(offset, die().offset[core], atol=0.5)


def test_a_die_beyond_its_codes_is_discarded() -> None:
    with pytest.raises(AbiError) as refused:
        calibrate(replace(die(), limit_percent=50, spread=Spread.CORNERS), EDGE)
    assert refused.value.code is ErrorCode.NOT_CALIBRATED


OPS = ("conv", "depthwise", "matmul", "wide", "floats")


@pytest.mark.parametrize("name", OPS)
def test_a_trimmed_die_is_within_a_step_of_the_nominal_one(name: str) -> None:
    """Every product, matmul with its one multiplier included; untrimmed it is far off.

    Half a code of gain is 0.015 steps of int8 at full scale, but four of int16.
    """
    image = image_of(name)
    (plain,) = Engine(image).run(generated_inputs(image)).values()
    step = image.program.tensors[image.outputs[0].entry.tensor].scale or _step_of(image, plain)
    for seed in range(3):
        silicon = DieHook(die(seed), seed)
        bare = _off(image, plain, silicon)
        held = _off(image, plain, silicon, Trim(read(fuses(seed)), die(seed).id, seed))
        assert held <= (5 if name == "wide" else 1.01) * step
        assert bare > 5 * held


def _step_of(image: Any, plain: Array) -> float:
    scales = [t.scale for t in image.program.tensors if t.scale and t.dims == _output_dims(image)]
    return max(scales, default=float(np.abs(plain).max()) * 2.0**-12)


def _output_dims(image: Any) -> Any:
    return image.program.tensors[image.outputs[0].entry.tensor].dims


def _off(image: Any, plain: Array, *hooks: Hook) -> float:
    (found,) = Engine(image, hooks=hooks).run(generated_inputs(image)).values()
    return float(np.abs(found.astype(np.float64) - plain).max())


@pytest.mark.parametrize("gain", [0.82, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1, 1.18])
def test_a_gain_and_its_inverse_are_the_identity_once_and_in_every_band(gain: float) -> None:
    """G7.4, G7.5: 9 gains, 33 sets, within one step of the nominal die; trimmed twice it is not."""
    image = image_of("conv")
    (plain,) = Engine(image).run(generated_inputs(image)).values()
    one = Die(seed=1, limit_percent=0, offset_units=0, cores=CORES)
    one.__dict__["gain"] = np.full((CORES, COLUMNS), gain)
    code = np.full((CORES, COLUMNS), round((1 / gain - 1) / GAIN_STEP))
    efuse = Efuse(state=FuseState.SOUND, table=Table(die=one.id, gains=code, offsets=code * 0))
    silicon, trim = DieHook(one), Trim(efuse, one.id)
    step = _step_of(image, plain)
    for band in range(BANDS):
        heat = Heat(image, Constant(sum(limits(band)) / 2))
        guard = Reloader(heat, Sensor(), image.program.bands)
        assert _off(image, plain, silicon, heat, guard, trim) <= 1.01 * step
        assert heat.runs[0].band == band
    if abs(gain - 1) > 0.02:
        assert _off(image, plain, silicon, trim, trim) > 1.01 * step


def test_a_blank_array_runs_at_unity_and_says_so_and_another_die_s_is_refused() -> None:
    image = image_of("conv")
    silicon = DieHook(die())
    (bare,) = Engine(image, hooks=[silicon]).run(generated_inputs(image)).values()
    engine = Engine(image, hooks=[silicon, Trim(read(bytes(SIZE)), die().id)])
    (found,) = engine.run(generated_inputs(image)).values()
    np.testing.assert_array_equal(found, bare)
    (event,) = engine.log
    assert "unity gain" in event.text
    with pytest.raises(AbiError) as refused:
        Trim(read(fuses(8)), die(7).id)
    assert refused.value.code is ErrorCode.WRONG_DIE


# --- commands -----------------------------------------------------------------------------------


def test_a_die_is_calibrated_and_run_by_the_commands(tmp_path: Path) -> None:
    run = CliRunner().invoke
    array, blob = str(tmp_path / "die.fuses"), tmp_path / "digits.bin"
    blob.write_bytes(load_subject().raw)
    made = run(main, ["calibrate", array, "--die", "3", "--spread", "corners", "--json"])
    assert made.exit_code == 0, made.output
    assert Path(array).stat().st_size == SIZE
    again = run(main, ["calibrate", array, "--die", "4"])
    assert again.exit_code == 1
    assert "fuse_blown" in again.output
    ran = run(main, ["run", str(blob), "--die", array, "--temperature", "80", "--json"])
    assert ran.exit_code == 0, ran.output
    assert '"thermal"' in ran.output
    for fault, code in (("fuse:bit=9", "fuse_crc"), ("die:seed=4", "wrong_die")):
        bad = run(main, ["run", str(blob), "--die", array, "--fault", fault])
        assert bad.exit_code == 1
        assert code in bad.output
