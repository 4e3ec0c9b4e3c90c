"""infer_types: every result gets the type that its op infers from its operands.

Invariant: quantisations and layouts that the graph states are kept; buffers are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.core import Graph, Op, Value
from npuc.ir.merge import complete, inferred_types
from npuc.passes.context import PassContext
from npuc.passes.level import Level

__all__ = ["InferTypes", "infer_types"]


@dataclass(frozen=True, slots=True)
class InferTypes:
    """Infer all result types anew."""

    NAME: ClassVar[str] = "infer_types"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Set the types; raises CompileError with every op whose operands disagree."""
        infer_types(graph)


def infer_types(graph: Graph) -> None:
    """Set the type of every result; one mistake is reported once, not at its readers too."""
    wrong: set[Value] = set()
    found: list[Diagnostic] = []
    for op in graph.ops:
        if not wrong.isdisjoint(op.inputs):
            wrong.update(op.results)
            continue
        try:
            _infer(op)
        except ValueError as error:
            found.append(Diagnostic(op.location, f"{op.NAME}: {error}"))
            wrong.update(op.results)
    if found:
        raise CompileError(found)


def _infer(op: Op) -> None:
    inferred = inferred_types(op)
    if inferred is None:
        return
    for value, want in zip(op.results, inferred, strict=True):
        value.type = complete(value.type, want)
