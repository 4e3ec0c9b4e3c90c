"""Frozen parameters: they move with folds, meet between tied ops, and are never lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.diagnostics import CompileError
from npuc.ir.printer import print_graph
from npuc.ir.types import Quant

FROZEN = """
graph @g(%x: tensor<1x1x2x2xf32>) {
  %q = const dense([[[[127]]], [[[-64]]]]) : tensor<2x1x1x1xi8, q<scale = 0.5, zp = 0>>
  %w = dequantize(%q)
  %gamma = const dense([2.0, -4.0]) : tensor<2xf32>
  %beta = const splat(0.5) : tensor<2xf32>
  %mean = const splat(0.0) : tensor<2xf32>
  %var = const splat(1.0) : tensor<2xf32>
  %c = conv2d(%x, %w)
  %y = batch_norm(%c, %gamma, %beta, %mean, %var) {epsilon = 0.0}
  return %y
}
"""


def test_folding_scales_frozen_weights_and_keeps_their_codes(
    bench: Any, noise: Callable[..., Any]
) -> None:
    data = noise(2, 1, 2, 2)
    bench.calibrate(x=data)
    weights = bench.op(bench.passed(FROZEN), "conv2d").inputs[1]
    assert weights.tensor.quant == Quant((1.0, 2.0), (0, 0), axis=0)
    assert weights.owner.value().ravel().tolist() == [127, 64]


def test_two_frozen_sides_of_a_copy_are_rescaled(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2xf32, q<scale = 0.5, zp = 0>>) {
  %y = flatten(%x) : tensor<1x2xf32, q<scale = 0.25, zp = 3>>
  return %y
}
"""
    graph = bench.passed(text)
    assert bench.ops(graph) == ["quantize", "flatten", "clip", "dequantize"]
    (got,) = bench.run(graph, x=np.array([[1.0, -70.0]], np.float32))
    assert got.tolist() == [[1.0, (-128 - 3) * 0.25]]


def test_an_output_that_is_a_frozen_value_keeps_its_name(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2xf32>) {
  %r = relu(%x)
  %q = quantize(%r) {scale = 0.5}
  %out = dequantize(%q)
  return %out
}
"""
    bench.calibrate(x=np.array([[3.0, -1.0]], np.float32))
    graph = bench.passed(text)
    assert [v.name for v in graph.outputs] == ["out"]
    (got,) = bench.run(graph, x=np.array([[3.0, -1.0]], np.float32))
    assert got.tolist() == [[3.0, 0.0]]


def test_fake_quant_freezes_as_the_pair_that_it_is(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2xf32>) {
  %r = sigmoid(%x)
  BODY
  %y = neg(%z)
  return %y, %z
}
"""
    pair = "%q = quantize(%r) {scale = 0.5, zero_point = 3}\n  %z = dequantize(%q)"
    bench.calibrate(x=np.array([[3.0, -1.0]], np.float32))
    one, other = (
        bench.passed(text.replace("BODY", body), "freeze_fake_quant")
        for body in ("%z = fake_quant(%r) {scale = 0.5, zero_point = 3}", pair)
    )
    assert print_graph(one) == print_graph(other)
    assert "fake" not in print_graph(one)
    assert bench.op(one, "sigmoid").result.tensor.quant == Quant.per_tensor(0.5, 3)


def test_a_pair_between_input_and_output_stays(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2xf32>) {
  %q = quantize(%x) {scale = 0.5}
  %out = dequantize(%q)
  return %out
}
"""
    graph = bench.passed(text)
    assert bench.ops(graph) == ["quantize", "dequantize"]
    (got,) = bench.run(graph, x=np.array([[0.3, 100.0]], np.float32))
    assert got.tolist() == [[0.5, 63.5]]


@pytest.mark.parametrize("seed", range(20))
def test_int8_activations_of_the_same_parameters_fuse_bit_for_bit(seed: int, bench: Any) -> None:
    generator = np.random.default_rng(seed)
    quant = Quant.per_tensor(float(np.float32(generator.uniform(0.01, 0.2))), seed * 12 - 128)
    text = f"""
graph @g(%x: tensor<1x2x4x4xi8, q<scale = 0.1, zp = 7>>) {{
  %w = const dense({generator.integers(-127, 128, (3, 2, 1, 1)).tolist()})
    : tensor<3x2x1x1xi8, q<scale = 0.02, zp = 0>>
  %c = conv2d(%x, %w) : tensor<1x3x4x4xi8, {quant}>
  %y = clip(%c) {{min = -0.7, max = 6.0}} : tensor<1x3x4x4xi8, {quant}>
  return %y
}}
""".replace("\n    :", " :")
    fused = bench.passed(text, "fuse_activation")
    assert bench.ops(fused) == ["conv2d"]
    codes = generator.integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)
    for rounding in Rounding:
        (want,) = bench.run(bench.passed(text, "none"), rounding, x=codes)
        (got,) = bench.run(fused, rounding, x=codes)
        np.testing.assert_array_equal(got, want)


def test_int8_activations_of_other_parameters_rescale_and_stay(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2xi8, q<scale = 0.1, zp = 7>>) {
  %a = add(%x, %x) : tensor<1x2xi8, q<scale = 0.2, zp = 7>>
  %y = relu(%a) : tensor<1x2xi8, q<scale = 0.1, zp = -128>>
  return %y
}
"""
    assert bench.ops(bench.passed(text, "fuse_activation")) == ["add", "relu"]


def test_weights_that_overflow_when_folded_are_refused(bench: Any) -> None:
    text = FROZEN.replace("dense([2.0, -4.0])", "splat(3e38)")
    with pytest.raises(CompileError, match="constant %c_weights"):
        bench.passed(text, "freeze_fake_quant", "fold_batch_norm")


def test_activations_that_overflow_are_refused_at_their_op(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2xf32>) {
  %a = add(%x, %x)
  %y = add(%a, %a)
  return %y
}
"""
    bench.calibrate(x=np.array([[1.5e38, 0.0]], np.float32))
    with pytest.raises(CompileError, match=r"<text>:4:.*%y overflows float32"):
        bench.passed(text, "calibrate")
