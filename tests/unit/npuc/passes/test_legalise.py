"""What the NPU cannot run is refused in one error; odd outputs work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.diagnostics import CompileError


def test_every_broken_limit_is_in_one_error_with_its_place(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x1x300x300xf32>, %z: tensor<1x1x1x1x2xf32>) {
  %a = max_pool2d(%x) {kernel_shape = [256, 1]}
  %b = relu(%z)
  return %a, %b
}
"""
    with pytest.raises(CompileError) as caught:
        bench.passed(text, "legalise")
    lines = [(d.location.line, d.text) for d in caught.value.diagnostics]
    assert [line for line, _ in lines] == [2, 3, 4]
    assert lines[1][1].startswith("max_pool2d: kernel, strides, dilations and pads are at most 255")
    assert "at most 4 dims: reshape" in lines[2][1]


def test_an_empty_tensor_is_refused(bench: Any) -> None:
    text = "graph @g(%x: tensor<1x0x3xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    bench.calibrate(x=np.zeros((1, 0, 3), np.float32))
    with pytest.raises(CompileError, match="at least one element"):
        bench.passed(text)


def test_an_output_that_is_an_input_is_copied(bench: Any) -> None:
    text = "graph @g(%x: tensor<1x3xf32>) {\n  %y = relu(%x)\n  return %y, %x\n}"
    data = np.array([[-1.0, 0.1, 2.0]], np.float32)
    bench.calibrate(x=data)
    graph = bench.passed(text)
    assert bench.ops(graph) == ["quantize", "relu", "dequantize", "identity"]
    assert bench.run(graph, x=data)[1].tolist() == data.tolist()


def test_a_constant_output_is_refused(bench: Any) -> None:
    text = (
        "graph @g(%x: tensor<1x3xf32>) {\n  %k = const splat(1.0) : tensor<2xf32>\n"
        "  %y = relu(%k)\n  return %y\n}"
    )
    with pytest.raises(CompileError, match="%y does not depend on any input"):
        bench.passed(text)
