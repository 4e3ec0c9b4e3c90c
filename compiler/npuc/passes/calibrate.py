"""Give float activations their int8 parameters: frozen, fixed by an op, tied, or calibrated.

Only what integer ops read or make needs them; int16 derives its own from them.

The float graph runs on each calibration sample; a value's range is the smallest and largest
number seen, or with a percentile the smallest and largest of each sample's percentiles: a
percentile of 100 is the plain range. Ranges are rounded to float32, hold 0, and are shared
by a group of tied values.

Invariant: parameters that a type carries already are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from npuc.diagnostics import CompileError
from npuc.ir.core import Graph, Value
from npuc.passes.context import PassContext
from npuc.passes.edit import separate_roles
from npuc.passes.legalise import refuse_unsupported
from npuc.passes.level import Level
from npuc.passes.observe import Range, observe
from npuc.passes.parameters import activation_quant
from npuc.passes.precision import computes_codes
from npuc.passes.tied import Groups, float_activations, groups_of

__all__ = ["Calibrate"]

_NAMES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Put quantisation parameters on the float types of activations."""

    NAME: ClassVar[str] = "calibrate"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Annotate *graph*; CompileError when ranges are needed and no data is given."""
        separate_roles(graph)
        coded = partial(computes_codes, context=context)
        groups = groups_of(graph, coded)
        values = list(float_activations(graph, coded))
        free = [v for v in values if groups.given(v) is None]
        ranges: dict[Value, Range] = {}
        if free:
            _require_data(graph, context, free)
            refuse_unsupported(graph, context.target)
            ranges = observe(graph, free, context)
            _give_ranges(groups, free, ranges)
        _explain(values, groups, ranges, context)
        for value in values:
            quant = value.tensor.quant or groups.given(value)
            value.type = value.tensor.with_quant(value.tensor.dtype, quant)


def _explain(
    values: Sequence[Value], groups: Groups, ranges: Mapping[Value, Range], context: PassContext
) -> None:
    """Note where the parameters of each value come from."""
    members: dict[Value, list[Value]] = {}
    for value in values:
        members.setdefault(groups.root(value), []).append(value)
    for value in values:
        others = [
            f"%{v.name}" for v in members[groups.root(value)][:_NAMES_SHOWN] if v is not value
        ]
        shared = bool(others) and value.tensor.quant is None
        more = f"; shared with {', '.join(others)}" if shared else ""
        context.origins[value.name] = _origin(value, ranges.get(value)) + more


def _origin(value: Value, found: Range | None) -> str:
    if found is not None:
        return f"calibrated, the values went from {found.low:.6g} to {found.high:.6g}"
    if value.tensor.quant is not None:
        return "frozen in the source"
    if value.owner is not None and value.owner.FIXED:
        return f"those of every {value.owner.NAME}"
    return "those of a neighbour that has some"


def _give_ranges(groups: Groups, free: Iterable[Value], ranges: dict[Value, Range]) -> None:
    shared: dict[Value, Range] = {}
    for value in free:
        root = groups.root(value)
        shared[root] = shared.get(root, Range()).united(ranges[value])
    for root, found in shared.items():
        groups.give(root, activation_quant(found.low, found.high))


def _require_data(graph: Graph, context: PassContext, free: Sequence[Value]) -> None:
    if context.calibration is not None:
        return
    names = ", ".join(f"%{v.name}" for v in free[:_NAMES_SHOWN])
    more = f" and {len(free) - _NAMES_SHOWN} more" if len(free) > _NAMES_SHOWN else ""
    raise CompileError.at(
        graph.location,
        f"graph @{graph.name} has no calibration data, so the ranges of {names}{more} are unknown:"
        ' write `attributes {calibration = "file.npz"}` after the arguments, or give --calibrate'
        " FILE.npz (--calibrate random only tries things out); --precision fp16 needs none",
    )
