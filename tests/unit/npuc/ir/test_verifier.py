"""The verifier: every broken rule of a graph is caught."""

from __future__ import annotations

import pytest

from npuc.diagnostics import CompileError
from npuc.frontend.text import parse_text
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import TensorType
from npuc.ir.verifier import verify

TEXT = """graph @g(%x: tensor<1x4xf32>) {
  %a = relu(%x)
  %b = identity(%a)
  %y = add(%a, %b)
  return %y
}
"""


@pytest.fixture
def graph() -> Graph:
    return parse_text(TEXT)


def ops(graph: Graph) -> list[Op]:
    return list(graph.ops)


def findings(graph: Graph) -> str:
    with pytest.raises(CompileError) as caught:
        verify(graph)
    return "; ".join(d.text for d in caught.value.diagnostics)


def test_a_parsed_graph_verifies(graph: Graph) -> None:
    verify(graph)


def test_a_use_before_the_definition_is_caught(graph: Graph) -> None:
    first, second, _ = ops(graph)
    graph.remove(first)
    graph.insert(first, before=second.next)
    assert "identity: %a is used before its definition" in findings(graph)


def test_a_value_of_another_graph_is_caught(graph: Graph) -> None:
    first, *_ = ops(graph)
    first.operands = [Value("z", TensorType((1, 4)))]
    assert "relu: %z is used before its definition" in findings(graph)


def test_wrong_users_are_caught(graph: Graph) -> None:
    first, second, _ = ops(graph)
    first.result.users[second] += 1
    assert "the users of %a are not kept right" in findings(graph)


def test_a_wrong_producer_is_caught(graph: Graph) -> None:
    first, second, _ = ops(graph)
    first.result.owner = second
    assert "%a names another op as its producer" in findings(graph)


def test_one_name_for_two_values_is_caught(graph: Graph) -> None:
    first, second, _ = ops(graph)
    second.result.name = first.result.name
    assert "the name %a is given to two values" in findings(graph)


def test_a_type_that_inference_denies_is_caught(graph: Graph) -> None:
    *_, last = ops(graph)
    last.result.type = TensorType((1, 5))
    assert "1x5" in findings(graph)


def test_a_missing_operand_is_caught(graph: Graph) -> None:
    *_, last = ops(graph)
    last.operands = [last.operands[0]]
    assert "add lacks its operand" in findings(graph)


def test_missing_and_unknown_outputs_are_caught(graph: Graph) -> None:
    graph.outputs = []
    assert findings(graph) == "the graph has no outputs"
    graph.outputs = [Value("z", TensorType((1,)))]
    assert findings(graph) == "the output %z is not defined"


def test_all_findings_come_in_one_error_with_their_lines(graph: Graph) -> None:
    first, _, last = ops(graph)
    first.result.type = TensorType((1, 5))
    last.result.name = "x"
    with pytest.raises(CompileError) as caught:
        verify(graph)
    assert {d.location.line for d in caught.value.diagnostics} >= {2, 4}
