"""Make the broadcasting of ``add`` explicit: operands of another shape go through ``expand``.

Invariant: afterwards both operands of every add have its result's shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.core import Graph, Op, Value
from npuc.ops.expand import Expand
from npuc.passes.context import PassContext
from npuc.passes.edit import Names
from npuc.passes.level import Level

__all__ = ["ExplicitBroadcast"]


@dataclass(frozen=True, kw_only=True)
class ExplicitBroadcast:
    """Insert ``expand`` before each add whose operands differ in shape."""

    NAME: ClassVar[str] = "explicit_broadcast"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite every add of *graph*."""
        names = Names(graph)
        for op in graph.ops:
            if op.BROADCASTS:
                op.operands = [_expanded(graph, op, v, names) for v in op.inputs]


def _expanded(graph: Graph, add: Op, value: Value, names: Names) -> Value:
    shape = add.result.tensor.shape
    if value.tensor.shape == shape:
        return value
    expand = Expand(
        [value],
        {"shape": list(shape)},
        result_types=[value.tensor.with_shape(shape)],
        names=[names.fresh(f"{value.name}_wide")],
        location=add.location,
    )
    return graph.insert(expand, before=add).result
