"""Bytes for people: every blob has a text that gives it back, and -O levels differ as diff says."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from npuabi.enums import Mode, Space, Unit
from npuabi.records import NO_TENSOR
from npuabi.target import load_target
from npuc.driver import Options, compile
from npufw.asm import assemble
from npufw.boot import Image, boot
from npufw.cli import main
from tests.compiled import built, comes_back

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
SMALL = ("conv_bn_relu", "digits", "resnet8")
OTHERS = sorted({path.stem for path in MODELS.glob("*.txt")} - set(SMALL))
BINARY = Path(sys.executable).parent / "npufw"


@cache
def blob_of(model: str, level: int) -> bytes:
    return compile(MODELS / f"{model}.txt", Options(level=level)).blob


def npufw(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)


def refused(*arguments: object, stdin: bytes = b"") -> str:
    result = npufw(*arguments, stdin=stdin)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "cbr.bin"
    path.write_bytes(blob_of("conv_bn_relu", 2))
    return path


# --- the same bytes back ----------------------------------------------------------------------


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("model", SMALL)
def test_a_small_model_at_any_level_comes_back(model: str, level: int) -> None:
    text = comes_back(blob_of(model, level))
    assert "names:" not in text


@pytest.mark.parametrize("precision", ["int16", "fp16", "fp32"])
def test_a_model_in_any_precision_comes_back(precision: str, tmp_path: Path) -> None:
    made = compile(MODELS / "digits.txt", Options(precision=precision)).blob
    text = comes_back(made)
    assert ("\nfloat_params: high inf" in text) == precision.startswith("fp")
    assert ("\nfloats: " in text) == precision.startswith("fp")
    (tmp_path / "a.bin").write_bytes(blob_of("digits", 2))
    (tmp_path / "b.bin").write_bytes(made)
    lines = npufw("diff", tmp_path / "a.bin", tmp_path / "b.bin").stdout.splitlines()
    line = next(line for line in lines if "%r1 " in line)
    assert f"precision int8 -> {precision}" in line
    assert "scale" not in line


@pytest.mark.long
@pytest.mark.parametrize("model", OTHERS)
def test_a_larger_model_comes_back(model: str) -> None:
    comes_back(blob_of(model, 2))


@pytest.mark.parametrize("seed", range(0, 36, 5), ids="seed-{}".format)
def test_random_graphs_on_any_target_come_back(seed: int) -> None:
    comes_back(built(seed).compilation.blob)


def test_a_network_with_states_comes_back(tmp_path: Path) -> None:
    text = tmp_path / "stream.txt"
    text.write_text(
        "graph @stream(%x: tensor<1x4xf32>) {\n"
        '  %s = state "kept" init = splat(0.5) : tensor<1x4xf32>\n'
        '  %y = add(%s, %x)\n  update "kept", %y\n  return %y\n}\n'
    )
    made = compile(text, Options(calibrate="random")).blob
    lines = comes_back(made).splitlines()
    assert [line.split(",")[0] for line in lines if line.startswith("state:")] == [
        'state: symbol "kept"'
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "tests/golden").glob("*/*.bin")), ids=str)
def test_a_golden_blob_comes_back_or_is_refused_as_inspect_refuses_it(path: Path) -> None:
    if npufw("inspect", path).exit_code == 0:
        comes_back(path.read_bytes())
    else:
        assert refused("disasm", path) == refused("inspect", path)


def test_the_installed_commands_work_in_a_pipe(blob: Path, tmp_path: Path) -> None:
    line = f"{BINARY} disasm cbr.bin | {BINARY} asm - -o back.bin && cmp cbr.bin back.bin"
    subprocess.run(line, shell=True, check=True, cwd=tmp_path, capture_output=True)
    command = f"{BINARY} disasm - < cbr.bin | {BINARY} asm - -o - | cmp - cbr.bin"
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, capture_output=True)


# --- the commands -------------------------------------------------------------------------------


def test_an_edited_text_gives_a_blob_that_inspect_takes(blob: Path, tmp_path: Path) -> None:
    text, again = tmp_path / "cbr.asm", tmp_path / "again.bin"
    assert npufw("disasm", blob, "-o", text).stdout == ""
    edited = text.read_text().replace("kernel [3, 3], ", "kernel [3, 3], clamp [-10, 90], ")
    text.write_text(edited.replace("generation 1", "generation 2"))
    result = npufw("asm", text, "-o", again, "--json")
    assert json.loads(result.stdout)["bytes"] == again.stat().st_size
    assert "generation 2" in npufw("inspect", again).stdout
    lines = npufw("diff", blob, again).stdout.splitlines()
    assert lines[0] == "header generation 1 -> 2"
    assert lines[1].startswith("conv2d %y (line 8): clamp [-128, 127] -> [-10, 90]")
    assert npufw("selftest", again).exit_code == 1


def test_constants_may_lie_in_a_file_beside_the_text(blob: Path, tmp_path: Path) -> None:
    text, weights, again = (tmp_path / name for name in ("a.asm", "a.weights", "a.bin"))
    assert npufw("disasm", blob, "-o", text, "--constants", weights).exit_code == 0
    assert 'constants: file "a.weights", bytes ' in text.read_text()
    assert npufw("asm", text, "-o", again).exit_code == 0
    assert again.read_bytes() == blob.read_bytes()
    elsewhere = tmp_path / "sub"
    elsewhere.mkdir()
    message = refused("disasm", blob, "-o", text, "--constants", elsewhere / "a.weights")
    assert "asm looks for it in the text's folder only" in message
    assert "the text's own name" in refused("disasm", blob, "-o", text, "--constants", text)
    assert "a file is needed" in refused("disasm", blob, "--constants", "-")
    assert "it is read as" in refused("asm", text, "-o", text)
    weights.unlink()
    assert "no file 'a.weights' in the text's folder" in refused("asm", text, "-o", again)


def test_a_file_that_is_read_is_never_written(blob: Path, tmp_path: Path) -> None:
    text, weights = tmp_path / "a.asm", tmp_path / "a.weights"
    npufw("disasm", blob, "-o", text, "--constants", weights)
    before = weights.read_bytes()
    assert "it is read as" in refused("asm", text, "-o", weights)
    assert "it is read as" in refused("disasm", blob, "-o", blob)
    assert weights.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.asm", "a.weights", "cbr.bin"]


def test_json_of_a_blob_has_its_records_and_constants(blob: Path) -> None:
    values = json.loads(npufw("disasm", blob, "--json").stdout)
    assert values["schema"] == 1
    assert values["header"]["target"] == "edge"
    assert len(values["toas"]) == values["header"]["toa_count"] == len(values["ring"])
    assert values["tensors"][0]["symbol"] == "image"
    assert values["constants"]


def test_mistakes_are_shown_with_line_and_caret(blob: Path, tmp_path: Path) -> None:
    text = tmp_path / "cbr.asm"
    npufw("disasm", blob, "-o", text)
    text.write_text(text.read_text().replace("opcode conv", "opcode con"))
    lines = refused("asm", text, "-o", tmp_path / "x.bin").splitlines()
    assert "cbr.asm:" in lines[0]
    assert "error: unknown opcode 'con': did you mean conv" in lines[0]
    assert lines[2].strip() == "^"
    assert not (tmp_path / "x.bin").exists()


def test_a_blob_that_the_firmware_refuses_can_be_written_and_read_on_demand(
    blob: Path, tmp_path: Path
) -> None:
    text, bad = tmp_path / "cbr.asm", tmp_path / "bad.bin"
    npufw("disasm", blob, "-o", text)
    text.write_text(text.read_text().replace("tensor %y: base 0x0", "tensor %y: base 0x8"))
    message = refused("asm", text, "-o", bad)
    assert "misaligned (0x33): tensor 12 (y)" in message
    assert npufw("asm", text, "-o", bad, "--unchecked").exit_code == 0
    assert "misaligned (0x33): tensor 12 (y)" in refused("inspect", bad)
    assert "tensor %y: base 0x8" in npufw("disasm", bad).stdout
    assert "at sram 0x0 -> sram 0x8" in npufw("diff", blob, bad, "--addresses").stdout


def test_a_damaged_copy_is_healed_and_told(blob: Path, tmp_path: Path) -> None:
    raw = bytearray(blob.read_bytes())
    raw[raw.index(b"NPUTABLE") + 200] ^= 4
    bent = tmp_path / "bent.bin"
    bent.write_bytes(raw)
    result = npufw("disasm", bent)
    assert "healed: TABLE_A" in result.stderr
    assert assemble(result.stdout.encode()).blob == blob.read_bytes()
    assert npufw("diff", blob, bent).stdout == "the programs are equal\n"


def test_an_older_copy_of_the_table_is_left_out_and_told(blob: Path, tmp_path: Path) -> None:
    text = npufw("disasm", blob).stdout.replace("generation 1", "generation 2")
    newer = assemble(text.encode()).blob
    first = newer.index(b"NPUTABLE")
    second = newer.index(b"NPUTABLE", first + 1)
    mixed = tmp_path / "mixed.bin"
    mixed.write_bytes(_with_old_copy(newer, blob.read_bytes(), first, second))
    result = npufw("disasm", mixed)
    assert "an older generation, not used" in result.stderr
    assert assemble(result.stdout.encode()).blob == newer


def _with_old_copy(newer: bytes, older: bytes, first: int, second: int) -> bytes:
    """Return *newer* with copy A of *older*: its section, and the section's entry."""
    entry = next(
        at for at in range(64, 64 + 64 * 16, 64) if older[at : at + 1] == b"\1"
    )  # TABLE_A is section kind 1
    made = bytearray(newer)
    made[entry : entry + 64] = older[entry : entry + 64]
    made[first:second] = older[first:second]
    return bytes(made)


