"""Cores: one that computes wrongly is found by the known answer and taken out (X5)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from npuabi.enums import Opcode
from npuabi.errors import AbiError, ErrorCode
from npufw.cli import main
from npufw.cores import Cores
from npufw.defences.calibration import Trim
from npufw.efuse import Efuse, FuseState
from npufw.engine import Engine
from npufw.fault_models.die import Die, DieHook
from npufw.fault_models.instruction import INSTRUCTION, StuckInstruction
from npufw.faults import Machine, Moment
from npufw.gates.subject import load_subject
from npufw.selftest import generated_inputs

SUBJECT = load_subject()
IMAGE = SUBJECT.image
CORES = IMAGE.target.cores
SAMPLES = {"image": SUBJECT.inputs["image"][:6]}


def stuck(opcode: Opcode = Opcode.CONV) -> StuckInstruction:
    return StuckInstruction(opcode, bit=6, lane=3, value=1)


class _Later(StuckInstruction):
    """A fault that is not there before *begins* is set."""

    begins = False

    def at(self, machine: Machine, moment: Moment) -> None:
        if self.begins:
            super().at(machine, moment)


@pytest.mark.parametrize("bad", range(CORES))
def test_one_bad_core_is_found_at_boot_and_jobs_end_right_on_the_others(bad: int) -> None:
    cores = Cores(IMAGE, {bad: [stuck()]})
    assert list(cores.out) == [bad]
    assert [test.passed for test in cores.boot_test] == [core != bad for core in range(CORES)]
    (wanted,) = Engine(IMAGE).run(SAMPLES).values()
    used = set()
    for _ in range(2 * CORES):
        core = cores.pick()
        used.add(core)
        (found,) = cores.run_on(core, SAMPLES).values()
        np.testing.assert_array_equal(found, wanted)
    assert used == set(range(CORES)) - {bad}
    with pytest.raises(AbiError) as refused:
        cores.run_on(bad, SAMPLES)
    assert refused.value.code is ErrorCode.NO_CORE


def test_a_core_that_goes_bad_is_found_within_one_test_period() -> None:
    fault = _Later(Opcode.DEPTHWISE, bit=6, lane=3, value=1)
    cores = Cores(IMAGE, {1: [fault]})
    assert cores.healthy == [0, 1, 2]
    fault.begins = True
    assert [test.passed for test in cores.test()] == [True, False, True]
    assert cores.healthy == [0, 2]
    fault.begins = False
    cores.test()
    assert cores.healthy == [0, 2], "what was out does not come back by itself"


def test_without_any_core_jobs_are_refused() -> None:
    cores = Cores(IMAGE, {core: [stuck()] for core in range(CORES)})
    assert cores.healthy == []
    with pytest.raises(AbiError, match=r"core 0: .*core 2: ") as refused:
        cores.run(SAMPLES)
    assert refused.value.code is ErrorCode.NO_CORE


def test_the_known_answer_bypasses_the_die_s_gain_and_jobs_do_not() -> None:
    die = Die(seed=1, cores=CORES)
    trim = Trim(Efuse(state=FuseState.BLANK), die.id)
    cores = Cores(IMAGE, {0: [DieHook(die), trim]})
    assert cores.healthy == [0, 1, 2]
    inputs = generated_inputs(IMAGE)
    (plain,), (bent,) = (cores.run_on(core, inputs).values() for core in (1, 0))
    assert (plain != bent).any()


def test_most_instruction_faults_are_found_and_the_same_seed_is_the_same_fault() -> None:
    """Of 60 faults: those that the test passes change no class of any sample."""
    found = 0
    (wanted,) = Engine(IMAGE).run(SAMPLES).values()
    for seed in range(60):
        fault: Any = INSTRUCTION.make(IMAGE, {"seed": seed})
        again: Any = INSTRUCTION.make(IMAGE, {"seed": seed})
        assert fault.text == again.text
        cores = Cores(IMAGE, {0: [fault]})
        found += bool(cores.out)
        if not cores.out:
            (given,) = cores.run_on(0, SAMPLES).values()
            assert (given.argmax(axis=1) == wanted.argmax(axis=1)).all(), fault.text
    assert found >= 40


def test_the_command_tests_every_core_and_says_which_go_on(tmp_path: Any) -> None:
    blob = tmp_path / "digits.bin"
    blob.write_bytes(SUBJECT.raw)
    run = CliRunner().invoke
    good = run(main, ["selftest", str(blob)])
    assert good.exit_code == 0
    assert "on 3 cores" in good.output
    arguments = ["selftest", str(blob), "--fault", "instruction:seed=0", "--core", "2"]
    seeds = (str(seed) for seed in range(60))
    for seed in seeds:
        arguments[3] = f"instruction:seed={seed}"
        bad = run(main, arguments)
        if bad.exit_code:
            break
    assert "known_answer" in bad.output
    assert "core 2: " in bad.output
    assert "cores 0, 1 go on" in bad.output
    assert run(main, ["selftest", str(blob), "--core", "3"]).exit_code == 2


def test_a_run_goes_to_the_next_core_when_the_first_one_fails_its_test(tmp_path: Any) -> None:
    blob = tmp_path / "digits.bin"
    blob.write_bytes(SUBJECT.raw)

    def run(*options: str) -> dict[str, Any]:
        done = CliRunner().invoke(main, ["run", str(blob), *options, "--json"])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    plain = run()["outputs"]
    spec = next(
        f"instruction:seed={seed}"
        for seed in range(60)
        if Cores(IMAGE, {0: [INSTRUCTION.make(IMAGE, {"seed": seed})]}).out
    )
    bad = run("--fault", spec, "--without", "core-test")
    assert bad["outputs"] != plain
    good = run("--fault", spec)
    assert good["outputs"] == plain
    assert [e["outcome"] for e in good["events"]] == ["injected", "detected", "repaired"]
    assert "core 1 runs" in good["events"][-1]["text"]
