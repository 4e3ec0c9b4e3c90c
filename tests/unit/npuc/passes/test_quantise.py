"""From float graph to int8 graph: accuracy, names, constants, models that are int8 already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.diagnostics import CompileError
from npuc.ir.printer import print_graph
from npuc.ir.types import Quant

NET = """
graph @net(%x: tensor<1x3x12x12xf32>) {
  %w1 = const random(seed = 1, std = 0.3) : tensor<18x3x3x3xf32>
  %b1 = const random(seed = 2, std = 0.2) : tensor<18xf32>
  %w2 = const random(seed = 3, std = 0.3) : tensor<18x1x3x3xf32>
  %w3 = const random(seed = 4, std = 0.2) : tensor<18x18x1x1xf32>
  %w4 = const random(seed = 5, std = 0.2) : tensor<10x18xf32>
  %k = const random(seed = 6) : tensor<18x1x1xf32>
  %c1 = conv2d(%x, %w1, %b1) {pads = [1, 1, 1, 1], strides = [2, 2]}
  %r1 = relu(%c1)
  %c2 = conv2d(%r1, %w2) {pads = [1, 1, 1, 1], group = 18}
  %r2 = clip(%c2) {min = 0.0, max = 6.0}
  %c3 = conv2d(%r2, %w3)
  %s = add(%r1, %c3)
  %r3 = relu(%s)
  %t = add(%r3, %k)
  %p = max_pool2d(%t) {kernel_shape = [2, 2], strides = [2, 2]}
  %g = global_avg_pool(%p)
  %f = flatten(%g)
  %y = dense(%f, %w4)
  return %y, %t
}
"""


def sqnr(want: Any, got: Any) -> float:
    """Return signal to quantisation noise in dB."""
    noise = float(((want - got) ** 2).sum())
    return float(10 * np.log10(float((want**2).sum()) / noise))


@pytest.mark.parametrize("no_fuse", [False, True])
@pytest.mark.parametrize("rounding", Rounding)
def test_a_small_network_keeps_30_db(
    rounding: Rounding, no_fuse: bool, bench: Any, noise: Callable[..., Any]
) -> None:
    data = noise(8, 3, 12, 12)
    bench.calibrate(x=data)
    bench.context.rounding, bench.context.no_fuse = rounding, no_fuse
    quantised = bench.passed(NET)
    plain = bench.passed(NET, "none")
    runs = [
        (bench.run(plain, x=data[i : i + 1]), bench.run(quantised, rounding, x=data[i : i + 1]))
        for i in range(len(data))
    ]
    for index in (0, 1):
        want, got = (np.array([run[side][index] for run in runs]) for side in (0, 1))
        assert sqnr(want, got) > 30


def test_everything_between_the_edges_is_int8(bench: Any, noise: Callable[..., Any]) -> None:
    bench.calibrate(x=noise(1, 3, 12, 12))
    graph = bench.passed(NET)
    assert bench.ops(graph) == [
        "quantize", "conv2d", "conv2d", "conv2d", "add", "max_pool2d", "global_avg_pool",
        "flatten", "dense", "dequantize", "dequantize",
    ]  # fmt: skip
    floats = [v.name for op in graph.ops for v in op.results if v.tensor.dtype is DType.F32]
    assert floats == ["y", "t"]
    assert [v.name for v in graph.outputs] == ["y", "t"]


def test_weights_are_symmetric_per_channel_and_biases_int32(
    bench: Any, noise: Callable[..., Any]
) -> None:
    bench.calibrate(x=noise(1, 3, 12, 12))
    graph = bench.passed(NET)
    first = next(op for op in graph.ops if op.NAME == "conv2d")
    weights, bias = first.inputs[1].tensor, first.inputs[2].tensor
    assert (weights.dtype, bias.dtype) == (DType.I8, DType.I32)
    assert weights.quant is not None
    assert (weights.quant.axis, len(weights.quant.scales)) == (0, 18)
    assert not any(weights.quant.zero_points)


def test_two_runs_give_the_same_text(bench: Any, noise: Callable[..., Any]) -> None:
    data = noise(4, 3, 12, 12)
    bench.calibrate(x=data)
    first = print_graph(bench.passed(NET))
    bench.calibrate(x=data.copy())
    assert print_graph(bench.passed(NET)) == first


INT8 = """
graph @q(%x: tensor<1x3x4x4xi8, q<scale = 0.05, zp = 3>>) {
  %w = const splat(1) : tensor<2x3x1x1xi8, q<scale = 0.5, zp = 0>>
  %c = conv2d(%x, %w) : tensor<1x2x4x4xi8, q<scale = 0.1, zp = -4>>
  %y = relu(%c) : tensor<1x2x4x4xi8, q<scale = 0.1, zp = -4>>
  return %y
}
"""


def test_a_model_that_is_int8_already_needs_no_calibration_and_keeps_its_bits(bench: Any) -> None:
    codes = np.arange(48, dtype=np.int8).reshape(1, 3, 4, 4)
    graph = bench.passed(INT8)
    assert bench.ops(graph) == ["to_layout", "conv2d", "to_layout"]
    (want,), (got,) = bench.run(bench.passed(INT8, "none"), x=codes), bench.run(graph, x=codes)
    np.testing.assert_array_equal(got, want)


def test_a_float_op_left_between_int8_ops_is_named(bench: Any) -> None:
    text = """
