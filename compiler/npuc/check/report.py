"""What ``npuc check`` found, as data: one row a tensor, where levels part, what was fused away."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from npuc.check.compare import Difference, compare, source_names, united
from npuc.check.levels import Levels, values_of
from npuc.check.partings import Parting, partings_of
from npuc.ir.core import Graph, Value
from npuc.ops.quantised import is_quantised

__all__ = ["Fused", "Report", "Row", "report_of", "tensors_json", "united_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One tensor of the quantised graph; a level that says nothing about it is None.

    ``source`` names the value of the source graph that it stands for. ``of_bound`` is the largest
    error of the op at L3, given its operands there, as a share of its bound; None for codes.
    """

    name: str
    op: str
    line: int
    type: str
    elements: int
    source: str | None
    l2: Difference | None
    l3: Difference | None
    l4: Difference | None
    of_bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """A value of the source graph that is stored nowhere; ``into`` is the one that holds its op."""

    name: str
    op: str
    line: int
    into: str | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that was found with one batch of inputs, or the worst of several."""

    rows: tuple[Row, ...]
    fused: tuple[Fused, ...]
    partings: tuple[Parting, ...]
    stopped: str | None
    has_float: bool
    batches: int = 1

    @property
    def agrees(self) -> bool:
        """Whether L2, L3 and L4 are the same."""
        return not self.partings and self.stopped is None


def report_of(levels: Levels) -> Report:
    """Return what the numbers of all levels say."""
    graph = levels.compilation.graph
    names = source_names(graph, levels.l1, levels.made.context.stored)
    partings = partings_of(levels)
    rows = [
        replace(_row(value, levels, names.get(value)), of_bound=partings.of_bound.get(value))
        for value in values_of(graph)
    ]
    return Report(
        rows=tuple(rows),
        fused=tuple(_fused(levels.graph, set(names.values()))),
        partings=partings.found,
        stopped=levels.stopped,
        has_float=bool(levels.l1),
    )


def united_reports(reports: Sequence[Report]) -> Report:
    """Return the worst of the reports on one batch after the other; partings where they began."""
    first = reports[0]
    partings: dict[str, Parting] = {}
    for number, report in enumerate(reports, start=1):
        for parting in report.partings:
            partings.setdefault(parting.level, replace(parting, batch=number))
    return replace(
        first,
        rows=tuple(map(_united_row, zip(*(report.rows for report in reports), strict=True))),
        partings=tuple(partings.values()),
        stopped=next((r.stopped for r in reports if r.stopped is not None), None),
        batches=len(reports),
    )


def _united_row(rows: Sequence[Row]) -> Row:
    """Return one tensor's worst row; a level that a batch lacks is said of those that have it."""
    shares = [row.of_bound for row in rows if row.of_bound is not None]
    return replace(
        rows[0],
        l2=united([row.l2 for row in rows]),
        l3=united([row.l3 for row in rows]),
        l4=united([row.l4 for row in rows]),
        of_bound=max(shares, default=None),
    )


def _row(value: Value, levels: Levels, source: str | None) -> Row:
    tensor, l2 = value.tensor, levels.l2[value]
    l3, l4 = levels.l3.get(value), levels.l4.get(value)
    return Row(
        name=value.name,
        op=_op(value, levels),
        line=levels.graph.location.line if value.owner is None else value.owner.location.line,
        type=tensor.dtype.text,
        elements=tensor.elements,
        source=source,
        l2=None if source is None else compare(tensor, levels.l1[source], l2),
        l3=None if l3 is None else compare(tensor, l2, l3),
        l4=None if l3 is None or l4 is None else compare(tensor, l3, l4),
    )


def _op(value: Value, levels: Levels) -> str:
    if value.owner is not None:
        return value.owner.NAME
    return "input" if value in levels.compilation.graph.inputs else "state"


def _fused(graph: Graph, stored: set[str]) -> Iterator[Fused]:
    """Yield the source's computed real values that no quantised value stands for."""
    for value in values_of(graph)[len(graph.arguments) :]:
        if is_quantised(value) or value.name in stored or value.owner is None:
            continue
        yield Fused(
            name=value.name,
            op=value.owner.NAME,
            line=value.owner.location.line,
            into=_first_stored(value, stored),
        )


def _first_stored(value: Value, stored: set[str]) -> str | None:
    """Return the nearest value behind *value* that is stored, or None."""
    waiting, seen = [value], {value}
    for current in waiting:
        for user in current.users:
            for result in user.results:
                if result.name in stored:
                    return result.name
                if result not in seen:
                    seen.add(result)
                    waiting.append(result)
    return None


def tensors_json(report: Report) -> dict[str, Any]:
    """Return the report's keys of ``npuc check --json``; infinite ratios are None."""
    return {
        "batches": report.batches,
        "agree": report.agrees,
        "stopped": report.stopped,
        "partings": [asdict(parting) for parting in report.partings],
        "tensors": [_row_json(row) for row in report.rows],
        "fused": [asdict(fused) for fused in report.fused],
    }


def _row_json(row: Row) -> dict[str, Any]:
    levels = {"L2": row.l2, "L3": row.l3, "L4": row.l4}
    plain = {k: v for k, v in asdict(row).items() if k not in ("l2", "l3", "l4")}
    return {**plain, "levels": {name: _difference_json(d) for name, d in levels.items()}}


def _difference_json(found: Difference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    sqnr = found.sqnr_db if math.isfinite(found.sqnr_db) else None
    off = None if found.off is None else dict(zip(("0", "1", "more"), found.off, strict=True))
    return {"largest": found.largest, "mean": found.mean, "sqnr_db": sqnr, "off": off}
