"""The small instances that every op yields from ``examples()``: their operands, graphs of one."""

from __future__ import annotations

from npuc.ir.const import Const, Random
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import TensorType

__all__ = ["floats", "graph_of"]


def floats(name: str, *shape: int | None) -> Value:
    """Return a float value of *shape*."""
    return Value(name, TensorType(shape))


def graph_of(*examples: Op) -> Graph:
    """Return a graph of *examples*: activations are inputs, parameters seeded constants.

    The constants are positive, so that they may be variances too. Names of several examples begin
    with their numbers.
    """
    graph = Graph("example")
    for number, example in enumerate(examples):
        mark = f"e{number}_" if len(examples) > 1 else ""
        made = {value: _operand(graph, example, value, mark) for value in example.inputs}
        operands = [None if value is None else made[value] for value in example.operands]
        names = [f"{mark}{v.name or f'y{n}'}" for n, v in enumerate(example.results)]
        types = [value.type for value in example.results]
        op = type(example)(operands, example.attributes, result_types=types, names=names)
        graph.outputs += graph.append(op).results
    return graph


def _operand(graph: Graph, example: Op, value: Value, mark: str) -> Value:
    name = f"{mark}{value.name}"
    if value in example.activations:
        graph.arguments.append(Value(name, value.type))
        return graph.arguments[-1]
    seed = example.inputs.index(value)
    return graph.append(Const(Random(seed=seed, mean=1.0, std=0.1), value.tensor, name=name)).result
