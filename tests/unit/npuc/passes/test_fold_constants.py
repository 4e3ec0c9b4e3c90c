"""What depends on no input becomes a constant; broadcasts become explicit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuc.ir.verifier import verify
from npuc.passes.context import PassContext
from npuc.passes.fold_constants import FoldConstants

CHAIN = """
graph @g(%x: tensor<1x2xf32>) {
  %a = const dense([[16777216.0, 1.0]]) : tensor<1x2xf32>
  %one = const splat(1.0) : tensor<1x2xf32>
  %minus = const dense([[-16777216.0, 0.0]]) : tensor<1x2xf32>
  %b = add(%a, %one)
  %c = add(%b, %minus)
  %y = add(%x, %c)
  return %y
}
"""


def constants(graph: Any) -> dict[str, Any]:
    return {op.result.name: op.value() for op in graph.ops if op.NAME == "const"}


def test_a_chain_is_rounded_once(bench: Any) -> None:
    """2^24 + 1 is no float32: rounding between the two adds would lose the 1."""
    graph = bench.passed(CHAIN, "fold_constants")
    assert {n: v.tolist() for n, v in constants(graph).items()} == {"c": [[1.0, 2.0]]}
    assert bench.ops(graph) == ["add"]


def test_a_folded_value_that_is_also_returned_keeps_its_name(bench: Any) -> None:
    graph = bench.passed(CHAIN.replace("return %y", "return %y, %b"), "fold_constants")
    assert sorted(constants(graph)) == ["b", "c"]
    assert graph.outputs[1].name == "b"


def test_results_above_the_limit_stay(bench: Any) -> None:
    graph = bench.passed(CHAIN, "none")
    FoldConstants(limit=1).run(graph, PassContext())
    verify(graph)
    assert bench.ops(graph) == ["add", "add", "add"]


def test_a_split_constant_folds_into_its_used_parts(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x1xf32>) {
  %k = const dense([[1.0, 2.0]]) : tensor<1x2xf32>
  %a, %b = split(%k) {axis = 1, num_outputs = 2}
  %y = add(%x, %b)
  return %y
}
"""
    graph = bench.passed(text, "fold_constants")
    assert {n: v.tolist() for n, v in constants(graph).items()} == {"b": [[2.0]]}


def test_broadcast_operands_are_expanded_on_both_sides(
    bench: Any, noise: Callable[..., Any]
) -> None:
    text = """
graph @g(%a: tensor<2x3x1x4xf32>, %b: tensor<5x1xf32>) {
  %y = add(%a, %b) {clamp = [0.0, 1.0]}
  return %y
}
"""
    graph = bench.passed(text, "explicit_broadcast")
    assert bench.ops(graph) == ["expand", "expand", "add"]
    assert {v.tensor.shape for v in bench.op(graph, "add").inputs} == {(2, 3, 5, 4)}
    inputs = {"a": noise(2, 3, 1, 4), "b": noise(5, 1)}
    (want,), (got,) = bench.run(bench.passed(text, "none"), **inputs), bench.run(graph, **inputs)
    np.testing.assert_array_equal(got, want)


def test_an_expanded_constant_is_folded(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2x1x2xf32>) {
  %k = const dense([[[1.0]], [[2.0]]]) : tensor<2x1x1xf32>
  %y = add(%x, %k)
  return %y
}
"""
    graph = bench.passed(text, "explicit_broadcast", "fold_constants")
    (value,) = constants(graph).values()
    assert value.tolist() == [[[[1.0, 1.0]], [[2.0, 2.0]]]]
    assert bench.ops(graph) == ["add"]


def test_an_op_that_nobody_reads_goes(bench: Any) -> None:
    text = """
graph @g(%x: tensor<1x2xf32>) {
  %dead = relu(%x)
  %deader = add(%dead, %x)
  %y = relu(%x)
  return %y
}
"""
    assert bench.ops(bench.passed(text, "fold_constants")) == ["relu"]
