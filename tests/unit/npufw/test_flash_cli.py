"""npufw flash: images, updates, cuts, faults, rollback and commit on the command line; gate 6."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from npuabi.progress import silent
from npufw.cli import main
from npufw.gates.subject import load_subject
from npufw.gates.update import GATE
from npufw.hostfiles import read_file

BLOB = str(resources.files("npufw") / "gates" / "digits.bin")


def flash(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["flash", *map(str, arguments)])


def done(*arguments: str | Path) -> dict[str, Any]:
    result = flash(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    assert found.pop("schema") == 1
    return found


@pytest.fixture(params=["img", "hex"])
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"device.{request.param}"
    assert done("init", path, "--slot", "128")["slot_bytes"] == 131072
    return path


def test_a_model_is_written_boots_and_runs_as_the_blob_that_it_was(
    image: Path, tmp_path: Path
) -> None:
    assert done("status", image)["boots"] is None
    first = done("write", image, BLOB)
    second = done("write", image, BLOB)
    assert [first["slot"], second["slot"]] == ["A", "B"]
    assert [first["generation"], second["generation"]] == [1, 2]
    before = image.read_bytes()
    booted = done("boot", image, "-o", tmp_path / "now.bin")
    assert (booted["slot"], booted["why"], booted["operations"]) == ("B", "B is newer", 0)
    assert image.read_bytes() == before
    written = (tmp_path / "now.bin").read_bytes()
    assert len(written) == len(read_file(BLOB, 1 << 20))
    runs = [CliRunner().invoke(main, ["run", p]).stdout for p in (BLOB, str(tmp_path / "now.bin"))]
    assert runs[0] == runs[1]
    assert done("rollback", image)["slot"] == "A"
    found = done("status", image)
    assert (found["boots"], found["slots"]["B"]["state"], found["hint"]) == ("A", "empty", "A")
    again = flash("rollback", image)
    assert (again.exit_code, "no_rollback (0x68)" in again.stderr) == (1, True)


@pytest.mark.parametrize("unit", ["1", "256"])
def test_a_cut_leaves_the_image_torn_and_the_old_model_boots(tmp_path: Path, unit: str) -> None:
    image = tmp_path / "device.img"
    done("init", image, "--slot", "128")
    done("write", image, BLOB)
    before = image.read_bytes()
    result = flash("write", image, BLOB, "--write-unit", unit, "--cut", "60:0")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: power was cut in operation 60: ")
    assert image.read_bytes() != before
    found = done("status", image)
    assert (found["boots"], found["slots"]["B"]["state"]) == ("A", "bad")
    note = "note: power was not cut: there were 0 operations\n"
    assert flash("boot", image, "--cut", "9").stderr == note
    assert done("boot", image)["generation"] == 1


def test_a_bad_sector_ends_in_an_error_and_the_old_model_boots(tmp_path: Path) -> None:
    image = tmp_path / "device.img"
    done("init", image, "--slot", "128")
    done("write", image, BLOB)
    for kind, code in (
        ("program-error", "flash_program (0x60)"),
        ("erase-error", "flash_erase (0x61)"),
        ("read-error", "flash_read (0x62)"),
        ("program-nothing", "flash_verify (0x63)"),
    ):
        result = flash("write", image, BLOB, "--fault", f"{kind}@35")
        assert (result.exit_code, code in result.stderr) == (1, True), result.stderr
        assert done("boot", image)["slot"] == "A"


def test_what_the_firmware_refuses_is_not_written(tmp_path: Path) -> None:
    image, bad = tmp_path / "device.img", tmp_path / "bad.bin"
    done("init", image, "--slot", "128")
    before = image.read_bytes()
    bad.write_bytes(read_file(BLOB, 1 << 20)[:-1])
    assert flash("write", image, bad).exit_code == 1
    assert "target_name" in flash("write", image, BLOB, "--target", "tiny").stderr
    done("init", image, "--slot", "4", "--force")
    assert "slot_size (0x65)" in flash("write", image, BLOB).stderr
    assert before != image.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("init", "{image}"), 1, "File exists; --force erases it"),
        (("write", "{image}", BLOB, "--cut", "0"), 2, "--cut takes N"),
        (("write", "{image}", BLOB, "--fault", "melts@3"), 2, "--fault KIND@SECTOR"),
        (("write", "{image}", BLOB, "--write-unit", "3"), 2, "write-unit"),
        (
            ("write", "{image}", BLOB, "--fault", "read-error@33"),
            1,
            "no sector 33: the chip has 33",
        ),
        (("write", "{image}", BLOB, "--fault", "read-error@3:-1"), 2, "--fault KIND@SECTOR"),
        (("boot", "-"), 2, "a file is needed"),
        (("status", BLOB), 1, "flash_image (0x64)"),
        (("status", "{image}.gone"), 1, "No such file"),
        (("boot", "{image}"), 1, "no_bootable_slot (0x67)"),
        (("rollback", "{image}"), 1, "no_bootable_slot (0x67)"),
        (("commit", "{image}"), 1, "no_bootable_slot (0x67)"),
        (("boot", "{image}", "-o", "{image}"), 1, "name another output"),
    ],
)
def test_a_mistake_ends_with_one_message(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    image = tmp_path / "device.img"
    done("init", image, "--slot", "64")
    before = image.read_bytes()
    result = flash(*(a.format(image=image) for a in arguments))
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr
    assert image.read_bytes() == before


FAR = ":0200000401FEFB\n:10FFF0000000000000000000000000000000000001\n"


@pytest.mark.parametrize("damage", ["cut", "lines", "behind", "twice", "far", "text", "empty"])
def test_damaged_intel_hex_is_refused(tmp_path: Path, damage: str) -> None:
    """A line far away is refused at once: what lies between is not gone through."""
    image = tmp_path / "device.hex"
    done("init", image, "--slot", "16")
    text = image.read_text()
    lines = text.splitlines(keepends=True)
    damaged = {
        "cut": text[: len(text) // 2],
        "lines": "".join(lines[:-1]),
        "behind": text + lines[0],
        "twice": lines[0] + text,
        "far": FAR + lines[-1],
        "text": "hello\n",
        "empty": "",
    }
    image.write_text(damaged[damage])
    result = flash("status", image)
    assert (result.exit_code, "flash_image (0x64)" in result.stderr) == (1, True), result.stderr


def test_dump_shows_headers_byte_by_byte(tmp_path: Path) -> None:
    image = tmp_path / "device.img"
    done("init", image, "--slot", "128")
    done("write", image, BLOB)
    shown = flash("dump", image).stdout
    for words in (
        "'NPUSLOT\\n'",
        "TABLE_A of slot A",
        "generation           1",
        "00021000  erased",
    ):
        assert words in shown


def test_a_commit_keeps_older_releases_out(tmp_path: Path) -> None:
    key, image = tmp_path / "maker.key", tmp_path / "device.img"
    text = tmp_path / "g.txt"
    text.write_text(
        "graph @g(%x: tensor<1x4xf32>) {\n  %y = relu(%x) : tensor<1x4xf32>\n  return %y\n}\n"
    )
    assert CliRunner().invoke(main, ["keygen", str(key)]).exit_code == 0
    from npuc.cli import main as npuc

    for version in ("1", "3"):
        sign = ["--sign", str(key), "--security-version", version]
        blob = str(tmp_path / f"v{version}.bin")
        assert CliRunner().invoke(npuc, ["compile", str(text), "-o", blob, *sign]).exit_code == 0
    done("init", image, "--slot", "64")
    done("write", image, tmp_path / "v1.bin")
    done("write", image, tmp_path / "v3.bin")
    made = done("commit", image)
    assert (made["slot"], made["before"], made["counter"]) == ("B", 0, 3)
    assert "security_version (0x7b)" in flash("write", image, tmp_path / "v1.bin").stderr
    assert "no_rollback (0x68)" in flash("rollback", image).stderr
    found = done("status", image)
    assert (found["counter"], found["boots"], found["slots"]["A"]["state"]) == (3, "B", "bad")
    assert done("commit", image)["counter"] == 3


def test_gate_6_shows_its_symptom_and_its_absence() -> None:
    shown = GATE.show(load_subject(), silent)
    assert shown.passed
    assert int(shown.undefended["no_model_boots"]) > 50
    assert shown.defended["no_model_boots"] == shown.defended["mixture_boots"] == 0
    assert int(shown.defended["new_boots"]) > 0