@pytest.mark.parametrize("command", ["disasm", "diff"])
def test_what_is_no_blob_is_refused_with_one_line(command: str, tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"junk" * 1000)
    arguments = [command, junk] if command == "disasm" else [command, junk, junk]
    assert "bad_magic (0x10)" in refused(*arguments)
    assert "No such file" in refused(*[command, tmp_path / "no", tmp_path / "no"][: len(arguments)])


def test_two_blobs_cannot_both_be_standard_input(blob: Path) -> None:
    assert "one blob, not two" in refused("diff", "-", "-", stdin=blob.read_bytes())
    assert npufw("diff", blob, "-", stdin=blob.read_bytes()).stdout == "the programs are equal\n"


def test_a_target_file_is_named_for_all_three(blob: Path, tmp_path: Path) -> None:
    toml = ROOT / "firmware/npuabi/targets/edge.toml"
    own = tmp_path / "own.toml"
    own.write_text(toml.read_text().replace('name = "edge"', 'name = "own"'))
    text = npufw("disasm", blob).stdout.replace('target "edge"', 'target "own"')
    made = tmp_path / "own.bin"
    assert "no target 'own': known are edge" in refused("asm", "-", "-o", made, stdin=text.encode())
    assert npufw("asm", "-", "-o", made, "--target", own, stdin=text.encode()).exit_code == 0
    assert npufw("disasm", made, "--target", own).stdout == text
    assert 'header target "edge" -> "own"' in npufw("diff", blob, made, "--target", own).stdout