graph @q(%x: tensor<1x4xi8, q<scale = 0.05, zp = 3>>) {
  %a = relu(%x) : tensor<1x4xi8, q<scale = 0.1, zp = -4>>
  %d = dequantize(%a)
  %soft = relu(%d)
  %q = quantize(%soft) {scale = 0.1}
  %far = add(%d, %d)
  return %q, %far
}
"""
    with pytest.raises(CompileError, match="%far are unknown"):
        bench.passed(text)


def test_a_float_op_between_int8_ops_runs_in_their_parameters(bench: Any) -> None:
    text = """
graph @q(%x: tensor<1x2xi8, q<scale = 0.5, zp = 0>>) {
  %d = dequantize(%x)
  %soft = relu(%d)
  %q = quantize(%soft) {scale = 0.25, zero_point = -128}
  return %q
}
"""
    graph = bench.passed(text)
    assert bench.ops(graph) == ["to_layout", "relu", "to_layout"]
    (got,) = bench.run(graph, x=np.array([[-3, 10]], np.int8))
    assert got.tolist() == [[-128, -128 + 20]]


def test_weights_that_are_no_constants_are_all_named_at_once(
    bench: Any, noise: Callable[..., Any]
) -> None:
    text = """
graph @g(%x: tensor<1x4xf32>, %w: tensor<4x4xf32>) {
  %a = dense(%x, %w)
  %b = dense(%a, %w)
  return %b
}
"""
    bench.calibrate(x=noise(1, 4), w=noise(4, 4))
    with pytest.raises(CompileError) as caught:
        bench.passed(text)
    assert len(caught.value.diagnostics) == 2
    assert "dense: %w must be a constant" in str(caught.value)


def test_a_stored_int8_weight_keeps_its_codes(bench: Any, noise: Callable[..., Any]) -> None:
    text = """
graph @g(%x: tensor<1x2xf32>) {
  %q = const dense([[127, -3], [5, -128]]) : tensor<2x2xi8, QUANT>
  %w = dequantize(%q)
  %y = dense(%x, %w)
  return %y
}
"""
    text = text.replace("QUANT", "q<axis = 0, scale = [0.1, 0.3], zp = [0, 0]>")
    bench.calibrate(x=noise(3, 2))
    dense = bench.op(bench.passed(text), "dense")
    weights = dense.inputs[1]
    assert weights.owner.value().tolist() == [[127, -3], [5, -128]]
    assert weights.tensor.quant == Quant((0.1, 0.3), (0, 0), axis=0)


def test_a_bias_that_does_not_fit_is_noted_at_its_op(bench: Any) -> None:
    """C07, from the text on: the channel lives."""
    text = """
graph @g(%x: tensor<1x1xf32>) {
  %w = const splat(9.96e-08) : tensor<1x1xf32>
  %b = const splat(5.0) : tensor<1xf32>
  %y = dense(%x, %w, %b)
  return %y
}
"""
    bench.calibrate(x=np.array([[127.5]], np.float32))
    graph = bench.passed(text)
    (got,) = bench.run(graph, x=np.array([[127.5]], np.float32))
    assert got[0, 0] == pytest.approx(5.0, abs=0.02)
    (note, *_) = bench.context.notes
    assert note.severity == "warning"
    assert (note.location.line, "raised" in note.text) == (5, True)
