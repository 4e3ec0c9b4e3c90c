"""``npuc opt`` and ``--dump-ir`` reach every level that a compilation goes through."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from npuc.cli import main
from npuc.passes import GRAPH_PASSES, PIPELINE

MODELS = Path(__file__).parents[3] / "models"


def test_opt_calibrates_by_the_graphs_own_attribute() -> None:
    passes = ",".join(p.NAME for p in GRAPH_PASSES)
    model = str(MODELS / "conv_bn_relu.txt")
    done = CliRunner().invoke(main, ["opt", model, "--passes", passes, "--elide"])
    assert done.exit_code == 0, done.output
    assert "%image_q = quantize(%image)" in done.stdout


def test_opt_takes_random_calibration_and_warns(tmp_path: Path) -> None:
    text = tmp_path / "bare.npu"
    text.write_text("graph @bare(%x: tensor<1x4xf32>) {\n  %y = relu(%x)\n  return %y\n}\n")
    command = ["opt", str(text), "--passes", "calibrate", "--calibrate", "random"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "zp = " in done.stdout
    assert "random noise" in done.stderr


@pytest.mark.parametrize("passes", ["lower", "lower,lower"])
def test_lowering_a_float_graph_is_refused_at_the_ops_place(passes: str) -> None:
    done = CliRunner().invoke(main, ["opt", str(MODELS / "conv_bn_relu.txt"), "--passes", passes])
    assert done.exit_code == 1
    assert "conv_bn_relu.txt:9:8: error: " in done.stderr
    assert "lower takes the quantised graph" in done.stderr
    assert "Traceback" not in done.output


def test_dump_ir_holds_a_file_for_every_pass_in_order(tmp_path: Path) -> None:
    for name in ("conv_bn_relu.txt", "conv_bn_relu.npz", "conv_bn_relu_calib.npz"):
        shutil.copy(MODELS / name, tmp_path)
    command = ["compile", str(tmp_path / "conv_bn_relu.txt"), "-o", str(tmp_path / "x.bin")]
    done = CliRunner().invoke(main, [*command, "--dump-ir", str(tmp_path / "ir")])
    assert done.exit_code == 0, done.output
    names = [path.stem[3:] for path in sorted((tmp_path / "ir").iterdir())]
    assert names == [p.NAME for p in PIPELINE]
