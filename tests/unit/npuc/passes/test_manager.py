"""The pass manager and the passes that bind and infer types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from npuc.diagnostics import CompileError
from npuc.frontend.text import parse_text
from npuc.ir.core import Graph
from npuc.ir.types import TensorType
from npuc.passes import PIPELINE, passes_by_name
from npuc.passes.bind_shapes import BindShapes
from npuc.passes.context import PassContext
from npuc.passes.infer_types import InferTypes
from npuc.passes.level import Level
from npuc.passes.manager import PassManager

DYNAMIC = "graph @g(%x: tensor<?x4xf32>) {\n%y = relu(%x)\n%z = relu(%y)\nreturn %z\n}"


@dataclass(frozen=True)
class Break:
    """Gives a value a wrong type."""

    NAME: ClassVar[str] = "break"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        next(graph.ops).result.type = TensorType((9,))


def bound(**shapes: tuple[int, ...]) -> Graph:
    graph = parse_text(DYNAMIC)
    BindShapes().run(graph, PassContext(shapes=shapes))
    return graph


def error(**shapes: tuple[int, ...]) -> str:
    with pytest.raises(CompileError) as caught:
        bound(**shapes)
    return "; ".join(d.text for d in caught.value.diagnostics)


def test_passes_run_in_order_and_each_is_timed_and_observed() -> None:
    graph, seen = parse_text(DYNAMIC), list[str]()
    manager = PassManager([BindShapes(), InferTypes()])
    context = PassContext(shapes={"x": (2, 4)})
    times = manager.run(graph, context, lambda step, _: seen.append(step.NAME))
    assert [t.name for t in times] == seen == ["bind_shapes", "infer_types"]
    assert all(t.pass_s >= 0 and t.verify_s >= 0 for t in times)


def test_a_pass_that_breaks_the_graph_is_named() -> None:
    graph = parse_text("graph @g(%x: tensor<4xf32>) {\n%y = relu(%x)\nreturn %y\n}")
    with pytest.raises(CompileError, match="2:6: error: after pass break: relu"):
        PassManager([Break()]).run(graph, PassContext())


def test_bound_dims_reach_every_type() -> None:
    assert [v.tensor.dims for op in bound(x=(2, 4)).ops for v in op.results] == [(2, 4), (2, 4)]


def test_shapes_that_do_not_fit_are_told_with_the_option_to_give() -> None:
    assert error() == "input x is tensor<?x4xf32>, which has dynamic dims: add --shape x=1x4"
    assert "--shape names no input y: the inputs are x" in error(y=(1, 4), x=(1, 4))
    assert "--shape x=2x5 does not fit" in error(x=(2, 5))
    assert "--shape x=2x4x1 does not fit" in error(x=(2, 4, 1))
    assert "has more than 2147483647 elements" in error(x=(1 << 30, 4))


def test_the_readers_of_a_wrong_op_are_not_told_too() -> None:
    graph = parse_text(
        "graph @g(%x: tensor<2x4xf32>) {\n%y = flatten(%x) {axis = 2}\n%z = relu(%y)\nreturn %z\n}"
    )
    graph.arguments[0].type = TensorType((2,))
    with pytest.raises(CompileError) as caught:
        InferTypes().run(graph, PassContext())
    assert [d.location.line for d in caught.value.diagnostics] == [2]


def test_every_pass_has_a_name_of_its_own_and_is_found_by_it() -> None:
    names = [p.NAME for p in PIPELINE]
    assert len(set(names)) == len(names)
    assert [p.NAME for p in passes_by_name(" , ".join(names))] == names
    with pytest.raises(ValueError, match="no pass 'bind_shape', did you mean bind_shapes"):
        passes_by_name("bind_shape")
