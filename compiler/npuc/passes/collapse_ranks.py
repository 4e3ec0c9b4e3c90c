"""Give transposes of more than four dims a form of at most four, between reshapes.

Dims that stay beside each other in a transpose move as one, and dims of 1 as none. The reshapes
around it then make fewer dims, and a reshape of a reshape is one: shuffles of channels or of
windows, written by reshape, transpose and reshape, fit the device's four dims.

Invariant: only values of more than four dims go; elements keep their row-major order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.core import Graph, Op, Value
from npuc.ops.flatten import Flatten
from npuc.ops.reshape import Reshape
from npuc.ops.squeeze import Squeeze
from npuc.ops.transpose import Transpose
from npuc.ops.unsqueeze import Unsqueeze
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, erase_unused
from npuc.passes.level import Level

__all__ = ["CollapseRanks"]

_MOST_DIMS = 4
_RESHAPES = (Reshape, Flatten, Squeeze, Unsqueeze)


@dataclass(frozen=True, kw_only=True)
class CollapseRanks:
    """Rewrite transposes and reshapes of values that have too many dims."""

    NAME: ClassVar[str] = "collapse_ranks"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite *graph* in place."""
        names = Names(graph)
        for op in graph.ops:
            if isinstance(op, Transpose) and _too_many(op.x):
                _merge(graph, op, names)
        for op in graph.ops:
            if isinstance(op, _RESHAPES) and _too_many(op.x):
                _skip(graph, op)


def _too_many(value: Value) -> bool:
    return value.tensor.rank > _MOST_DIMS and None not in value.tensor.shape


def _merge(graph: Graph, op: Transpose, names: Names) -> None:
    """Put reshape, transpose and reshape in the place of *op*, when few dims are enough."""
    dims = op.x.tensor.dims
    runs = _runs([axis for axis in op.order if dims[axis] > 1], dims)
    if len(runs) > _MOST_DIMS:
        return
    # Samples keep their dim where there is room, also when there is one alone.
    lead = [()] if dims[0] == 1 and op.order[0] == 0 and len(runs) < _MOST_DIMS else []
    source, result = [*lead, *sorted(runs)], [*lead, *runs]
    shape = [math.prod(dims[axis] for axis in run) for run in source]
    x = _reshaped(graph, op, op.x, shape, names.fresh(f"{op.x.name}_merged"))
    if result != source:
        order = [source.index(run) for run in result]
        name = names.fresh(f"{op.result.name}_merged")
        turned = Transpose([x], {"perm": order}, names=[name], location=op.location)
        x = graph.insert(turned, before=op).result
    y = _reshaped(graph, op, x, op.result.tensor.dims, op.result.name)
    y.type = op.result.type
    graph.replace(op.result, y)
    op.erase()


def _runs(order: Sequence[int], dims: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the dims that stay neighbours, in the order of the result; dims of 1 do not count."""
    following = [axis for axis, dim in enumerate(dims) if dim > 1]
    runs: list[tuple[int, ...]] = []
    for axis in order:
        place = following.index(axis)
        if runs and place and runs[-1][-1] == following[place - 1]:
            runs[-1] = (*runs[-1], axis)
        else:
            runs.append((axis,))
    return runs


def _reshaped(graph: Graph, op: Op, x: Value, shape: Sequence[int], name: str) -> Value:
    same = bool(shape) and shape[0] == x.tensor.dims[0] > 0
    # A first dim that is copied, and not stated, lets calibration stack samples.
    stated = [0, *shape[1:]] if same else list(shape)
    made = Reshape([x], {"shape": stated}, names=[name], location=op.location)
    return graph.insert(made, before=op).result


def _skip(graph: Graph, op: Op) -> None:
    """Let *op* reshape what its operand was reshaped from."""
    (x,) = op.inputs
    inner = x.owner
    if not isinstance(inner, _RESHAPES) or x.tensor.quant != inner.inputs[0].tensor.quant:
        return
    y = _reshaped(graph, op, inner.inputs[0], op.result.tensor.dims, op.result.name)
    y.type = op.result.type
    graph.replace(op.result, y)
    op.erase()
    erase_unused(inner)
