"""Which float values must be stored with the same parameters, and which parameters are given.

Pools, reshapes, splits and copies move codes and do not rescale them, so that their results have
their operand's parameters (LiteRT quantisation specification). A concat whose pieces are all free
shares one range with them and becomes a copy as well.

Invariant: the values of a group have at most one set of given parameters; where a tied op's two
sides are given different ones they stay apart, and ``quantise`` rescales between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from npuabi.enums import DType
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import Quant
from npuc.ops.concat import Concat
from npuc.ops.dequantize import Dequantize
from npuc.ops.quantised import is_quantised
from npuc.ops.quantize import Quantize

__all__ = ["Groups", "every", "float_activations", "groups_of"]

Chosen = Callable[[Op], bool]
"""Says which ops are meant."""


class Groups:
    """Disjoint sets of values; each set has given parameters or none."""

    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}
        self._given: dict[Value, Quant] = {}

    def root(self, value: Value) -> Value:
        """Return the value that stands for the group of *value*."""
        while (parent := self._parent.get(value, value)) is not value:
            self._parent[value] = self._parent.get(parent, parent)
            value = parent
        return value

    def given(self, value: Value) -> Quant | None:
        """Return the parameters given to the group of *value*."""
        return self._given.get(self.root(value))

    def give(self, value: Value, quant: Quant) -> None:
        """Give parameters to the group of *value*."""
        self._given[self.root(value)] = quant

    def unite(self, left: Value, right: Value) -> None:
        """Make one group of two, unless they are given different parameters."""
        first, second = self.root(left), self.root(right)
        quants = [q for q in (self.given(first), self.given(second)) if q is not None]
        if first is second or len(set(quants)) > 1:
            return
        self._parent[second] = first
        if quants:
            self._given[first] = quants[0]


def every(op: Op) -> bool:
    """Choose any op."""
    return True


def float_activations(graph: Graph, coded: Chosen = every) -> Iterator[Value]:
    """Yield, once each and in order, the float values that *coded* ops compute with or produce."""
    seen: set[Value] = set()
    for op in graph.ops:
        if not op.COMPUTES or not coded(op):
            continue
        for value in (*op.activations, *op.results):
            if value not in seen and not is_quantised(value):
                seen.add(value)
                yield value


def groups_of(graph: Graph, coded: Chosen = every) -> Groups:
    """Return the groups of *graph*'s float activations; *coded* ops are computed on codes."""
    groups = Groups()
    for value in float_activations(graph, coded):
        quant = _given(value)
        if quant is not None:
            groups.give(value, quant)
    for state, update in zip(graph.states, graph.updates, strict=True):
        groups.unite(state.argument, update)
    ops = [op for op in graph.ops if op.COMPUTES and coded(op)]
    for op in ops:
        if op.TIED or op.TIED_OPERANDS:
            for result in op.results:
                groups.unite(op.inputs[0], result)
    for op in ops:
        if isinstance(op, Concat) or op.TIED_OPERANDS:
            _unite_pieces(groups, op)
    return groups


def _unite_pieces(groups: Groups, op: Op) -> None:
    values = [op.result, *op.activations]
    if any(groups.given(v) is not None for v in values):
        return
    for piece in op.activations:
        groups.unite(op.result, piece)


def _given(value: Value) -> Quant | None:
    """Frozen parameters, those of the op, or those of a quantize or dequantize beside the value."""
    if value.tensor.quant is not None:
        return value.tensor.quant
    if value.owner is not None and DType.I8 in value.owner.FIXED:
        return value.owner.FIXED[DType.I8]
    beside = [user.result for user in value.users if isinstance(user, Quantize)]
    if isinstance(value.owner, Dequantize):
        beside = value.owner.inputs
    quants = [v.tensor.quant for v in beside if v.tensor.dtype is DType.I8]
    return next((q for q in quants if q is not None and q.axis is None), None)
