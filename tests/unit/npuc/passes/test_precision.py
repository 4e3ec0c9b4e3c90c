"""Precisions of whole graphs and single ops: fusions, conversions, and what users get wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Precision, Rounding
from npuc.diagnostics import CompileError
from npuc.driver import Options, compile_graph
from npuc.frontend.text import parse_text
from npuc.ir.const import Const
from npuc.ir.core import Graph
from npuc.ir.types import Quant
from npuc.passes.parameters import activation_quant, wide_quant

NET = """
graph @net(%x: tensor<1x3x8x8xf32>) {
  %w1 = const random(seed = 1, std = 0.3) : tensor<18x3x3x3xf32>
  %b1 = const random(seed = 2, std = 0.2) : tensor<18xf32>
  %w2 = const random(seed = 3, std = 0.2) : tensor<18x18x1x1xf32>
  %c1 = conv2d(%x, %w1, %b1) {pads = [1, 1, 1, 1]}
  %r1 = relu(%c1)
  %c2 = conv2d(%r1, %w2)
  %s = add(%c2, %r1)
  %p = max_pool2d(%s) {kernel_shape = [2, 2], strides = [2, 2]}
  %g = global_avg_pool(%p)
  %f = flatten(%g)
  %y = softmax(%f)
  return %y
}
"""


def stored(graph: Graph) -> dict[str, DType]:
    """Return the element type of each op's result."""
    ops = [op for op in graph.ops if not isinstance(op, Const)]
    return {v.name: v.tensor.dtype for op in ops for v in op.results}


def kinds(graph: Graph) -> list[str]:
    return [op.NAME for op in graph.ops if not isinstance(op, Const)]


@pytest.fixture
def quantised(bench: Any, noise: Callable[..., Any]) -> Callable[..., Graph]:
    """Return NET behind quantise, in a precision, some ops in others."""

    def run(precision: str, **keep: str) -> Graph:
        bench.calibrate(x=noise(4, 3, 8, 8))
        bench.context.precision = Precision[precision.upper()]
        bench.context.keep = {name: Precision[p.upper()] for name, p in keep.items()}
        graph: Graph = bench.passed(NET)
        return graph

    return run


@pytest.mark.parametrize(
    ("precision", "dtype", "bias"),
    [
        ("int8", DType.I8, DType.I32),
        ("int16", DType.I16, DType.I64),
        ("fp16", DType.F16, DType.F32),
        ("fp32", DType.F32, DType.F32),
    ],
)
def test_every_op_is_stored_in_the_precision(
    quantised: Callable[..., Graph], precision: str, dtype: DType, bias: DType
) -> None:
    graph = quantised(precision)
    found = stored(graph)
    assert {found[name] for name in ("r1", "s", "p", "g", "f")} == {dtype}
    assert graph.outputs[0].name == "y"
    assert graph.outputs[0].tensor.dtype is DType.F32
    conv = next(op for op in graph.ops if op.NAME == "conv2d")
    weights = DType.I8 if "int" in precision else dtype
    assert [v.tensor.dtype for v in conv.inputs[1:3]] == [weights, bias]


def test_fp32_converts_nothing(quantised: Callable[..., Graph]) -> None:
    assert not {"quantize", "dequantize", "cast"} & set(kinds(quantised("fp32")))


def test_a_kept_op_reads_and_gives_conversions_that_are_made_once(
    quantised: Callable[..., Graph],
) -> None:
    graph = quantised("int8", c2="int16")
    found = stored(graph)
    assert (found["r1"], found["c2"], found["s"]) == (DType.I8, DType.I16, DType.I8)
    # r1 to int16 for the convolution, its result back for the add; quantize and dequantize outside.
    assert kinds(graph).count("clip") == 2
    assert kinds(graph).count("quantize") == kinds(graph).count("dequantize") == 1