# --- diff of -O levels --------------------------------------------------------------------------


def facts(image: Image) -> dict[str, Any]:
    """Return mode, stripes and banks of each op: counted here from the records alone."""
    found: dict[str, Any] = {}
    size = image.target.bank_bytes
    for step in image.steps:
        source = image.program.sources[step.toa.op]
        name = image.program.symbols[source.symbol :].split(b"\0")[0].decode()
        modes, stripes, banks = found.setdefault(name, (set(), [], {}))
        output = image.program.tensors[step.toa.tensors[4]]
        stripes.append((step.toa.unit, output.dims if step.toa.unit > Unit.DMA_OUT else ()))
        if step.toa.mode is not Mode.NONE:
            modes.add(step.toa.mode)
        for role, number in enumerate(step.toa.tensors):
            tensor = image.program.tensors[number] if number != NO_TENSOR else None
            if tensor is not None and tensor.space is Space.SRAM:
                role = role if step.toa.unit > Unit.DMA_OUT else -step.toa.unit
                last = tensor.base + tensor.extent - 1
                banks.setdefault(role, set()).update(range(tensor.base // size, last // size + 1))
    return {
        name: (modes, sorted(stripes), banks) for name, (modes, stripes, banks) in found.items()
    }


@pytest.mark.parametrize(("one", "other"), [*pairwise(range(4)), (0, 2)])
@pytest.mark.parametrize("model", SMALL)
def test_levels_differ_in_one_line_for_each_op_whose_mode_stripes_or_banks_do(
    model: str, one: int, other: int, tmp_path: Path
) -> None:
    paths = [tmp_path / "a.bin", tmp_path / "b.bin"]
    images = []
    for path, level in zip(paths, (one, other), strict=True):
        path.write_bytes(blob_of(model, level))
        images.append(boot(blob_of(model, level), load_target("edge")))
    a, b = map(facts, images)
    changed = {f"%{name}" for name in a.keys() & b.keys() if a[name] != b[name]}
    values = json.loads(npufw("diff", *paths, "--json").stdout)
    listed = [op["name"] for op in values["ops"]]
    assert sorted(listed) == sorted(changed)
    text = npufw("diff", *paths).stdout
    for name in (f"%{n}" for n in a):
        assert text.count(f" {name} (line ") == (name in changed)
