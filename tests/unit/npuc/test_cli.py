"""The command npuc: exit codes, messages and files; the library has its own tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import npuabi
from npuc.cli import main

TEXT = "graph @g(%x: tensor<1x4xf32>) {\n  %y = relu(%x) : tensor<1x4xf32>\n  return %y\n}\n"


def npuc(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)


def test_the_list_of_commands_cuts_no_sentence() -> None:
    assert "..." not in npuc("--help").stdout.partition("Commands:")[2]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "g.txt"
    path.write_text(TEXT)
    return path


def test_opt_prints_the_graph_and_reads_standard_input(text: Path) -> None:
    assert npuc("opt", text).output == TEXT
    assert npuc("opt", "-", stdin=TEXT).output == TEXT


def test_opt_writes_a_file_that_is_whole(text: Path, tmp_path: Path) -> None:
    assert npuc("opt", text, "-o", tmp_path / "out.txt").exit_code == 0
    assert (tmp_path / "out.txt").read_text() == TEXT
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.txt", "out.txt"]


def test_a_mistake_ends_with_one_message_and_leaves_no_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text(TEXT.replace("relu", "relo"))
    result = npuc("opt", bad, "-o", tmp_path / "out.txt")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{bad}:2:8: error: unknown op 'relo'")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.txt"]


def test_an_error_of_a_pass_shows_the_line_too(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text("graph @g(%x: tensor<?x4xf32>) {\n  return %x\n}\n")
    result = npuc("opt", path, "--passes", "bind_shapes")
    assert result.exit_code == 1
    assert "graph @g(%x: tensor<?x4xf32>) {\n        ^" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--passes", "none"],
        ["--shape", "x"],
        ["--shape", "x=1x"],
        ["--shape", "x=-1"],
        ["--shape", "x=1", "--shape", "x=2"],
        ["--rounding", "odd"],
    ],
)
def test_wrong_usage_exits_2(text: Path, arguments: list[str]) -> None:
    result = npuc("opt", text, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("arguments", [["none.txt"], ["."], ["g.txt", "--target", "none"]])
def test_what_cannot_be_read_exits_1_with_one_line(
    text: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(text.parent)
    result = npuc("opt", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_targets_are_listed_with_every_number() -> None:
    table = npuc("targets").output
    assert all(name in table for name in ("edge", "edge-quad", "tiny", "bank_kib"))
    found = json.loads(npuc("targets", "--json").output)
    assert found["schema"] == 1
    assert [t["name"] for t in found["targets"]] == ["edge", "edge-quad", "tiny"]


def test_abi_prints_the_page_or_the_header() -> None:
    assert npuc("abi").output.startswith("# ")
    assert npuc("abi", "--markdown").output == npuc("abi").output
    assert "#include" in npuc("abi", "--c-header").output


def test_help_and_version_need_no_heavy_import() -> None:
    code = "import sys, npuc.cli; print({'numpy', 'lark', 'construct'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
    assert npuc("--version").output == f"npuc, version {npuabi.__version__}\n"


def test_a_closed_pipe_is_no_traceback(text: Path) -> None:
    lines = [f"  %v{i + 1} = relu(%v{i})" for i in range(5000)]
    text.write_text("\n".join(["graph @g(%v0: tensor<4xf32>) {", *lines, "  return %v5000", "}"]))
    command = [sys.executable, "-c", "from npuc.cli import main; main()", "opt", str(text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_an_interrupt_leaves_no_file_and_no_traceback(tmp_path: Path) -> None:
    """The text is longer than a pipe holds: once it is written, the command is reading it."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    code += "from npuc.cli import main; main()"
    command = [sys.executable, "-c", code, "opt", "-", "-o", str(tmp_path / "out.txt")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(b"//" + b"x" * (1 << 20))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 1
    assert b"Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_unwinds_the_program(tmp_path: Path, number: signal.Signals) -> None:
    """The write is held up: what it would leave behind is a temporary file."""
    code = (
        "import os, time, npuabi.files\n"
        "os.fsync = lambda _: (print('writing', flush=True), time.sleep(60))\n"
        "from npuc.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "opt", "-", "-o", str(tmp_path / "out.txt")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(TEXT.encode())
        process.stdin.close()
        assert process.stdout.readline() == b"writing\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        assert process.wait() == 128 + number
    assert not list(tmp_path.iterdir())


def test_help_on_a_full_device_is_an_error_without_a_traceback() -> None:
    command = [sys.executable, "-c", "from npuc.cli import main; main()", "--help"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


FILES = """graph @g(%x: tensor<1x4xf32>) attributes {calibration = "c.npz"} {
  %s = state "s" init = file("s.npy") : tensor<1x4xf32>
  %w = const file("w.npz", "w") : tensor<1x4xf32>
  %y = add(%x, %w)
  %z = add(%y, %s)
  update "s", %z
  return %y
}
"""


@pytest.mark.parametrize("victim", ["01-bind_shapes.npu", "c.npz", "s.npy", "w.npz", "link"])
@pytest.mark.parametrize("command", [("compile", "--rounding", "even"), ("opt",)])
def test_no_file_that_is_read_is_overwritten(
    command: tuple[str, ...], victim: str, tmp_path: Path
) -> None:
    model, numbers = tmp_path / "01-bind_shapes.npu", np.ones((1, 4), "f4")
    model.write_text(FILES)
    np.savez(tmp_path / "c.npz", x=numbers)
    np.savez(tmp_path / "w.npz", w=numbers)
    np.save(tmp_path / "s.npy", numbers)
    (tmp_path / "link").symlink_to(tmp_path / "w.npz")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = npuc(*command, model, "-o", tmp_path / victim)
    assert result.exit_code == 1
    assert "name another output" in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_ir_is_dumped_over_no_file_that_is_read(tmp_path: Path) -> None:
    model = tmp_path / "01-bind_shapes.npu"
    model.write_text(TEXT)
    output = ("-o", tmp_path / "g.bin", "--dump-ir", tmp_path, "--precision", "fp16")
    result = npuc("compile", model, *output)
    assert result.exit_code == 1
    assert f"{model}: it is read as {model}" in result.stderr
    assert model.read_text() == TEXT


def test_a_dump_needs_a_folder(text: Path) -> None:
    result = npuc("compile", text, "--dump-ir", text, "--precision", "fp16")
    assert result.exit_code == 1
    assert result.stderr == f"error: {text}: no folder: give --dump-ir one\n"


def test_a_percentile_is_a_number(text: Path) -> None:
    result = npuc("check", text, "--calibrate", "random", "--percentile", "nan")
    assert result.exit_code == 1
    assert "error: --percentile is above 50 and at most 100, got nan" in result.stderr


@pytest.mark.parametrize("name", ["const", "cons", "const_"])
def test_no_op_is_proposed_that_has_no_page(name: str) -> None:
    result = npuc("ops", name)
    assert result.exit_code == 2
    assert "did you mean const " not in result.stderr


def test_an_empty_output_name_is_refused(text: Path) -> None:
    assert npuc("compile", text, "-o", "", "--calibrate", "random").exit_code == 1
    assert [p.name for p in text.parent.iterdir()] == ["g.txt"]
