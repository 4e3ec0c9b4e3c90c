"""ABI drift: every pair of versions, features and geometry; refusals leave everything as it was."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from npuabi.container import Program, read_blob, write_blob
from npuabi.enums import Space
from npuabi.errors import AbiError, ErrorCode
from npuabi.migrate import migrate
from npuabi.policy import GEOMETRY, own_abi
from npuabi.schemas import Version, own_schema, translated
from npufw.boot import boot, image_of
from npufw.cli import main
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.fault_models.drift import VERSIONS, Fate, device_abi, fate, misread, schema_of
from npufw.fault_plan import plan_of
from npufw.faults import Outcome
from npufw.version import VersionRegister, parse_version
from tests.builders import EDGE
from tests.unit.npufw.programs import codes, expected, rescaler

OWN = own_abi().version
NEWEST = device_abi(VERSIONS[-1])
GOLDEN = Path(__file__).parents[2] / "golden"


@cache
def program() -> Program:
    return rescaler().builder.build()


@cache
def blob(version: Version = OWN) -> bytes:
    return migrate(write_blob(program()), EDGE, version, NEWEST).blob


def changed(**fields: Any) -> bytes:
    return write_blob(replace(program(), header=replace(program().header, **fields)))


def refusal(raw: bytes, version: Version = OWN) -> AbiError:
    with pytest.raises(AbiError) as caught:
        read_blob(raw, target=EDGE, abi=device_abi(version))
    return caught.value


def run(raw: bytes, version: Version) -> Any:
    loaded = read_blob(raw, target=EDGE, abi=device_abi(version))
    return Engine(image_of(loaded, EDGE)).run({"x": codes()})["y"]


@pytest.mark.parametrize("theirs", VERSIONS, ids=lambda v: f"blob {v[0]}.{v[1]}")
def test_only_the_cells_of_the_version_table_load_and_those_run_right(theirs: Version) -> None:
    wanted = expected(codes())
    for ours in VERSIONS:
        if theirs <= ours:
            np.testing.assert_array_equal(run(blob(theirs), ours), wanted)
            continue
        error = refusal(blob(theirs), ours)
        assert error.code is ErrorCode.ABI_MINOR
        for words in (f"blob has ABI 0.{theirs[1]}", f"firmware ABI 0.{ours[1]}"):
            assert words in error.detail
        assert error.code.remedy in error.detail


def test_without_the_policy_other_layouts_give_other_results_or_none() -> None:
    wanted = {"y": expected(codes())}
    fates = {
        (theirs, ours): fate(blob(theirs), ours, EDGE, {"x": codes()}, wanted)
        for theirs in VERSIONS
        for ours in VERSIONS
    }
    assert all(fates[v, v] is Fate.RIGHT for v in VERSIONS)
    assert sum(found is not Fate.RIGHT for found in fates.values()) >= 30
    assert Fate.CRASHED in fates.values()


@pytest.mark.parametrize("major", [1, 2, 255])
def test_another_major_version_is_refused_both_ways(major: int) -> None:
    assert refusal(changed(abi_major=major)).code is ErrorCode.ABI_MAJOR
    with pytest.raises(AbiError) as caught:
        boot(blob(), EDGE, VersionRegister((major, 1)))
    assert caught.value.code is ErrorCode.ABI_MAJOR


@pytest.mark.parametrize("bit", range(64))
def test_every_unknown_feature_bit_is_refused(bit: int) -> None:
    error = refusal(changed(features=1 << bit))
    assert error.code is ErrorCode.UNKNOWN_FEATURE
    assert f"{1 << bit:#x}" in error.detail
    assert f"knows {NEWEST.features:#x}" in error.detail


@pytest.mark.parametrize("name", GEOMETRY)
def test_a_device_with_another_number_refuses_the_blob(name: str) -> None:
    number = getattr(EDGE, name)
    device = replace(EDGE, **{name: number * 2})
    with pytest.raises(AbiError) as caught:
        boot(blob(), device)
    assert caught.value.code is ErrorCode.GEOMETRY
    assert f"{name} {number}," in caught.value.detail
    assert f"{name} {number * 2}" in caught.value.detail


def test_a_number_that_the_header_does_not_state_is_in_its_hash() -> None:
    with pytest.raises(AbiError) as caught:
        boot(blob(), replace(EDGE, clock_mhz=7))
    assert caught.value.code is ErrorCode.TARGET_HASH


def test_a_header_may_not_state_what_its_version_does_not_have() -> None:
    header = read_blob(blob((0, 1)), target=EDGE).program.header
    raw = write_blob(replace(program(), header=replace(header, banks=16)))
    assert refusal(raw).code is ErrorCode.BAD_FIELD


def test_a_refusal_leaves_the_running_model_as_it_is_and_takes_no_time() -> None:
    device = Engine(boot(blob(), EDGE))
    device.run({"x": codes()})
    before = {space: device.memory.spaces[space].copy() for space in Space}
    bad = [changed(abi_major=6), changed(abi_minor=7), changed(features=4), changed(banks=3)]
    times = []
    for raw in bad:
        start = time.perf_counter()
        refusal(raw)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01
    for space in Space:
        np.testing.assert_array_equal(device.memory.spaces[space], before[space])
    np.testing.assert_array_equal(device.run({"x": codes()})["y"], expected(codes()))


def test_firmware_that_changed_between_check_and_run_does_not_run() -> None:
    register = VersionRegister()
    device = Engine(boot(blob(), EDGE, register), register=register)
    device.run({"x": codes()})
    register.write((0, 7))
    with pytest.raises(FirmwareError, match=r"checked by ABI 0\.2, now it is 0\.7"):
        device.run({"x": codes()})
    register.write(OWN)
    device.run({"x": codes()})


@pytest.mark.parametrize("spec", ["version:bit=3", "version:to=0.7", "version:to=0.2"])
def test_a_fault_can_change_the_register_behind_the_check(spec: str) -> None:
    image = boot(blob(), EDGE)
    device = plan_of([spec], []).engine(image)
    if spec.endswith("0.2"):
        device.run({"x": codes()})
        return
    with pytest.raises(FirmwareError) as caught:
        device.run({"x": codes()})
    assert caught.value.code is ErrorCode.VERSION_CHANGED
    outcomes = [event.outcome for event in device.log if event.kind == "version"]
    assert outcomes == [Outcome.INJECTED, Outcome.REFUSED]
    Engine(image).run({"x": codes()})


@pytest.mark.parametrize("bit", range(32))
def test_no_flipped_bit_of_the_register_is_a_version(bit: int) -> None:
    register = VersionRegister()
    image = boot(blob(), EDGE, register)
    register.bits ^= 1 << bit
    for step in (register.read, lambda: Engine(image, register=register).run({"x": codes()})):
        with pytest.raises(FirmwareError) as caught:
            step()
        assert caught.value.code is ErrorCode.VERSION_CHANGED


@pytest.mark.parametrize("text", ["", "1", "0.x", "0.256", "-1.0", "0.1.2", "1" * 5000 + ".0"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a version is"):
        parse_version(text)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v[0]}.{v[1]}")
def test_migrating_there_and_back_gives_the_same_bytes(version: Version) -> None:
    first = migrate(blob(version), EDGE, OWN, NEWEST)
    assert first.before == version
    there = migrate(first.blob, EDGE, version, NEWEST).blob
    assert migrate(there, EDGE, OWN, NEWEST).blob == first.blob


def test_the_real_older_blob_migrates_to_what_is_compiled_today(tmp_path: Path) -> None:
    old, new = (GOLDEN / f"abi-0.{minor}" / "conv_bn_relu.bin" for minor in (1, 2))
    output = tmp_path / "new.bin"
    done = CliRunner().invoke(main, ["migrate", str(old), "-o", str(output)])
    assert done.exit_code == 0
    assert "ABI 0.1 to 0.2" in done.output
    first, second = (read_blob(path.read_bytes(), target=EDGE).program for path in (output, new))
    assert first.header.banks == EDGE.banks
    assert first.constants == second.constants
    done = CliRunner().invoke(main, ["selftest", str(output)])
    assert done.exit_code == 0


@pytest.mark.parametrize("options", [["--hex"], ["--entry", "2"], ["--json"], ["--ring"]])
def test_blobs_of_older_versions_can_be_looked_at(options: list[str]) -> None:
    blob = str(GOLDEN / "abi-0.1" / "conv_bn_relu.bin")
    done = CliRunner().invoke(main, ["inspect", blob, *options])
    assert done.exit_code == 0, done.stderr


def test_the_text_of_an_older_blob_gives_its_bytes_again(tmp_path: Path) -> None:
    old, text, again = GOLDEN / "abi-0.1" / "conv_bn_relu.bin", tmp_path / "t", tmp_path / "b"
    for arguments in (["disasm", str(old), "-o", str(text)], ["asm", str(text), "-o", str(again)]):
        assert CliRunner().invoke(main, arguments).exit_code == 0
    assert again.read_bytes() == old.read_bytes()


def test_an_older_version_cannot_say_what_came_later() -> None:
    own, older = own_schema(), schema_of((0, 6))
    fewer = {name: number for name, number in own.enums["Opcode"].items() if name != "RESCALE"}
    lacking = replace(own, enums={**own.enums, "Opcode": fewer})
    raw = b"".join(toa.encode() for toa in program().toas)
    with pytest.raises(AbiError) as caught:
        translated(raw, "Toa", own, lacking)
    assert caught.value.code is ErrorCode.BAD_FIELD
    assert translated(translated(raw, "Toa", own, older), "Toa", older, own) == raw


def test_the_versions_commands_refuse_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "new.bin"
    path.write_bytes(blob())
    for arguments, words in (
        (["run", str(path), "--firmware-version", "0.1"], "this firmware ABI 0.1; update the"),
        (["selftest", str(path), "--firmware-version", "3.0"], "abi_major (0x20)"),
        (["migrate", str(path), "-o", str(tmp_path / "x"), "--to", "0.9"], "0.1, 0.2 are"),
    ):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 1
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_misreading_takes_other_descriptors_for_what_they_are_not() -> None:
    assert misread(blob(), own_schema(), EDGE).program.toas == program().toas
    assert misread(blob(), schema_of((0, 7)), EDGE).program.tensors != program().tensors
