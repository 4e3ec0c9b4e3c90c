"""The small instances that every op yields from ``examples()``: their operands, graphs of one."""

from __future__ import annotations

from npuc.ir.const import Const, Random
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import TensorType

__all__ = ["floats", "graph_of"]


def floats(name: str, *shape: int | None) -> Value:
    """Return a float value of *shape*."""
    return Value(name, TensorType(shape))


def graph_of(example: Op) -> Graph:
    """Return a graph of the one op: activations are inputs, parameters seeded constants.

    The constants are positive, so that they may be variances too.
    """
    graph = Graph("example", list(dict.fromkeys(example.activations)))
    known: dict[Value, Value] = {v: v for v in graph.arguments}
    for seed, value in enumerate(example.inputs):
        if value not in known:
            made = Const(Random(seed=seed, mean=1.0, std=0.1), value.tensor, name=value.name)
            known[value] = graph.append(made).result
    names = [v.name or f"y{n or ''}" for n, v in enumerate(example.results)]
    example.operands = [None if v is None else known[v] for v in example.operands]
    for value, name in zip(example.results, names, strict=True):
        value.name = name
    graph.append(example)
    graph.outputs = list(example.results)
    return graph
