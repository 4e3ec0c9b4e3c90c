"""The command npufw: reports, files, refusals with one message and no traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import npuabi
from npuabi.container import write_blob
from npuabi.enums import DType
from npuabi.errors import ErrorCode
from npuabi.sections import split_sections
from npufw.boot import boot
from npufw.cli import main
from npufw.selftest import generated_inputs, output_crc
from tests.builders import EDGE
from tests.unit.npufw.programs import SHAPE, codes, expected, rescaler


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    made = rescaler().builder
    program = made.build()
    inputs = generated_inputs(boot(write_blob(program), EDGE))
    crc = output_crc([expected(inputs["x"])])
    answer = replace(program.known_answer, output_crc=crc)
    path = tmp_path / "half.bin"
    path.write_bytes(write_blob(replace(program, known_answer=answer)))
    return path


def npufw(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)


def report(*arguments: object) -> dict[str, Any]:
    result = npufw(*arguments, "--json")
    assert result.exit_code == 0, result.output
    values: dict[str, Any] = json.loads(result.stdout)
    assert values["schema"] == 1
    return values


def refused(*arguments: object) -> str:
    result = npufw(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_run_reports_each_output_with_the_documented_keys(blob: Path, tmp_path: Path) -> None:
    x = tmp_path / "x.npy"
    np.save(x, codes(runs=2))
    values = report("run", blob, "--input", x, "--repeat", 3)
    wanted = expected(codes(runs=2))
    found = values["outputs"]["y"]
    assert found["shape"] == [4, *SHAPE[1:]]
    assert (found["dtype"], found["min"], found["max"]) == ("int8", wanted.min(), wanted.max())
    assert found["mean"] == pytest.approx(wanted.mean())
    assert found["argmax"] == wanted.reshape(4, -1).argmax(axis=1).tolist()
    assert values["host_ms"]["runs"] == 3
    assert values["host_ms"]["min"] <= values["host_ms"]["median"]
    assert values["cycles"] == 2 * boot(blob.read_bytes(), EDGE).timeline.cycles
    assert values["time_ms"] == values["cycles"] / 1e6
    assert values["events"] == []


def test_run_takes_inputs_by_name_from_npz_npy_and_standard_input(
    blob: Path, tmp_path: Path
) -> None:
    x, output = codes(), tmp_path / "y.npz"
    np.save(tmp_path / "any.npy", x)
    np.savez(tmp_path / "named.npz", x=x, labels=np.zeros(2))
    np.savez(tmp_path / "one.npz", whatever=x)
    for option in ("any.npy", "named.npz", "one.npz"):
        result = npufw("run", blob, "--input", tmp_path / option, "--output", output)
        assert result.exit_code == 0, result.output
        assert ("'labels' is no input" in result.stderr) == (option == "named.npz")
        with np.load(output) as arrays:
            assert list(arrays) == ["y"]
            np.testing.assert_array_equal(arrays["y"], expected(x))
    result = npufw("run", blob, "--input", f"x={tmp_path / 'any.npy'}", "--output", "-")
    np.testing.assert_array_equal(np.load(io.BytesIO(result.stdout_bytes))["y"], expected(x))
    stream = io.BytesIO()
    np.savez(stream, x=x)
    result = npufw("run", blob, "--input", "-", stdin=stream.getvalue())
    assert result.exit_code == 0, result.output


def test_output_files_are_the_same_bytes_each_time(blob: Path, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        npufw("run", blob, "--output", tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_run_without_input_says_that_its_data_is_random(blob: Path) -> None:
    result = npufw("run", blob)
    assert "random data" in result.stderr
    assert "cycles" in result.stdout


def test_a_blob_may_come_from_standard_input(blob: Path) -> None:
    result = npufw("selftest", "-", stdin=blob.read_bytes())
    assert (result.exit_code, result.stdout[:7]) == (0, "passed:")


def test_selftest_fails_when_a_bit_of_the_answer_differs(blob: Path) -> None:
    assert report("selftest", blob)["passed"] is True
    program = boot(blob.read_bytes(), EDGE).program
    wrong = replace(program.known_answer, output_crc=program.known_answer.output_crc ^ 1)
    blob.write_bytes(write_blob(replace(program, known_answer=wrong)))
    assert "known_answer (0x46)" in refused("selftest", blob)


def test_a_flip_in_one_table_copy_is_healed_and_told(blob: Path) -> None:
    raw = bytearray(blob.read_bytes())
    parts = split_sections(bytes(raw))
    first = next(iter(k for k in parts if k.name == "TABLE_A"))
    at = bytes(raw).index(bytes(parts[first].content)) + 200
    raw[at] ^= 4
    blob.write_bytes(raw)
    result = npufw("run", blob)
    assert result.exit_code == 0
    assert "healed: TABLE_A" in result.stderr
    assert len(report("run", blob)["events"]) == 1
    shown = report("inspect", blob)
    assert shown["blob"] == str(blob)
    assert len(shown["events"]) == 1


def test_eval_counts_the_argmax_that_equals_the_label(blob: Path, tmp_path: Path) -> None:
    x = codes(runs=3)[:5]
    labels = expected(x).reshape(5, -1).argmax(axis=1)
    labels[2] += 1
    data = tmp_path / "data.npz"
    np.savez(data, pictures=x, truth=labels)
    values = report("eval", blob, "--data", data, "--labels", "truth")
    assert (values["samples"], values["correct"], values["top1"]) == (5, 4, 0.8)
    assert "no array 'labels'" in refused("eval", blob, "--data", data)
    np.savez(data, x=x[:3], labels=labels)
    assert "there are 5 labels" in refused("eval", blob, "--data", data)
    np.savez(data, x=x, labels=labels.astype(np.float32))
    assert "labels 'labels' are whole numbers" in refused("eval", blob, "--data", data)


def test_profile_has_the_compile_keys_and_cycles_that_sum(blob: Path) -> None:
    values = report("profile", blob)
    assert values["bytes"] == blob.stat().st_size
    assert sum(layer["cycles"] for layer in values["layers"]) == values["cycles"]
    assert set(values["stalls"]) >= {"bank_conflict", "dma_wait", "dependency", "descriptor_late"}
    text = npufw("profile", blob).stdout
    assert "stall cycles: bank_conflict" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_inspect_names_ports_ops_and_shows_records_byte_by_byte(blob: Path) -> None:
    overview = npufw("inspect", blob).stdout
    assert "input    x 2x5x3x7 i8, arena 0x0" in overview
    raw = blob.read_bytes()
    shown = npufw("inspect", blob, "--entry", 3).stdout
    assert "TOA 3: rescale" in shown
    assert "\x1b" not in shown
    lines = [line for line in shown.splitlines() if "opcode" in line]
    address, octet = int(lines[0][:8], 16), int(lines[0].split()[1], 16)
    assert raw[address] == octet == 9
    assert "magic                'NPUTABLE'" in npufw("inspect", blob, "--hex").stdout
    assert npufw("inspect", blob, "--op", "y").stdout.count("Toa, 64 bytes") == 6
    ring = npufw("inspect", blob, "--ring").stdout.splitlines()
    assert len(ring) == 7
    assert "dma_in>=2" in ring[3]


def test_inspect_draws_banks_and_arena_over_time(blob: Path) -> None:
    lines = npufw("inspect", blob, "--map").stdout.splitlines()
    banks = [line for line in lines if line.lstrip().startswith("bank")]
    assert len(banks) == EDGE.banks
    assert "." in banks[0].split("|")[1]
    assert set(banks[1].split("|")[1]) == {" "}
    assert [line.split()[-1] for line in lines[-2:]] == ["x", "y"]


def test_inspect_refuses_what_is_not_there(blob: Path) -> None:
    assert "there is no TOA 6" in refused("inspect", blob, "--entry", 6)
    assert "no TOA comes from op 'z', it may be fused; the ops are y" in refused(
        "inspect", blob, "--op", "z"
    )
    assert "line 99" in refused("inspect", blob, "--line", 99)
    assert npufw("inspect", blob, "--entry", 1, "--op", "y").exit_code == 2


def test_what_cannot_be_read_or_run_is_refused_with_one_line(blob: Path, tmp_path: Path) -> None:
    assert "No such file" in refused("run", tmp_path / "none.bin")
    assert "target_name" in refused("run", blob, "--target", "tiny")
    assert "known targets are" in refused("run", blob, "--target", "nothing")
    text = tmp_path / "x.npy"
    text.write_text("no array")
    assert "input_file (0x47)" in refused("run", blob, "--input", text)
    np.save(text, np.array([{}], object), allow_pickle=True)
    assert "pickled" in refused("run", blob, "--input", text)
    np.save(text, codes().astype(np.float32))
    assert "input_dtype" in refused("run", blob, "--input", text)
    assert "no input is called 'z'" in refused("run", blob, "--input", f"z={text}")
    assert "given twice" in refused("run", blob, "--input", text, "--input", text)
    blob.write_bytes(blob.read_bytes()[:-1])
    refused("run", blob)


def test_standard_input_is_read_once_and_called_so(blob: Path) -> None:
    assert npufw("run", "-", "--input", "x=-", stdin=blob.read_bytes()).exit_code == 2
    result = npufw("run", blob, "--input", "-", stdin=b"PK no archive")
    assert result.exit_code == 1
    assert "'standard input' is no sound .npz" in result.stderr


def test_wrong_usage_is_exit_2(blob: Path) -> None:
    assert npufw("run").exit_code == 2
    assert npufw("run", blob, "--repeat", 0).exit_code == 2
    assert npufw("run", blob, "--json", "--output", "-").exit_code == 2


def test_help_and_version_import_no_numpy() -> None:
    code = (
        "import sys; from npufw.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('numpy' in sys.modules or 'rich' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "selftest" in result.stdout
    assert npufw("--version").stdout == f"npufw, version {npuabi.__version__}\n"


@pytest.mark.parametrize("command", ["run", "inspect", "eval", "selftest", "profile"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    assert f"npufw {command} digits.bin" in npufw(command, "--help").stdout


def test_the_list_of_commands_cuts_no_sentence() -> None:
    assert "..." not in npufw("--help").stdout.partition("Commands:")[2]


def test_run_does_not_overwrite_what_it_reads(blob: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", codes())
    before = blob.read_bytes()
    assert "name another output" in refused("run", blob, "--output", blob)
    for option in (tmp_path / "x.npy", f"x={tmp_path / 'x.npy'}"):
        text = refused("run", blob, "--input", option, "--output", tmp_path / "x.npy")
        assert "name another output" in text
    assert blob.read_bytes() == before


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
def test_a_known_answer_that_no_float_holds_is_given_to_the_run_to_refuse(dtype: DType) -> None:
    program = rescaler().builder.build()
    answer = replace(program.known_answer, std=3e38)
    image = boot(write_blob(replace(program, known_answer=answer)), EDGE)
    (port,) = image.inputs
    port = replace(port, entry=replace(port.entry, dtype=dtype))
    assert not np.isfinite(generated_inputs(replace(image, inputs=(port,)))["x"]).all()


def test_explain_says_what_a_code_means_and_lists_all() -> None:
    assert npufw("explain", "0x22").stdout.startswith("schema_hash (0x22, 34): ")
    assert len(npufw("explain").stdout.splitlines()) == len(ErrorCode)
    listed = json.loads(npufw("explain", "--json").stdout)["codes"]
    assert [row["code"] for row in listed] == [int(code) for code in ErrorCode]
    missing = npufw("explain", "schema_hsah")
    assert missing.exit_code == 1
    assert "did you mean schema_hash" in missing.stderr


def test_no_more_is_read_of_what_does_not_begin_as_a_blob() -> None:
    """/dev/zero never ends."""
    assert "a blob begins with" in refused("run", "/dev/zero")


def test_an_empty_name_is_no_input(blob: Path) -> None:
    for option in ("", "x="):
        assert "names no file" in refused("run", blob, "--input", option)
