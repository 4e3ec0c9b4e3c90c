"""Fold constants: an op that reads only constants becomes a constant, and what nobody reads goes.

Invariant: a chain of folded ops is evaluated in float64 and rounded to float32 once, at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuabi.enums import Rounding
from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.rewriter import erase_dead
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, add_constant, real_constant
from npuc.passes.level import Level

__all__ = ["FoldConstants"]


@dataclass(frozen=True, kw_only=True)
class FoldConstants:
    """Evaluate what does not depend on the graph's inputs.

    An op whose results would hold more than *limit* elements stays.
    """

    NAME: ClassVar[str] = "fold_constants"
    LEVEL: ClassVar[Level] = Level.GRAPH
    limit: int = 1 << 24

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fold every foldable op of *graph*."""
        names = Names(graph)
        known: dict[Value, Array] = {}
        folded: list[Op] = []
        for op in graph.ops:
            if self._foldable(op, known):
                known |= zip(op.results, _evaluate(op, known, context.rounding), strict=True)
                folded.append(op)
                context.decide(op.results[0].name, "computed while compiling, from constants")
        kept = set(folded)
        for op in folded:
            for value in op.results:
                if graph.is_output(value) or any(user not in kept for user in value.users):
                    _materialise(graph, op, value, known[value], names)
        erase_dead(graph)

    def _foldable(self, op: Op, known: dict[Value, Array]) -> bool:
        if not op.inputs or not all(v in known or isinstance(v.owner, Const) for v in op.inputs):
            return False
        sizes = [v.tensor.elements for v in op.results if None not in v.tensor.shape]
        return len(sizes) == len(op.results) and sum(sizes) <= self.limit


def _evaluate(op: Op, known: dict[Value, Array], rounding: Rounding) -> tuple[Array, ...]:
    arrays = [None if v is None else _read(v, known) for v in op.operands]
    return op.reference(arrays, rounding)


def _read(value: Value, known: dict[Value, Array]) -> Array | None:
    return known[value] if value in known else real_constant(value)


def _materialise(graph: Graph, op: Op, value: Value, array: Array, names: Names) -> None:
    kept = add_constant(
        graph,
        array,
        value.tensor,
        name=value.name,
        before=op,
        location=op.location,
    )
    graph.replace(value, kept)
