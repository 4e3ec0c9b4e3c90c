"""lower: the quantised graph becomes npu tasks on buffers, one or a few whole-op tasks an op.

Invariant: afterwards the graph holds only ``npu.*`` ops and the constants that they read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.const import Const
from npuc.ir.core import Graph, Op, State, Value
from npuc.ir.state import initial_of
from npuc.npu.builder import Builder
from npuc.npu.tasks import Copy
from npuc.passes.context import PassContext
from npuc.passes.level import Level

__all__ = ["Lower", "builder_of", "lowered"]


def lowered(graph: Graph, context: PassContext) -> Graph:
    """Return the L3 graph of an L2 graph, which is left as it is.

    Raises CompileError at an op that is not quantised.
    """
    return builder_of(graph, context).graph


def builder_of(graph: Graph, context: PassContext) -> Builder:
    """Return what built the L3 graph of an L2 graph: it knows each value's buffer."""
    made = Graph(graph.name, attributes=graph.attributes, location=graph.location)
    builder = Builder(made, context.target, context.rounding)
    for argument in graph.inputs:
        builder.make(argument, role="input")
    states = [builder.keep(s.name, s.argument, initial_of(s).value()) for s in graph.states]
    made.outputs = [builder.make(value, role="output") for value in graph.returned]
    for op in graph.ops:
        if not isinstance(op, Const):
            _lower(op, builder)
    for state, kept, update in zip(graph.states, states, graph.updates, strict=True):
        _update(made, state, builder.read(update), kept)
    return builder


def _update(graph: Graph, state: State, update: Value, kept: Value) -> None:
    """Append the copy of *update* into the state's buffer *kept*.

    It stands behind every reader of the state; the hazards of DDR order it so.
    """
    named = {"name": state.name, "kind": "update"}
    graph.append(Copy([update, kept], named, location=state.location))


def _lower(op: Op, builder: Builder) -> None:
    # Only a graph that quantise has not seen gets here with an op that has no tasks.
    try:
        op.lower(builder)
    except (NotImplementedError, ValueError) as error:
        text = "lower takes the quantised graph, as the pass legalise leaves it"
        raise op.error(text) from error


@dataclass(frozen=True)
class Lower:
    """Replace L2 ops by npu tasks."""

    NAME: ClassVar[str] = "lower"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite *graph* in place."""
        graph.take(lowered(graph, context))
