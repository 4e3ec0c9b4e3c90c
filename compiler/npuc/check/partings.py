"""Where a level parts from the one above it: the first op, its place, the first element.

Where all arithmetic is integer, tensors are compared as they are: the first that differs is of an
op whose operands were equal. Where floats are computed, small differences are right and travel on;
so each op is then judged alone: its reference, on the operands that the device had, must be met
exactly in codes and within the bound in floats. L3 and L4 run the same kernels and must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from npuc.check.bounds import bound_of, has_bound
from npuc.check.compare import Mismatch, first_mismatch
from npuc.check.levels import Levels
from npuc.ir.const import Const
from npuc.ir.core import Array, Op, Value

__all__ = ["Parting", "Partings", "partings_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first op where a level parts from the one above it, in a *batch* counted from 1."""

    level: str
    above: str
    name: str
    op: str
    place: str
    first: Mismatch
    elements: int
    batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Partings:
    """The partings, and of each float result the largest error as a share of its bound."""

    found: tuple[Parting, ...]
    of_bound: Mapping[Value, float]


def partings_of(levels: Levels) -> Partings:
    """Return where L3 parts from L2, and L4 from L3."""
    shares: dict[Value, float] = {}
    if any(has_bound(op) for op in levels.compilation.graph.ops):
        first = _alone(levels, shares)
    else:
        first = _apart(levels.l2, levels.l3, "L3", "L2")
    both = (first, _apart(levels.l3, levels.l4, "L4", "L3"))
    return Partings(found=tuple(p for p in both if p is not None), of_bound=shares)


def _apart(
    expected: Mapping[Value, Array], got: Mapping[Value, Array], level: str, above: str
) -> Parting | None:
    for value, array in got.items():
        found = first_mismatch(expected[value].astype(array.dtype), array)
        if found is not None:
            return _parting(value, found, level, above)
    return None


def _parting(value: Value, found: Mismatch, level: str, above: str) -> Parting:
    op = value.owner
    return Parting(
        level=level,
        above=above,
        name=value.name,
        op="state" if op is None else op.NAME,
        place="" if op is None else str(op.location),
        first=found,
        elements=value.tensor.elements,
    )


def _alone(levels: Levels, shares: dict[Value, float]) -> Parting | None:
    """Compare each op's results with its reference on the device's operands; fill *shares*."""
    first = None
    for op in levels.compilation.graph.ops:
        if isinstance(op, Const):
            continue
        for value, found in _judged(op, levels, shares):
            if found is not None and first is None:
                first = _parting(value, found, "L3", "L2")
    return first


def _judged(
    op: Op, levels: Levels, shares: dict[Value, float]
) -> Iterator[tuple[Value, Mismatch | None]]:
    operands = [None if v is None else _operand(v, levels) for v in op.operands]
    results = op.reference(operands, levels.compilation.rounding)
    for value, exact in zip(op.results, results, strict=True):
        got = levels.l3[value]
        if not has_bound(op):
            with np.errstate(over="ignore"):
                yield value, first_mismatch(exact.astype(got.dtype), got)
            continue
        bound = bound_of(op, operands, exact)
        shares[value], beyond = _share(exact, got, bound)
        yield value, first_mismatch(np.where(beyond, exact, got), got)


def _share(exact: Array, got: Array, bound: Array) -> tuple[float, Array]:
    """Return the largest share of the bound that errors have, and where it is exceeded."""
    with np.errstate(invalid="ignore"):
        same = (got == exact) | (np.isnan(got) & np.isnan(exact))
        # An infinity is what the type makes of a number beyond its largest.
        same |= np.isinf(got) & (np.abs(exact) + bound >= np.finfo(got.dtype).max)
        error = np.where(same, 0.0, np.abs(got.astype(np.float64) - exact))
        share = np.where(same, 0.0, error / bound)
    worst = float(share.max(initial=0.0))
    return worst, ~(share <= 1.0)


def _operand(value: Value, levels: Levels) -> Array:
    if isinstance(value.owner, Const):
        return value.owner.reference([], levels.compilation.rounding)[0]
    array = levels.l3.get(value, levels.l2[value])
    return array.astype(np.float64) if array.dtype.kind == "f" else array
