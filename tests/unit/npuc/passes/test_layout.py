"""Layouts: NCHW at the interfaces, narrow images plain, bricks elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuabi.enums import Layout

HEAD = """
graph @g(%x: tensor<1x3x4x4xf32>) {
  %w = const random(seed = 4) : tensor<4x3x1x1xf32>
  %d = const random(seed = 4) : tensor<3x1x1x1xf32>
"""


def layouts(graph: Any) -> dict[str, Layout | None]:
    values = [*graph.arguments, *(v for op in graph.ops for v in op.results)]
    return {v.name: v.tensor.layout for v in values}


@pytest.mark.parametrize(
    ("body", "layout"),
    [
        ("%c = conv2d(%x, %w)\n  %y = relu(%c)\n  return %y", Layout.NHWC),
        ("%y = conv2d(%x, %d) {group = 3}\n  return %y", Layout.NCHW16C),
        ("%y = relu(%x)\n  return %y", Layout.NCHW16C),
        ("%c = conv2d(%x, %w)\n  %y = relu(%x)\n  return %y, %c", Layout.NCHW16C),
    ],
)
def test_a_narrow_input_is_plain_only_for_ungrouped_convolutions(
    body: str, layout: Layout, bench: Any, noise: Callable[..., Any]
) -> None:
    bench.calibrate(x=noise(1, 3, 4, 4))
    found = layouts(bench.passed(f"{HEAD}  {body}\n}}"))
    assert found["x_q"] is layout
    assert (found["x"], found["y"]) == (Layout.NCHW, Layout.NCHW)


def test_an_input_of_16_channels_is_stored_in_bricks(bench: Any, noise: Callable[..., Any]) -> None:
    text = """
graph @g(%x: tensor<1x16x4x4xf32>) {
  %w = const random(seed = 4) : tensor<4x16x1x1xf32>
  %y = conv2d(%x, %w)
  return %y
}
"""
    bench.calibrate(x=noise(1, 16, 4, 4))
    found = layouts(bench.passed(text))
    assert found["x_q"] is Layout.NCHW16C
    assert found["w_q"] is None


def test_integer_interfaces_are_converted_and_keep_their_names(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x3x2x2xi8, q<scale = 0.1, zp = 0>>) {
  %w = const splat(3) : tensor<2x3x1x1xi8, q<scale = 0.1, zp = 0>>
  %y = conv2d(%x, %w) : tensor<1x2x2x2xi8, q<scale = 0.1, zp = 0>>
  return %y
}
"""
    graph = bench.passed(text)
    assert bench.ops(graph) == ["to_layout", "conv2d", "to_layout"]
    assert list(layouts(graph).values()) == [
        Layout.NCHW, Layout.NHWC, None, Layout.NCHW16C, Layout.NCHW,
    ]  # fmt: skip
    assert graph.outputs[0].name == "y"
    codes = np.arange(12, dtype=np.int8).reshape(1, 3, 2, 2)
    (want,), (got,) = bench.run(bench.passed(text, "none"), x=codes), bench.run(graph, x=codes)
    np.testing.assert_array_equal(got, want)


def test_a_constant_that_is_added_is_an_activation(bench: Any, noise: Callable[..., Any]) -> None:
    """One constant, read as weights and as a summand, is stored by both rules."""
    text = """
graph @g(%x: tensor<1x3x1x1xf32>) {
  %w = const random(seed = 4) : tensor<1x3x1x1xf32>
  %c = conv2d(%x, %w)
  %s = add(%x, %w)
  return %c, %s
}
"""
    data = noise(4, 3, 1, 1)
    bench.calibrate(x=data)
    graph = bench.passed(text)
    want = bench.run(bench.passed(text, "none"), x=data[:1])
    got = bench.run(graph, x=data[:1])
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(a, b, atol=0.05)
    assert bench.op(graph, "add").inputs[1].tensor.layout is Layout.NCHW16C
    assert bench.op(graph, "conv2d").inputs[1].tensor.layout is None
