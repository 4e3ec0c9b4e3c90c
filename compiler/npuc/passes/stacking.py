"""Which values of a graph can hold many samples at once, one behind the other along axis 0.

Invariant: a graph that stacks gives each sample the numbers that the sample alone would give.
"""

from __future__ import annotations

from collections.abc import Iterable

from npuc.ir.const import Const
from npuc.ir.core import Graph, Op, Value

__all__ = ["stacked_values"]


def stacked_values(graph: Graph) -> frozenset[Value]:
    """Return every activation of *graph*, or nothing when its samples must run one by one.

    They run together when there is no state, every op keeps samples apart, every activation has
    the inputs' batch on axis 0, and weights are constants. Reads of roles are those of
    ``separate_roles``.
    """
    if graph.states:
        return frozenset()
    stacked, parameters = set(graph.arguments), set[Value]()
    for op in graph.ops:
        if isinstance(op, Const):
            continue
        if not op.stacks():
            return frozenset()
        stacked.update(op.activations, op.results)
        parameters.update(_parameters(op))
    batches = {v.tensor.shape[0] if v.tensor.rank else None for v in stacked}
    together = graph.arguments and len(batches) == 1 and not batches & {None, 0}
    fixed = parameters.isdisjoint(stacked) and all(isinstance(v.owner, Const) for v in parameters)
    return frozenset(stacked) if together and fixed else frozenset()


def _parameters(op: Op) -> Iterable[Value]:
    read = set(op.activations)
    return (v for v in op.inputs if v not in read)
