"""Activations go into the op before them, unless something else sees what lies between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

HEAD = (
    "graph @g(%x: tensor<1x3x5x5xf32>) {\n"
    "  %w = const random(seed = 4) : tensor<4x3x3x3xf32>\n"
    "  %c = conv2d(%x, %w)\n"
)


@pytest.mark.parametrize(
    ("body", "clamp"),
    [
        ("%y = relu(%c)", (0.0, np.inf)),
        ("%y = clip(%c) {min = -1.0, max = 2.0}", (-1.0, 2.0)),
        ("%y = clip(%c) {max = 2.0}", (-np.inf, 2.0)),
        ("%a = clip(%c) {min = -3.0, max = 6.0}\n %y = relu(%a)", (0.0, 6.0)),
        ("%a = relu(%c)\n %y = clip(%a) {min = -9.0, max = -1.0}", (-1.0, -1.0)),
        ("%a = clip(%c) {min = 6.0, max = 0.5}\n %y = relu(%a)", (0.5, 0.5)),
    ],
)
def test_fused_bounds_give_the_same_numbers(
    body: str, clamp: tuple[float, float], bench: Any, noise: Callable[..., Any]
) -> None:
    text = HEAD + f"  {body}\n  return %y\n}}"
    fused = bench.passed(text, "fuse_activation")
    assert bench.ops(fused) == ["conv2d"]
    assert tuple(bench.op(fused, "conv2d").attributes["clamp"]) == clamp
    assert fused.outputs[0].name == "y"
    x = noise(1, 3, 5, 5)
    (want,), (got,) = bench.run(bench.passed(text, "none"), x=x), bench.run(fused, x=x)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "body",
    [
        "%y = relu(%c)\n  return %y, %c",
        "%a = relu(%c)\n  %y = add(%a, %c)\n  return %y",
        "%p = max_pool2d(%c) {kernel_shape = [1, 1]}\n  %y = relu(%p)\n  return %y",
    ],
    ids=["graph output", "another reader", "an op between"],
)
def test_nothing_is_fused_across(body: str, bench: Any, noise: Callable[..., Any]) -> None:
    text = HEAD + f"  {body}\n}}"
    kept = bench.passed(text, "fuse_activation")
    assert "relu" in bench.ops(kept)
    x = noise(1, 3, 5, 5)
    pairs = zip(bench.run(bench.passed(text, "none"), x=x), bench.run(kept, x=x), strict=True)
    for want, got in pairs:
        np.testing.assert_array_equal(got, want)


def test_a_frozen_value_between_is_a_rounding_that_must_stay(bench: Any) -> None:
    text = HEAD + (
        "  %q = quantize(%c) {scale = 0.1, zero_point = 3}\n  %d = dequantize(%q)\n"
        "  %y = relu(%d)\n  return %y\n}"
    )
    kept = bench.passed(text, "freeze_fake_quant", "fuse_activation")
    assert bench.ops(kept) == ["conv2d", "relu"]


def test_no_fuse_leaves_everything(bench: Any) -> None:
    bench.context.no_fuse = True
    text = HEAD + "  %y = relu(%c)\n  return %y\n}"
    assert bench.ops(bench.passed(text, "fuse_activation")) == ["conv2d", "relu"]


def test_dense_and_add_take_activations_too(bench: Any) -> None:
    text = (
        "graph @g(%x: tensor<2x3xf32>) {\n"
        "  %w = const random(seed = 4) : tensor<3x3xf32>\n"
        "  %d = dense(%x, %w)\n  %a = relu(%d)\n  %s = add(%a, %x)\n  %y = relu(%s)\n"
        "  return %y\n}"
    )
    assert bench.ops(bench.passed(text, "fuse_activation")) == ["dense", "add"]
