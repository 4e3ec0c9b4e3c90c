"""npuc check: four levels agree on sound programs, and the first op that does not is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import npuc.check.command
from npuabi.container import write_blob
from npuabi.enums import Opcode, ToaFlag
from npuabi.program import Program
from npuc.check.inputs import batches_of, choose_inputs
from npuc.check.levels import Compiled, Runner, compiled, float_graph, run_levels
from npuc.check.report import Report, report_of, united_reports
from npuc.cli import main
from npuc.diagnostics import CompileError
from npuc.driver import Options
from npuc.frontend.source import Source, load_source
from npuc.frontend.text import parse_text
from npuc.ir.core import Array
from npufw.engine import Engine

MODELS = Path(__file__).parents[2] / "models"
DIGITS = load_source(MODELS / "digits.txt")
Change = Callable[[Program], Program]


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def report(made: Compiled) -> Report:
    graph = float_graph(made.source, made.options)
    inputs = choose_inputs(graph, made.source, made.options, ())
    return report_of(run_levels(made, inputs.first))


def broken(change: Change, *, tasks: bool, **options: Any) -> Compiled:
    """Return digits compiled and then changed: in the blob, and with *tasks* before it too."""
    made = compiled(DIGITS, Options(**options))
    program = change(made.compilation.program)
    kept = program if tasks else made.compilation.program
    changed = replace(made.compilation, program=kept, blob=write_blob(program))
    return replace(made, compilation=changed)


def without_waits(program: Program) -> Program:
    """Let the pool start before what it reads has been computed."""
    toas = [
        replace(t, flags=t.flags & ~ToaFlag.WAIT_MAC) if t.opcode is Opcode.MAX_POOL else t
        for t in program.toas
    ]
    return replace(program, toas=tuple(toas))


def with_poisoned_parameters(program: Program) -> Program:
    """Let a convolution start before its parameters have come."""
    toas = [
        replace(t, flags=t.flags & ~ToaFlag.WAIT_DMA_IN) if t.opcode is Opcode.CONV else t
        for t in program.toas
    ]
    return replace(program, toas=tuple(toas))


def with_a_wrong_clamp(program: Program) -> Program:
    """Let the last 3x3 convolution clamp too low: a task that is wrong."""
    index = max(i for i, t in enumerate(program.toas) if t.kernel == (3, 3))
    toa = replace(program.toas[index], clamp=(-128, 0))
    return replace(program, toas=(*program.toas[:index], toa, *program.toas[index + 1 :]))


def test_digits_agrees_at_every_level_and_says_what_it_lost() -> None:
    result = check(MODELS / "digits.txt", "--json", "--mixed", "1")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["agree"], found["partings"]) == (0, True, [])
    assert found["input"] == "the first sample of the calibration data"
    tensors = {t["name"]: t for t in found["tensors"]}
    for tensor in tensors.values():
        for level in ("L3", "L4"):
            assert tensor["op"] == "input" or tensor["levels"][level]["largest"] == 0
    joined = tensors["joined"]["levels"]["L2"]
    assert sum(joined["off"].values()) == 24 * 64
    assert 20 < joined["sqnr_db"] < 60
    assert {f["name"]: f["into"] for f in found["fused"]}["sum"] == "joined"
    sqnrs = [loss["sqnr_db"] for loss in found["losses"]]
    assert sqnrs == sorted(sqnrs)
    gain = found["mixed"]["sqnr_db"]
    assert gain["after"]["probabilities"] >= gain["before"]["probabilities"]


def test_a_dropped_wait_parts_the_blob_from_its_tasks() -> None:
    found = report(broken(without_waits, tasks=False))
    (parting,) = found.partings
    assert (parting.level, parting.above) == ("L4", "L3")
    assert (parting.op, parting.name) == ("max_pool2d", "pool")
    assert parting.first.got != parting.first.expected


def test_a_blob_that_stops_is_said_to_stop() -> None:
    found = report(broken(with_poisoned_parameters, tasks=False))
    assert found.stopped is not None
    assert found.stopped.startswith("bad_multiplier")
    assert not found.agrees
    assert all(row.l4 is None for row in found.rows)


def test_a_wrong_task_parts_from_the_reference_and_the_blob_with_it() -> None:
    found = report(broken(with_a_wrong_clamp, tasks=True))
    (parting,) = found.partings
    assert (parting.level, parting.above, parting.name) == ("L3", "L2", "r5")
    assert parting.place == f"{DIGITS.file}:49:9"
    rows = {row.name: row for row in found.rows}
    assert rows["r4"].l3 is not None
    assert rows["r4"].l3.same
    assert all(row.l4 is None or row.l4.same for row in found.rows)


def with_another_weight(program: Program) -> Program:
    """Let the sign of one number among the constants flip: of a float16 weight."""
    toa = next(t for t in program.toas if t.opcode is Opcode.DMA_IN and t.op == 4)
    tensor = program.tensors[toa.tensors[0]]
    at = tensor.base + tensor.extent - 25 * 2 * 16
    constants = bytearray(program.constants)
    constants[at + 1] ^= 0x80
    return replace(program, constants=bytes(constants))


def test_float_ops_keep_their_bound_and_a_wrong_weight_exceeds_it() -> None:
    sound = report(compiled(DIGITS, Options(precision="fp16")))
    shares = {row.name: row.of_bound for row in sound.rows if row.of_bound is not None}
    assert sound.agrees
    assert {"r1", "r2", "joined", "r4", "r5", "logits"} <= shares.keys()
    assert 0 < max(shares.values()) <= 1
    assert all(row.l4 is None or row.l4.same for row in sound.rows)
    wrong = report(broken(with_another_weight, tasks=True, precision="fp16"))
    (parting,) = wrong.partings
    assert (parting.level, parting.op) == ("L3", "conv2d")
    assert max(row.of_bound or 0 for row in wrong.rows) > 10


def test_levels_that_part_end_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    made = broken(with_a_wrong_clamp, tasks=True)
    monkeypatch.setattr(npuc.check.command, "compiled", lambda *_, **__: made)
    result = check(MODELS / "digits.txt")
    assert result.exit_code == 1
    assert f"L3 parts from L2 at conv2d %r5 ({DIGITS.file}:49:9): element [0, " in result.stdout
    assert "agree" not in result.stdout


def test_a_quantised_graph_is_compared_from_L2_on(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_text(
        "graph @q(%x: tensor<1x8x4x4xi8, q<scale = 0.1, zp = 3>>) {\n"
        "  %y = relu(%x) : tensor<1x8x4x4xi8, q<scale = 0.05, zp = -128>>\n  return %y\n}\n"
    )
    result = check(path)
    assert result.exit_code == 0
    assert "quantised already: there is no L1" in result.stdout
    assert "seed" in result.stdout.splitlines()[0]
    assert "agree bit for bit" in result.stdout
    assert "lost most" not in result.stdout


STREAM = """graph @s(%x: tensor<2x20x4x4xf32>) {
  %s = state "sum" init = splat(0.5) : tensor<2x20x4x4xf32>
  %y = add(%x, %s)
  update "sum", %y
  %z = relu(%y)
  %v = reshape(%s) {shape = [2, 20, 16, 1]}
  return %z, %v, %x
}
"""


@pytest.fixture
def frames(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "s.txt").write_text(STREAM)
    data = np.random.default_rng(0).normal(size=(8, 20, 4, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=data)
    return tmp_path / "s.txt", tmp_path / "x.npz"


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_states_are_followed_over_consecutive_frames(
    precision: str, frames: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = frames
    options = ("--calibrate", data, "--input", data, "-O0", "--precision", precision)
    result = check(path, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"input: the 4 frames of {data}")
    assert "add " in result.stdout
    assert ", in each of 4 batches" in result.stdout
    run = Engine.run

    def forgetful(self: Engine, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.reset()
        return run(self, inputs)

    monkeypatch.setattr(Engine, "run", forgetful)
    parted = check(path, *options)
    assert parted.exit_code == 1
    assert "L4 parts from L3 at state %s: in batch 2, element [0, 0, 0, 0]" in parted.stdout


def test_every_batch_that_is_given_is_compared() -> None:
    text = "graph @g(%x: tensor<1x3x5x5xf32>) {\n  %y = neg(%x)\n  return %y\n}\n"
    source = Source("<text>", text, Path())
    calibrate = {"x": np.linspace(-4, 4, 75, dtype="f4").reshape(1, 3, 5, 5)}
    made = compiled(source, Options(calibrate=calibrate))
    graph = float_graph(source, made.options)
    arrays = np.concatenate([calibrate["x"] * 0.5, calibrate["x"] * 2])
    chosen = batches_of(graph, {"x": arrays}, "of an array")
    runner = Runner(made)
    reports = [report_of(runner.run(batch)) for batch in chosen.batches]
    found = united_reports(reports)
    assert found.agrees
    first, worst = (next(r.l2 for r in each.rows if r.name == "y") for each in (reports[0], found))
    assert first is not None and worst is not None  # noqa: PT018
    assert first.largest < 0.02 < 3.9 < worst.largest
    assert worst.sqnr_db < first.sqnr_db - 10
    with pytest.raises(CompileError, match=r"%x holds 1.5 batches: expected as many in each"):
        batches_of(
            parse_text("graph @g(%x: tensor<2x1xf32>) {\n  %y = neg(%x)\n  return %y\n}"),
            {"x": np.zeros((3, 1), "f4")},
            "of an array",
        )


def test_inputs_are_taken_as_given(frames: tuple[Path, Path], tmp_path: Path) -> None:
    path, data = frames
    np.save(tmp_path / "bad.npy", np.zeros((4, 3, 4, 4), np.float32))
    refused = check(path, "--calibrate", data, "--input", tmp_path / "bad.npy")
    assert refused.exit_code == 1
    assert "%x is tensor<2x20x4x4xf32>, got 4x3x4x4 float32" in refused.stderr


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_numbers_that_leave_a_type_are_compared_without_a_warning(
    frames: tuple[Path, Path], tmp_path: Path, precision: str
) -> None:
    path, data = frames
    np.save(tmp_path / "big.npy", np.full((2, 20, 4, 4), 3e38, np.float32))
    options = ("--calibrate", data, "--input", tmp_path / "big.npy", "--precision", precision)
    result = check(path, *options)  # a warning would end it
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_text_in_memory_is_checked_too() -> None:
    text = "graph @g(%x: tensor<1x3x5x5xf32>) {\n  %y = relu(%x)\n  return %y\n}\n"
    made = compiled(Source("<text>", text, Path()), Options(calibrate="random", target="tiny"))
    found = report(made)
    assert found.agrees
    assert [row.name for row in found.rows] == ["x", "x_q", "y_q", "y"]