@pytest.mark.parametrize("name", ["c1", "r1"])
def test_a_fused_op_is_found_by_every_name_in_it(
    quantised: Callable[..., Graph], name: str
) -> None:
    graph = quantised("int8", **{name: "fp16"})
    assert stored(graph)["r1"] is DType.F16
    assert {"cast", "quantize"} <= set(kinds(graph))


def test_the_widest_of_the_kept_precisions_wins(quantised: Callable[..., Graph]) -> None:
    graph = quantised("int8", c1="fp32", r1="int16")
    assert stored(graph)["r1"] is DType.F32


def test_only_what_integer_ops_touch_needs_calibration() -> None:
    graph = parse_text(NET)
    made = compile_graph(graph, Options(precision="fp16"))
    assert made.program.header.precision is Precision.FP16
    with pytest.raises(CompileError, match="ranges of %r1, %c2 are unknown"):
        compile_graph(parse_text(NET), Options(precision="fp16", keep={"c2": "int16"}))


def test_auto_is_fp16_with_a_note_when_nothing_says_int8() -> None:
    made = compile_graph(parse_text(NET), Options())
    assert made.program.header.precision is Precision.FP16
    assert "compiled in fp16" in str(made.notes[0])
    data = {"x": np.ones((1, 3, 8, 8), np.float32)}
    quiet = compile_graph(parse_text(NET), Options(calibrate=data))
    assert quiet.program.header.precision is Precision.INT8
    frozen = NET.replace("%c1 = conv2d(%x", "%q = quantize(%x) {scale = 0.1}\n %d = dequantize(%q)"
                         "\n %c1 = conv2d(%d")  # fmt: skip
    with pytest.raises(CompileError, match="no calibration data"):
        compile_graph(parse_text(frozen), Options())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"keep": {"r11": "int16"}}, "no op gives %r11, did you mean %r1"),
        ({"keep": {"c2": "int4"}}, "precisions are int8, int16, fp16, fp32, got 'int4'"),
        ({"precision": "fp64"}, "precisions are auto, int8, int16, fp16, fp32, got 'fp64'"),
        ({"keep": {"w1": "fp16"}}, "no op gives %w1"),
    ],
)
def test_what_is_unknown_is_refused_with_what_is_known(changes: Any, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        compile_graph(parse_text(NET), Options(**changes))


def test_a_cast_is_what_the_precision_says() -> None:
    text = """graph @g(%x: tensor<1x4xf32>) {
      %h = cast(%x) {to = "f16"}
      %y = relu(%h)
      return %y
    }"""
    made = compile_graph(parse_text(text), Options(precision="fp32"))
    x = np.array([[0.1, -2.0, 1e5, 3.0]], np.float32)
    (y,) = made.reference({"x": x}).values()
    assert y.dtype == np.float16
    assert y.tolist() == [[np.float16(0.1), 0.0, np.inf, 3.0]]


def test_int16_has_the_range_of_int8_around_zero() -> None:
    assert wide_quant(Quant.per_tensor(0.5, -128)) == Quant.per_tensor(
        float(np.float32(255 * 0.5 / 32767)), 0
    )
    for low, high in ((-1.0, 3.0), (0.0, 0.1), (-7.0, 0.0)):
        narrow = activation_quant(low, high)
        reach = wide_quant(narrow).scale * 32767
        assert reach >= max(-low, high) * 0.99
        assert reach <= max(-low, high) * 1.02 + narrow.scale


def test_wider_precisions_lose_less(
    quantised: Callable[..., Graph], bench: Any, noise: Callable[..., Any]
) -> None:
    data = noise(4, 3, 8, 8)
    wanted = bench.run(bench.passed(NET, "none"), x=data[:1])
    errors = {}
    for precision in ("int8", "int16", "fp16"):
        got = bench.run(quantised(precision), Rounding.DOUBLE, x=data[:1])
        errors[precision] = float(np.abs(wanted[0] - got[0]).max())
    assert errors["int16"] < errors["int8"] / 2  # the weights are int8 in both
    assert errors["fp16"] < errors["int8"] / 32
