"""States: kept from run to run, reset on request, and the same bits as the reference's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import npuc
from npuabi.container import write_blob
from npuabi.enums import Space
from npuabi.errors import AbiError, ErrorCode
from npuabi.target import load_target
from npuc.diagnostics import CompileError
from npuc.driver import Compilation
from npuc.frontend.text import parse_text
from npuc.ir.printer import print_graph
from npufw.boot import boot
from npufw.cli import main as npufw
from npufw.defences.ripple import Ripple
from npufw.engine import Engine
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.selftest import selftest

STREAM = """graph @stream(%x: tensor<1x4x1x2xf32>) {
  %s = state "history" init = splat(0.25) : tensor<1x4x1x4xf32>
  %n = state "count" init = splat(0.0) : tensor<1x1xf32>
  %w = const random(seed = 7, std = 0.3) : tensor<5x4x1x3xf32>
  %one = const splat(0.125) : tensor<1x1xf32>
  %all = concat(%s, %x) {axis = 3}
  %y = conv2d(%all, %w)
  %old, %next = split(%all) {axis = 3, split = [2, 4]}
  %m = add(%n, %one)
  update "history", %next
  update "count", %m
  return %y, %m
}
"""
FRAMES = np.random.default_rng(1).normal(size=(5, 4, 1, 2)).astype(np.float32)
EDGE = load_target("edge")


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    path = tmp_path / "stream.txt"
    path.write_text(STREAM)
    return path


def compiled(path: Path, **options: Any) -> Compilation:
    return npuc.compile(path, calibrate={"x": FRAMES}, **options)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("rounding", ["double", "single", "even"])
def test_consecutive_frames_equal_the_reference(stream: Path, rounding: str, level: int) -> None:
    made = compiled(stream, rounding=rounding, level=level)
    given = Engine(boot(made.blob, EDGE)).run({"x": FRAMES})
    states: dict[str, np.ndarray] = {}
    wanted = [made.reference({"x": FRAMES[i : i + 1]}, states) for i in range(len(FRAMES))]
    for name, array in given.items():
        assert np.array_equal(array, np.concatenate([frame[name] for frame in wanted]))
    np.testing.assert_allclose(given["m"].ravel(), np.arange(1, 6) / 8, atol=0.003)


def test_states_last_from_run_to_run_until_they_are_reset(stream: Path) -> None:
    engine = Engine(boot(compiled(stream).blob, EDGE))
    whole = engine.run({"x": FRAMES})["y"]
    engine.reset()
    pieces = [engine.run({"x": FRAMES[i : i + 1]})["y"] for i in range(len(FRAMES))]
    assert np.array_equal(whole, np.concatenate(pieces))
    kept = engine.states
    assert selftest(engine).passed
    assert all(np.array_equal(kept[n], array) for n, array in engine.states.items())
    assert not np.array_equal(engine.run({"x": FRAMES[:1]})["y"], whole[:1])


def test_states_are_held_as_codes_when_readers_and_update_agree(stream: Path) -> None:
    graph = compiled(stream).graph
    assert {s.argument.tensor.dtype.text for s in graph.states} == {"i8"}
    text = print_graph(graph)
    assert 'state "history" init = dense(' in text
    assert print_graph(parse_text(text)) == text


def test_the_command_keeps_states_in_a_file(stream: Path, tmp_path: Path) -> None:
    blob, kept = tmp_path / "stream.bin", tmp_path / "kept.npz"
    blob.write_bytes(compiled(stream).blob)
    np.save(tmp_path / "x.npy", FRAMES)
    np.save(tmp_path / "first.npy", FRAMES[:2])
    np.save(tmp_path / "rest.npy", FRAMES[2:])
    outputs = {}
    for name, more in (
        ("x", []),
        ("first", ["--state", str(kept)]),
        ("rest", ["--state", str(kept), "--repeat", "2"]),
    ):
        out = tmp_path / f"{name}_out.npz"
        given = ["run", str(blob), "--input", str(tmp_path / f"{name}.npy"), "--output", str(out)]
        assert CliRunner().invoke(npufw, [*given, *more]).exit_code == 0
        outputs[name] = np.load(out)["y"]
    assert np.array_equal(outputs["x"], np.concatenate([outputs["first"], outputs["rest"]]))
    again = ["run", str(blob), "--input", str(tmp_path / "x.npy"), "--state", str(kept)]
    before = kept.read_bytes()
    assert CliRunner().invoke(npufw, [*again, "--reset"]).exit_code == 0
    assert kept.read_bytes() == before  # the same five frames
    for wrong in (["--state", "-"], ["--state", "z.npz", "--output", "./z.npz"]):
        assert CliRunner().invoke(npufw, ["run", str(blob), *wrong]).exit_code == 2
    shown = CliRunner().invoke(npufw, ["inspect", str(blob)]).stdout
    assert "state    history 1x4x1x4 i8, arena 0x" in shown
    blob.write_bytes(compiled(stream, precision="fp16").blob)
    refused = CliRunner().invoke(npufw, again).stderr
    assert "got 1x4x1x4 int8; a state file belongs to one blob; begin anew with --reset" in refused


@pytest.mark.parametrize(
    ("line", "changed", "message"),
    [
        (2, '  %s = state "count" init = splat(0.0) : tensor<1x4x1x4xf32>', "declared already"),
        (2, '  %s = state "history" init = splat(0.0)', "state needs a type"),
        (2, '  %s = state "history" init = splat(0.0) : tensor<1x?xf32>', "without dynamic dims"),
        (10, '  update "history", %old', "%old is tensor<1x4x1x2xf32>, state 'history' is"),
        (10, '  update "histery", %next', 'no state "histery" is declared before this line'),
        (10, '  update "count", %m', "is updated already in line 10"),
        (10, "", 'state "history" is never updated'),
        (10, "  update history, %next", "expected a string"),
    ],
)
def test_mistakes_are_named_with_their_line(
    stream: Path, line: int, changed: str, message: str
) -> None:
    lines = STREAM.split("\n")
    lines[line - 1] = changed
    with pytest.raises(CompileError, match=message.replace("(", r"\(").replace("?", r"\?")):
        parse_text("\n".join(lines))


def test_boot_refuses_a_state_that_cannot_be_kept(stream: Path) -> None:
    program = compiled(stream).program
    first = program.states[0]
    for entry, code in (
        (replace(first, tensor=first.initial), ErrorCode.BAD_OPERANDS),
        (replace(first, initial=first.tensor), ErrorCode.BAD_OPERANDS),
        (replace(first, initial=program.states[1].initial), ErrorCode.BAD_DIMS),
        (replace(first, symbol=program.states[1].symbol), ErrorCode.BAD_SYMBOL),
        (replace(first, tensor=len(program.tensors)), ErrorCode.BAD_INDEX),
    ):
        changed = replace(program, states=(entry, program.states[1]))
        with pytest.raises(AbiError) as caught:
            boot(write_blob(changed), EDGE)
        assert caught.value.code is code


def test_a_refused_frame_leaves_the_states_as_they_were(stream: Path) -> None:
    made = compiled(stream)
    image = boot(made.blob, EDGE)
    right = Engine(image).run({"x": FRAMES})

    class HitsInput(Hook):
        """Flips a bit of the third frame's input when the first TOA is fetched."""

        frame, hit = -1, False

        def at(self, machine: Machine, moment: Moment) -> None:
            if moment.phase is Phase.RUN_STARTS:
                self.frame += 1
            elif moment.phase is Phase.TOA_STARTS and self.frame == 2 and not self.hit:
                self.hit = True
                place = machine.image.inputs[0].tensor.base
                machine.memory.spaces[Space.ARENA][place] ^= 1

    engine = Engine(image, hooks=[HitsInput(), Ripple(image)])
    outputs = [engine.run({"x": FRAMES[:2]})]
    with pytest.raises(AbiError) as refused:
        engine.run({"x": FRAMES[2:3]})
    assert refused.value.code is ErrorCode.INPUT_LOST
    outputs.append(engine.run({"x": FRAMES[2:]}))
    for name, array in right.items():
        given = np.concatenate([part[name] for part in outputs])
        np.testing.assert_array_equal(given, array)


def test_a_state_that_flips_is_moved_again_and_one_that_the_host_set_is_refused(
    stream: Path,
) -> None:
    image = boot(compiled(stream).blob, EDGE)
    right = Engine(image).run({"x": FRAMES})
    place = image.states[0].tensor.base
    engine = Engine(image, hooks=[Ripple(image)])
    parts = [engine.run({"x": FRAMES[:3]})]
    engine.memory.spaces[Space.ARENA][place] ^= 1
    parts.append(engine.run({"x": FRAMES[3:]}))
    for name, array in right.items():
        np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), array)
    assert [event.outcome for event in engine.log] == [Outcome.DETECTED, Outcome.REPAIRED]
    engine.states = engine.states
    engine.memory.spaces[Space.ARENA][place] ^= 1
    with pytest.raises(AbiError) as refused:
        engine.run({"x": FRAMES})
    assert refused.value.code is ErrorCode.INPUT_LOST
    engine.reset()
    for name, array in engine.run({"x": FRAMES}).items():
        np.testing.assert_array_equal(array, right[name])
