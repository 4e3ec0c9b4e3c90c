"""What no NPU can hold is refused at its place before the host tries to compute it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.diagnostics import CompileError
from npuc.driver import compile

F32 = "tensor<{}xf32>"


def refusal(folder: Path, text: str, **options: Any) -> str:
    path = folder / "g.txt"
    path.write_text(text)
    with pytest.raises(CompileError) as caught:
        compile(path, **{"calibrate": "random", **options})
    return str(caught.value)


def relu(dims: str) -> str:
    return f"graph @g(%x: {F32.format(dims)}) {{\n  %y = relu(%x)\n  return %y\n}}\n"


@pytest.mark.parametrize(
    "dims", ["1x3x20000x20000", "2147483647", "0x2147483647x2147483647", "?x2147483647x2147483647"]
)
def test_inputs_that_are_too_large_cost_no_memory(tmp_path: Path, dims: str) -> None:
    tracemalloc.start()
    text = refusal(tmp_path, relu(dims))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text.startswith(f"{tmp_path}/g.txt:1:")
    assert peak < 100_000_000


def test_an_empty_input_is_told_as_that(tmp_path: Path) -> None:
    assert "input %x is tensor<1x0xf32>, expected" in refusal(tmp_path, relu("1x0"))


def test_a_value_larger_than_the_ddr_is_refused_before_the_graph_runs(tmp_path: Path) -> None:
    text = (
        "graph @g(%x: tensor<1x1x1000x1000xf32>) {\n"
        "  %w = const splat(0.1) : tensor<20x1x1x1xf32>\n"
        "  %c = conv2d(%x, %w)\n  %y = global_avg_pool(%c)\n  return %y\n}\n"
    )
    shown = refusal(tmp_path, text, target="tiny")
    assert "g.txt:3:8: error: %c is tensor<1x20x1000x1000xf32>, the DDR of tiny has 16 MiB" in shown


def test_a_kernel_that_no_descriptor_holds_is_refused_before_the_graph_runs(tmp_path: Path) -> None:
    text = (
        "graph @g(%x: tensor<1x64x512x512xf32>) {\n"
        "  %w = const splat(0.1) : tensor<64x64x256x256xf32>\n"
        "  %y = conv2d(%x, %w)\n  return %y\n}\n"
    )
    assert "g.txt:3:8: error: conv2d: kernel, strides" in refusal(tmp_path, text)


def test_more_inputs_than_a_blob_has_are_refused_at_the_graph(tmp_path: Path) -> None:
    arguments = ", ".join(f"%x{n}: tensor<1x2xf32>" for n in range(1024))
    text = f"graph @g({arguments}) {{\n  %y = relu(%x0)\n  return %y\n}}\n"
    assert "g.txt:1:7: error: graph @g has 1025 inputs and outputs" in refusal(tmp_path, text)


def test_data_beyond_float32_is_refused_at_the_graph(tmp_path: Path) -> None:
    wild = {"x": np.full((1, 4), 1e300)}
    text = refusal(tmp_path, relu("1x4"), calibrate=wild)
    assert "g.txt:1:7: error: %x overflows float32 on the calibration data" in text


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_softmax_on_codes_of_more_terms_than_its_sum_holds_is_refused(
    name: str, tmp_path: Path
) -> None:
    text = f"graph @g(%x: {F32}) {{{{\n  %y = {name}(%x)\n  return %y\n}}}}\n"
    told = refusal(tmp_path, text.format("1x4096"))
    assert f"{name} on codes runs over at most 4,095 elements" in told
    for dims, precision in (("1x4095", "int8"), ("1x4096", "fp16")):
        (tmp_path / "g.txt").write_text(text.format(dims))
        assert compile(tmp_path / "g.txt", calibrate="random", precision=precision).blob
