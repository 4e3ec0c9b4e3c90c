"""Batch norm: folded where nothing else sees the convolution, else a depthwise convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc.diagnostics import CompileError

NORM = """
  %g = const random(seed = 1, mean = 1.0, std = 0.3) : tensor<4xf32>
  %b = const random(seed = 2) : tensor<4xf32>
  %m = const random(seed = 3) : tensor<4xf32>
  %v = const dense([0.5, 1.0, 2.0, 0.01]) : tensor<4xf32>
  %w = const random(seed = 4) : tensor<4x3x3x3xf32>
  %c = conv2d(%x, %w) {pads = [1, 1, 1, 1]}
"""
HEAD = "graph @g(%x: tensor<1x3x5x5xf32>) {" + NORM
BN = "batch_norm(%c, %g, %b, %m, %v)"

# C06: the graphs whose batch norm must stay where it is.
GUARDED = {
    "another reader": f"  %n = {BN}\n  %r = relu(%c)\n  %y = add(%n, %r)\n  return %y\n}}",
    "relu between": "  %r = relu(%c)\n  %y = batch_norm(%r, %g, %b, %m, %v)\n  return %y\n}",
    "a residual": (
        "  %s = conv2d(%x, %w, %b, %c) {pads = [1, 1, 1, 1]}\n"
        "  %y = batch_norm(%s, %g, %b, %m, %v)\n  return %y\n}"
    ),
    "graph output": f"  %y = {BN}\n  return %y, %c\n}}",
}


def test_fold_keeps_the_numbers_and_removes_the_op(bench: Any, noise: Callable[..., Any]) -> None:
    text = HEAD + f"  %y = {BN}\n  return %y\n}}"
    x = noise(1, 3, 5, 5)
    folded = bench.passed(text, "fold_batch_norm")
    assert bench.ops(folded) == ["conv2d"]
    (want,), (got,) = bench.run(bench.passed(text, "none"), x=x), bench.run(folded, x=x)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


@pytest.mark.parametrize("guard", GUARDED)
def test_nothing_is_folded_across(guard: str, bench: Any, noise: Callable[..., Any]) -> None:
    text = HEAD + GUARDED[guard]
    x = noise(1, 3, 5, 5)
    plain = bench.passed(text, "none")
    kept = bench.passed(text, "fold_batch_norm", "fuse_activation")
    assert "batch_norm" in bench.ops(kept)
    for want, got in zip(bench.run(plain, x=x), bench.run(kept, x=x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("guard", GUARDED)
def test_what_is_not_folded_becomes_a_depthwise_convolution(
    guard: str, bench: Any, noise: Callable[..., Any]
) -> None:
    text = HEAD + GUARDED[guard]
    x = noise(1, 3, 5, 5)
    lowered = bench.passed(text, "fold_batch_norm", "fuse_activation", "lower_batch_norm")
    assert "batch_norm" not in bench.ops(lowered)
    pairs = zip(bench.run(bench.passed(text, "none"), x=x), bench.run(lowered, x=x), strict=True)
    for want, got in pairs:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=4e-6)


def test_weights_shared_by_two_convolutions_are_folded_once_each(
    bench: Any, noise: Callable[..., Any]
) -> None:
    """C14: never gamma1 * gamma2."""
    text = HEAD + (
        f"  %n1 = {BN}\n"
        "  %c2 = conv2d(%x, %w) {pads = [1, 1, 1, 1]}\n"
        "  %n2 = batch_norm(%c2, %v, %m, %b, %g)\n"
        "  return %n1, %n2\n}"
    )
    x = noise(1, 3, 5, 5)
    folded = bench.passed(text, "fold_batch_norm")
    assert bench.ops(folded) == ["conv2d", "conv2d"]
    pairs = zip(bench.run(bench.passed(text, "none"), x=x), bench.run(folded, x=x), strict=True)
    for want, got in pairs:
        np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


@pytest.mark.parametrize("shape", ["2x4", "2x4x3"])
def test_batch_norm_of_lower_rank_passes_through_rank_4(
    shape: str, bench: Any, noise: Callable[..., Any]
) -> None:
    body = NORM[: NORM.index("  %w")]
    text = (
        f"graph @g(%x: tensor<{shape}xf32>) {{{body}"
        "  %y = batch_norm(%x, %g, %b, %m, %v)\n  return %y\n}"
    )
    x = noise(*map(int, shape.split("x")))
    lowered = bench.passed(text, "lower_batch_norm")
    assert bench.ops(lowered) == ["reshape", "conv2d", "reshape"]
    assert lowered.outputs[0].name == "y"
    (want,), (got,) = bench.run(bench.passed(text, "none"), x=x), bench.run(lowered, x=x)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


def test_dense_is_folded_too(bench: Any, noise: Callable[..., Any]) -> None:
    body = NORM[: NORM.index("  %w")]
    text = (
        f"graph @g(%x: tensor<2x6xf32>) {{{body}"
        "  %w = const random(seed = 9) : tensor<4x6xf32>\n"
        "  %d = dense(%x, %w, %b)\n  %y = batch_norm(%d, %g, %b, %m, %v)\n  return %y\n}"
    )
    x = noise(2, 6)
    folded = bench.passed(text, "fold_batch_norm")
    assert bench.ops(folded) == ["dense"]
    (want,), (got,) = bench.run(bench.passed(text, "none"), x=x), bench.run(folded, x=x)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


@pytest.mark.parametrize("shape", ["2x4x3", "1x4x4x6", "1x4x2x5"])
def test_a_dense_whose_outputs_are_not_the_channels_stays(
    shape: str, bench: Any, noise: Callable[..., Any]
) -> None:
    """The channels are the second dim, dense makes the last: also when they are as many."""
    dims = tuple(map(int, shape.split("x")))
    body = NORM[: NORM.index("  %w")]
    text = (
        f"graph @g(%x: tensor<{shape}xf32>) {{{body}"
        f"  %w = const random(seed = 9) : tensor<{dims[-2]}x{dims[-1]}xf32>\n"
        "  %d = dense(%x, %w)\n  %y = batch_norm(%d, %g, %b, %m, %v)\n  return %y\n}"
    )
    x = noise(*dims)
    kept = bench.passed(text, "fold_batch_norm", "lower_batch_norm")
    assert "conv2d" in bench.ops(kept)
    (want,), (got,) = bench.run(bench.passed(text, "none"), x=x), bench.run(kept, x=x)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


def test_a_variance_below_zero_is_refused_at_its_op(bench: Any) -> None:
    text = HEAD.replace("0.01", "-0.01") + f"  %y = {BN}\n  return %y\n}}"
    with pytest.raises(CompileError, match=r"8:\d+: error: batch_norm: variance \+ epsilon"):
        bench.passed(text, "fold_batch_norm")


def test_operand_order_survives(bench: Any, noise: Callable[..., Any]) -> None:
    """C43: concat([a, bn(b), c]) keeps its order."""
    text = HEAD + (
        f"  %n = {BN}\n  %a = relu(%x)\n  %y = concat(%a, %n, %x) {{axis = 1}}\n  return %y\n}}"
    )
    x = noise(1, 3, 5, 5)
    folded = bench.passed(text, "fold_batch_norm", "fuse_activation")
    assert [v.name for v in bench.op(folded, "concat").inputs] == ["a", "n", "x"]
    (want,), (got,) = bench.run(bench.passed(text, "none"), x=x), bench.run(folded, x=x)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)
