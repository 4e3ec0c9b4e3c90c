"""The host's names of inputs and outputs: those of the graph text, also where one value is both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from npuc.cli import main as npuc
from npufw.cli import main as npufw

TEXT = """graph @g(%x: tensor<1x3xf32>, %i: tensor<1x2xi8, q<scale = 0.5, zp = 1>>) {
  %s = state "kept" init = splat(0.25) : tensor<1x3xf32>
  %x_copy = relu(%x)
  update "kept", %x
  return %x, %i, %s, %x_copy
}
"""
NAMES = ["x", "i", "s", "x_copy"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "g.txt").write_text(TEXT)
    x = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]], np.float32)
    np.savez(tmp_path / "in.npz", x=x, i=np.array([[1, -2], [3, 4]], np.int8))
    return tmp_path


def command(main: Any, *arguments: object) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_returned_input_keeps_its_name(precision: str, folder: Path) -> None:
    model, blob, data = folder / "g.txt", folder / "g.bin", folder / "in.npz"
    options = ("--calibrate", data, "--precision", precision)
    command(npuc, "compile", model, "-o", blob, *options)
    shown = json.loads(command(npufw, "inspect", blob, "--json"))
    assert [port["name"] for port in shown["outputs"]] == NAMES
    command(npufw, "run", blob, "--input", data, "--output", folder / "y.npz")
    given = dict(np.load(folder / "y.npz"))
    assert list(given) == NAMES
    wanted = dict(np.load(data))
    np.testing.assert_array_equal(given["i"], wanted["i"])
    np.testing.assert_allclose(given["x"], wanted["x"], atol=0.02)
    np.testing.assert_allclose(given["s"], [[0.25] * 3, wanted["x"][0]], atol=0.02)
    assert "agree bit for bit" in command(npuc, "check", model, "--input", data, *options)
    command(npufw, "selftest", blob)
    text = folder / "g.asm"
    command(npufw, "disasm", blob, "-o", text)
    command(npufw, "asm", text, "-o", folder / "again.bin")
    assert (folder / "again.bin").read_bytes() == blob.read_bytes()
