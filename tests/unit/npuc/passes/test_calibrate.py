"""Parameters of activations: calibrated, frozen, fixed and tied; and refused calibration data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc.diagnostics import CompileError
from npuc.ir.core import Graph
from npuc.ir.types import Quant
from npuc.passes.parameters import activation_quant


def quants(graph: Graph) -> dict[str, Quant | None]:
    """Return the parameters of every value by name."""
    values = [*graph.arguments, *(v for op in graph.ops for v in op.results)]
    return {v.name: v.tensor.quant for v in values}


def test_ranges_are_the_extremes_over_all_samples(bench: Any) -> None:
    text = "graph @g(%x: tensor<1x2xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    bench.calibrate(x=np.array([[-1.0, 3.0], [-2.0, 1.0]], np.float32))
    found = quants(bench.passed(text, "calibrate"))
    assert found == {"x": activation_quant(-2.0, 3.0), "y": activation_quant(0.0, 3.0)}


def test_a_percentile_drops_the_tails_of_each_sample(bench: Any) -> None:
    text = "graph @g(%x: tensor<1x1001xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    ramp = np.linspace(0.0, 100.0, 1001, dtype=np.float32)[None]
    bench.calibrate(percentile=99.0, x=ramp)
    assert quants(bench.passed(text, "calibrate"))["y"] == activation_quant(0.0, 99.0)
    bench.calibrate(percentile=100.0, x=ramp)
    assert quants(bench.passed(text, "calibrate"))["y"] == activation_quant(0.0, 100.0)


def test_one_array_for_one_input_may_have_any_name(bench: Any) -> None:
    text = "graph @g(%x: tensor<1x2xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    bench.calibrate(arr_0=np.array([[-1.0, 3.0]], np.float32))
    assert quants(bench.passed(text, "calibrate"))["x"] == activation_quant(-1.0, 3.0)


def test_a_batch_is_one_sample(bench: Any) -> None:
    text = "graph @g(%x: tensor<2x1xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    bench.calibrate(x=np.array([[1.0], [2.0], [3.0], [4.0]], np.float32))
    assert quants(bench.passed(text, "calibrate"))["y"] == activation_quant(0.0, 4.0)


def test_tied_ops_share_their_operands_parameters(bench: Any, noise: Callable[..., Any]) -> None:
    text = (
        "graph @g(%x: tensor<1x4x4x4xf32>) {\n"
        "  %m = max_pool2d(%x) {kernel_shape = [2, 2], strides = [2, 2]}\n"
        "  %a = avg_pool2d(%m) {kernel_shape = [1, 1]}\n"
        "  %h, %t = split(%a) {axis = 1, split = [1, 3]}\n"
        "  %i = identity(%t)\n  %f = flatten(%i)\n  %e = global_avg_pool(%h)\n"
        "  %s = softmax(%f)\n  return %s, %e\n}"
    )
    bench.calibrate(x=noise(3, 4, 4, 4))
    found = quants(bench.passed(text, "calibrate"))
    assert len({found[name] for name in "xmahtife"}) == 1
    assert found["s"] == Quant.per_tensor(1 / 256, -128)


def test_free_pieces_of_a_concat_share_one_range(bench: Any) -> None:
    text = (
        "graph @g(%a: tensor<1x2xf32>, %b: tensor<1x2xf32>) {\n"
        "  %r = relu(%a)\n  %f = flatten(%b)\n"
        "  %y = concat(%r, %f) {axis = 1}\n  return %y\n}"
    )
    bench.calibrate(a=np.array([[1.0, 2.0]], np.float32), b=np.array([[-5.0, 0.5]], np.float32))
    found = quants(bench.passed(text, "calibrate"))
    assert found["a"] == activation_quant(0.0, 2.0)
    assert {found[n] for n in "rfby"} == {activation_quant(-5.0, 2.0)}


def test_a_fixed_piece_of_a_concat_leaves_the_others_their_ranges(bench: Any) -> None:
    text = (
        "graph @g(%a: tensor<1x2xf32>) {\n  %s = softmax(%a)\n"
        "  %y = concat(%a, %s) {axis = 1}\n  return %y\n}"
    )
    data = np.array([[-5.0, 2.0]], np.float32)
    bench.calibrate(a=data)
    graph = bench.passed(text)
    assert {op.NAME for op in graph.ops} == {"quantize", "softmax", "concat", "dequantize"}
    (got,) = bench.run(graph, a=data)
    np.testing.assert_allclose(got, [[-5.0, 2.0, 0.0009, 0.999]], atol=0.03)


def test_frozen_parameters_stay_and_spread_to_tied_values(bench: Any) -> None:
    text = (
        "graph @g(%x: tensor<1x2xf32>) {\n"
        "  %q = quantize(%x) {scale = 0.25, zero_point = 7}\n  %d = dequantize(%q)\n"
        "  %f = flatten(%d)\n  %y = relu(%f)\n  return %y\n}"
    )
    bench.calibrate(x=np.array([[1.0, 2.0]], np.float32))
    graph = bench.passed(text, "freeze_fake_quant", "calibrate")
    found = quants(graph)
    assert bench.ops(graph) == ["flatten", "relu"]
    assert found["x"] == found["f"] == Quant.per_tensor(0.25, 7)
    assert found["y"] == activation_quant(0.0, 2.0)


def test_a_quantize_with_another_reader_stays(bench: Any) -> None:
    text = (
        "graph @g(%x: tensor<1x2xf32>) {\n"
        "  %q = quantize(%x) {scale = 0.25, zero_point = 7}\n  %d = dequantize(%q)\n"
        "  %y = relu(%d)\n  return %y, %q\n}"
    )
    assert "quantize" in bench.ops(bench.passed(text, "freeze_fake_quant"))


def test_no_calibration_shows_the_line_to_add(bench: Any) -> None:
    text = "graph @g(%x: tensor<1x2xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    with pytest.raises(CompileError) as caught:
        bench.passed(text, "calibrate")
    shown = str(caught.value)
    assert shown.startswith("<text>:1:")
    for part in ('attributes {calibration = "file.npz"}', "--calibrate FILE.npz", "random"):
        assert part in shown


def test_no_calibration_is_needed_where_every_value_is_frozen(bench: Any) -> None:
    text = (
        "graph @g(%x: tensor<1x2xf32>) {\n"
        "  %q = quantize(%x) {scale = 0.25}\n  %d = dequantize(%q)\n  %r = relu(%d)\n"
        "  %p = quantize(%r) {scale = 0.5, zero_point = -128}\n  %y = dequantize(%p)\n"
        "  return %y\n}"
    )
    graph = bench.passed(text)
    (got,) = bench.run(graph, x=np.array([[-1.0, 2.6]], np.float32))
    assert got.tolist() == [[0.0, 2.5]]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "no array for input 'x'"),
        ({"x": np.zeros((1, 2), np.float32), "z": np.zeros(1)}, "'z' is no input of the graph"),
        ({"x": np.zeros((1, 3), np.float32)}, "expected Nx2"),
        ({"x": np.zeros((0, 2), np.float32)}, "expected Nx2"),
        ({"x": np.zeros((1, 2), np.int32)}, "is int32, expected f32"),
        ({"x": np.array([[np.nan, 0.0]], np.float32)}, "holds NaN or infinity"),
    ],
)
def test_bad_calibration_data_is_refused(data: dict[str, Any], text: str, bench: Any) -> None:
    graph = "graph @g(%x: tensor<1x2xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    bench.calibrate(**data)
    with pytest.raises(CompileError, match=text):
        bench.passed(graph, "calibrate")


def test_a_value_that_is_always_zero_gets_a_harmless_scale(bench: Any) -> None:
    text = "graph @g(%x: tensor<1x2xf32>) {\n  %y = relu(%x)\n  return %y\n}"
    bench.calibrate(x=np.zeros((1, 2), np.float32))
    graph = bench.passed(text)
    (got,) = bench.run(graph, x=np.zeros((1, 2), np.float32))
    assert got.tolist() == [[0.0, 0.0]]
