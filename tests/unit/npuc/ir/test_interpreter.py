"""The interpreter: right values in the right order, and no array longer than needed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.diagnostics import CompileError
from npuc.frontend.text import parse_text
from npuc.ir.core import Array, Graph, Value
from npuc.ir.interpreter import evaluate

TEXT = """graph @g(%x: tensor<1x4xf32>, %z: tensor<1x4xf32>) {
  %c = const dense([[1.0, 2.0, 3.0, 4.0]]) : tensor<1x4xf32>
  %a = add(%x, %c)
  %b = relu(%a)
  %y = add(%b, %z)
  return %y, %a
}
"""
X = np.array([[-2, -2, -2, -2]], np.float32)
Z = np.array([[10, 20, 30, 40]], np.float32)


@pytest.fixture
def graph() -> Graph:
    return parse_text(TEXT)


def error(graph: Graph, **inputs: Array) -> str:
    with pytest.raises(CompileError) as caught:
        evaluate(graph, inputs, Rounding.DOUBLE)
    return str(caught.value)


def test_outputs_come_by_name_in_graph_order(graph: Graph) -> None:
    found = evaluate(graph, {"z": Z, "x": X}, Rounding.DOUBLE)
    assert {name: array.tolist() for name, array in found.items()} == {
        "y": [[10, 20, 31, 42]],
        "a": [[-1, 0, 1, 2]],
    }
    assert list(found) == ["y", "a"]


def test_every_value_is_observed_in_order(graph: Graph) -> None:
    seen: list[str] = []
    evaluate(graph, {"x": X, "z": Z}, Rounding.DOUBLE, lambda value, _: seen.append(value.name))
    assert seen == ["x", "z", "c", "a", "b", "y"]


def test_a_value_is_freed_after_its_last_reader() -> None:
    lines = [f"%v{i + 1} = add(%v{i}, %v{i})" for i in range(20)]
    made = parse_text("\n".join(["graph @g(%v0: tensor<4xf32>) {", *lines, "return %v20", "}"]))
    alive: list[weakref.ref[Array]] = []
    most = 0

    def observe(_: Value, array: Array) -> None:
        nonlocal most
        alive.append(weakref.ref(array))
        gc.collect()
        most = max(most, sum(ref() is not None for ref in alive))

    evaluate(made, {"v0": np.ones(4, np.float32)}, Rounding.DOUBLE, observe)
    assert most <= 3


def test_inputs_that_do_not_fit_are_told_with_both_sides(graph: Graph) -> None:
    assert "missing input z: the graph takes x, z" in error(graph, x=X)
    assert "unknown input w" in error(graph, x=X, z=Z, w=Z)
    assert "input x is tensor<1x4xf32>, got float32 of shape (4,)" in error(graph, x=X[0], z=Z)
    assert "got int64 of shape (1, 4)" in error(graph, x=X.astype(np.int64), z=Z)


def test_a_dynamic_dim_must_be_bound_first() -> None:
    made = parse_text("graph @g(%x: tensor<?x4xf32>) {\n%y = relu(%x)\nreturn %y\n}")
    assert "input x has a dynamic dim: bind it with --shape" in error(made, x=X)


def test_an_empty_tensor_gives_an_empty_result() -> None:
    """C30."""
    made = parse_text("graph @g(%x: tensor<1x0x32xf32>) {\n%y = relu(%x)\nreturn %y\n}")
    found = evaluate(made, {"x": np.zeros((1, 0, 32))}, Rounding.DOUBLE)
    assert found["y"].shape == (1, 0, 32)
