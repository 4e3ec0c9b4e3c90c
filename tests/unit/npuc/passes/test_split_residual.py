"""Residuals that a float source writes itself: compiled in every precision, as an add would be."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npuc.diagnostics import CompileError
from npuc.driver import Compilation, Options, compile_graph
from npuc.frontend.text import parse_text
from npufw.boot import boot
from npufw.engine import Engine
from tests.compiled import off

FUSED = "%y = conv2d(%x, %w, %b, %r) {ATTRS inner_clamp = [0.0, inf], clamp = [-2.0, 2.0]}"
APART = (
    "%c = conv2d(%x, %w, %b) {ATTRS clamp = [0.0, inf]}\n  %y = add(%c, %r) {clamp = [-2.0, 2.0]}"
)
TEXT = """graph @g(%x: tensor<1x4x5x5xf32>, %r: tensor<1x4x5x5xf32>) {
  %w = const random(seed = 1) : tensor<4xDEPTHx3x3xf32>
  %b = const random(seed = 2) : tensor<4xf32>
  BODY
  return %y
}
"""
INPUTS = {
    n: np.random.default_rng(i).normal(size=(1, 4, 5, 5)).astype("f4") for i, n in enumerate("xr")
}


def made(body: str, *, depthwise: bool = False, **options: object) -> Compilation:
    attributes = "pads = [1, 1, 1, 1], " + "group = 4, " * depthwise
    text = TEXT.replace("BODY", body.replace("ATTRS", attributes))
    graph = parse_text(text.replace("DEPTH", "1" if depthwise else "4"))
    return compile_graph(graph, Options(calibrate=INPUTS, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["int8", "int16", "fp16", "fp32"])
@pytest.mark.parametrize("depthwise", [False, True], ids=["dense", "depthwise"])
def test_a_written_residual_gives_what_conv_and_add_give(precision: str, depthwise: bool) -> None:
    fused, apart = (made(b, depthwise=depthwise, precision=precision) for b in (FUSED, APART))
    got = Engine(boot(fused.blob, fused.target)).run(INPUTS)
    assert off(fused, INPUTS, got) == {}
    np.testing.assert_array_equal(got["y"], Engine(boot(apart.blob, apart.target)).run(INPUTS)["y"])
    kinds = [op.NAME for op in fused.graph.ops]
    assert ("add" in kinds) is depthwise  # else the NPU adds within the convolution


def test_the_convolution_is_kept_in_the_precision_of_its_result() -> None:
    kept = made(FUSED, precision="int8", keep={"y": "int16"})
    (conv,) = (op for op in kept.graph.ops if op.NAME == "conv2d")
    assert conv.operands[3] is not None
    assert conv.result.tensor.dtype.text == "i16"


def test_half_of_the_inner_parameters_is_refused_at_the_op() -> None:
    half = FUSED.replace("ATTRS", "ATTRS inner_scale = 0.5,")
    with pytest.raises(
        CompileError, match=re.escape("4:8: error: conv2d: inner_scale and inner_zp")
    ):
        made(half, precision="int8")
