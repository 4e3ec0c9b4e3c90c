"""Samples that run together give the ranges that they give one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npuc.frontend.text import parse_text
from npuc.ir.core import Graph
from npuc.ir.types import Quant
from npuc.passes import observe as observing
from npuc.passes.stacking import stacked_values

NETWORK = """graph @g(%x: tensor<2x3x6x6xf32>) {
  %w = const random(seed = 1) : tensor<4x3x3x3xf32>
  %k = const random(seed = 2) : tensor<1x4x1x1xf32>
  %c = conv2d(%x, %w) {pads = [1, 1, 1, 1]}
  %r = relu(%c)
  %a = add(%r, %k)
  %j = concat(%a, %r) {axis = 1}
  %p = max_pool2d(%j) {kernel_shape = [2, 2], strides = [2, 2]}
  %f = flatten(%p)
  %s = softmax(%f)
  return %s
}"""

ONE_BY_ONE = {
    "a reshape states the batch": "%y = reshape(%x) {shape = [1, 8]}",
    "the softmax runs over the batch": "%y = softmax(%x) {axis = 0}",
    "the samples are joined": "%y = concat(%x, %x) {axis = 0}",
    "the batch is flattened": "%y = flatten(%x) {axis = 0}",
    "a reshape moves the batch": "%y = reshape(%x) {shape = [4, 2]}",
    "the batch is repeated": "%y = expand(%x) {shape = [3, 2, 4]}",
    "an input without a batch": "%y = add(%x, %x)",
}


def ranges(graph: Graph) -> dict[str, Quant | None]:
    values = [*graph.arguments, *(v for op in graph.ops for v in op.results)]
    return {v.name: v.tensor.quant for v in values}


@pytest.mark.parametrize("percentile", [100.0, 95.0])
def test_ranges_do_not_depend_on_how_many_samples_run_at_once(
    bench: Any,
    noise: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    percentile: float,
) -> None:
    bench.calibrate(percentile=percentile, x=noise(2 * 7, 3, 6, 6))
    found = []
    for elements in (1, 3 * 2 * 8 * 36, 1 << 20):  # one sample, three, all
        monkeypatch.setattr(observing, "_BLOCK_ELEMENTS", elements)
        found.append(ranges(bench.passed(NETWORK)))
    assert found[0] == found[1] == found[2]


def test_a_network_runs_its_samples_together(bench: Any) -> None:
    graph = bench.passed(NETWORK, "explicit_broadcast", "fold_constants")
    assert {v.name for v in stacked_values(graph)} >= set("xcrajpfs")


@pytest.mark.parametrize("why", ONE_BY_ONE)
def test_samples_run_one_by_one_where(why: str) -> None:
    shape = "4" if "without" in why else "2x4"
    rank = f"tensor<1x4xf32>, %z: tensor<{shape}xf32>" if "without" in why else "tensor<2x4xf32>"
    text = f"graph @g(%x: {rank}) {{\n  {ONE_BY_ONE[why]}\n  return %y\n}}"
    assert stacked_values(parse_text(text)) == frozenset()
