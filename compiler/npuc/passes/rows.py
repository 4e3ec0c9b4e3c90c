"""Which activations of rank 3 and 4 lie in rows (nchw) rather than in bricks.

Matrix products and norms along the last dim read rows. Values that an op keeps in one layout
(``Op.ROWS``) form a group, and a group lies in rows when at least as many of its uses want rows
as can take bricks only.

Invariant: values of rank 0 to 2, graph inputs and graph outputs are in no group.
"""

from __future__ import annotations

from npuc.ir.const import Const
from npuc.ir.core import Graph, Op, Value
from npuc.passes.tied import Groups

__all__ = ["rows_values"]

_LEAST_RANK = 3


def rows_values(graph: Graph) -> set[Value]:
    """Return the values of *graph* that lie in rows."""
    groups, wish = Groups(), dict[Value, int]()
    ops = [op for op in graph.ops if not isinstance(op, Const)]
    for op in ops:
        values = _grouped(graph, op)
        if op.ROWS:
            for value in values[1:]:
                groups.unite(values[0], value)
    wanted = set[Value]()
    for op in ops:
        for value in [] if op.RELAYS else _grouped(graph, op):
            vote = 1 if op.wants_rows() else 0 if op.ROWS else -1
            wish[value] = wish.get(value, 0) + vote
            if vote > 0:
                wanted.add(value)
    votes, asked = dict[Value, int](), set[Value]()
    for value, vote in wish.items():
        votes[groups.root(value)] = votes.get(groups.root(value), 0) + vote
    asked = {groups.root(v) for v in wanted}
    return {v for v in wish if groups.root(v) in asked and votes[groups.root(v)] >= 0}


def _grouped(graph: Graph, op: Op) -> list[Value]:
    values = dict.fromkeys((*op.activations, *op.results))
    return [v for v in values if v.tensor.rank >= _LEAST_RANK and not graph.is_output(v)
            and v not in graph.arguments]  # fmt: skip
