"""Residual adds inside convolutions: the bits of the two ops, in every rounding mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.enums import Rounding
from npuc.ir.types import Quant

TEXT = """
graph @g(%x: tensor<1x3x4x4xi8, {x}>, %r: tensor<1x5x4x4xi8, {r}>) {{
  %w = const dense({w}) : tensor<5x3x1x1xi8, q<axis = 0, scale = [{sw}], zp = [0, 0, 0, 0, 0]>>
  %b = const dense({b}) : tensor<5xi32>
  %c = conv2d(%x, %w, %b) {{{inner}}} : tensor<1x5x4x4xi8, {c}>
  %y = add({order}) {{{outer}}} : tensor<1x5x4x4xi8, {y}>
  return %y
}}
"""
CLAMPS = ("", "clamp = [0.0, inf]", "clamp = [-0.5, 6.0]")
POINTS = st.integers(-128, 127)
SCALES = st.floats(0.015625, 0.3125, width=32)


@given(data=st.data(), seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_fused_and_unfused_bits_are_equal(data: Any, seed: int, bench_once: Any) -> None:
    generator = np.random.default_rng(seed)
    w = generator.integers(-127, 128, (5, 3, 1, 1)).tolist()
    quants = {n: str(Quant.per_tensor(data.draw(SCALES), data.draw(POINTS))) for n in "xrcy"}
    text = TEXT.format(
        **quants,
        w=w,
        b=generator.integers(-5000, 5000, 5).tolist(),
        sw=", ".join(str(s) for s in generator.uniform(0.001, 0.05, 5).astype(np.float32)),
        inner=data.draw(st.sampled_from(CLAMPS)),
        outer=data.draw(st.sampled_from(CLAMPS)),
        order=data.draw(st.sampled_from(["%c, %r", "%r, %c"])),
    )
    plain = bench_once.passed(text, "none")
    fused = bench_once.passed(text, "fuse_residual")
    assert bench_once.ops(fused) == ["conv2d"]
    second = "add(%r, %c)" in text
    inputs = {
        "x": generator.integers(-128, 128, (1, 3, 4, 4)).astype(np.int8),
        "r": generator.integers(-128, 128, (1, 5, 4, 4)).astype(np.int8),
    }
    for rounding in Rounding:
        if second and rounding is Rounding.EVEN:
            continue
        (want,), (got,) = (bench_once.run(g, rounding, **inputs) for g in (plain, fused))
        np.testing.assert_array_equal(got, want)


BASE = """
graph @g(%x: tensor<1x2x4x4xi8, q<scale = 0.1, zp = 0>>) {
  %w = const splat(3) : tensor<2x2x1x1xi8, q<scale = 0.1, zp = 0>>
  %d = const splat(3) : tensor<2x1x1x1xi8, q<scale = 0.1, zp = 0>>
  BODY
}
"""
TYPE = "tensor<1x2x4x4xi8, q<scale = 0.1, zp = 0>>"


@pytest.mark.parametrize(
    "lines",
    [
        [f"%c = conv2d(%x, %w) : {TYPE}", f"%y = add(%c, %x) : {TYPE}", "return %y, %c"],
        [f"%c = conv2d(%x, %w) : {TYPE}", f"%y = add(%c, %c) : {TYPE}", "return %y"],
        [
            f"%c = conv2d(%x, %w) : {TYPE}", f"%a = relu(%c) : {TYPE}",
            f"%s = add(%c, %x) : {TYPE}", f"%y = add(%s, %a) : {TYPE}", "return %y",
        ],
        [f"%c = conv2d(%x, %d) {{group = 2}} : {TYPE}", f"%y = add(%c, %x) : {TYPE}", "return %y"],
    ],
    ids=["graph output", "both operands", "another reader", "depthwise"],
)  # fmt: skip
def test_nothing_is_fused_across(lines: list[str], bench: Any) -> None:
    graph = bench.passed(BASE.replace("BODY", "\n  ".join(lines)), "fuse_residual")
    assert all(op.operands[3:] in ([], [None]) for op in graph.ops if op.NAME == "conv2d")
    assert "add" in bench.ops(graph)


def test_of_two_convolutions_the_later_one_takes_the_sum(bench: Any) -> None:
    lines = [
        f"%a = conv2d(%x, %w) : {TYPE}", f"%b = conv2d(%x, %w) : {TYPE}",
        f"%y = add(%b, %a) : {TYPE}", "return %y",
    ]  # fmt: skip
    graph = bench.passed(BASE.replace("BODY", "\n  ".join(lines)), "fuse_residual")
    assert bench.ops(graph) == ["conv2d", "conv2d"]
    *_, fused = graph.ops
    assert fused.inputs[-1].name == "a"


@pytest.mark.parametrize(("order", "ops"), [("%a, %x", ["conv2d"]), ("%x, %a", ["conv2d", "add"])])
def test_rounding_even_fuses_the_first_operand_only(order: str, ops: list[str], bench: Any) -> None:
    bench.context.rounding = Rounding.EVEN
    lines = [f"%a = conv2d(%x, %w) : {TYPE}", f"%y = add({order}) : {TYPE}", "return %y"]
    graph = bench.passed(BASE.replace("BODY", "\n  ".join(lines)), "fuse_residual")
    assert bench.ops(graph) == ops


def test_no_fuse_leaves_the_add(bench: Any) -> None:
    bench.context.no_fuse = True
    lines = [f"%a = conv2d(%x, %w) : {TYPE}", f"%y = add(%a, %x) : {TYPE}", "return %y"]
    graph = bench.passed(BASE.replace("BODY", "\n  ".join(lines)), "fuse_residual")
    assert bench.ops(graph) == ["conv2d", "add"]
