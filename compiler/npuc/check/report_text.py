"""``npuc check`` for people: a table of tensors, where levels part, what was fused away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import Console
from rich.table import Table

from npuc.check.compare import Difference
from npuc.check.partings import Parting
from npuc.check.report import Report, Row

__all__ = ["print_report"]

_WIDTH = 400
_MOST_ROWS = 100
_MOST_FUSED = 8
_COLUMNS = (
    ("tensor", "left"),
    ("op", "left"),
    ("line", "right"),
    ("type", "left"),
    ("largest error", "right"),
    ("mean", "right"),
    ("SQNR dB", "right"),
    ("off by 0", "right"),
    ("1", "right"),
    ("more", "right"),
    ("L3", "left"),
    ("L4", "left"),
)


def print_report(report: Report, file: IO[str] | None = None) -> None:
    """Print *report* to *file* (standard output); at most 100 tensors, the last ones."""
    console = Console(file=file, highlight=False, width=_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, side in _COLUMNS:
        table.add_column(title, justify="right" if side == "right" else "left", no_wrap=True)
    alone = any(row.of_bound is not None for row in report.rows)
    for row in _shown(report):
        table.add_row(*_cells(row, alone=alone))
    with console.capture() as capture:
        console.print(table)
        for line in _lines(report):
            console.print(line, markup=False, soft_wrap=True)
    for line in capture.get().splitlines():
        console.file.write(line.rstrip() + "\n")


def _shown(report: Report) -> list[Row]:
    """Return all rows, or those that differ and the last of the others."""
    if len(report.rows) <= _MOST_ROWS:
        return list(report.rows)
    apart = [r for r in report.rows if not all(d is None or d.same for d in (r.l3, r.l4))]
    kept = set(map(id, [*apart[:_MOST_ROWS], *report.rows[-_MOST_ROWS:]][:_MOST_ROWS]))
    return [r for r in report.rows if id(r) in kept]


def _cells(row: Row, *, alone: bool) -> Iterator[str]:
    """Yield a row; *alone* says that ops were judged on the operands that they had."""
    yield from (row.name, row.op, str(row.line), row.type)
    yield from _errors(row.l2)
    if row.of_bound is not None:
        yield f"{row.of_bound:.0%} of bound"
    else:
        yield "exact" if alone and row.l3 is not None else _level(row.l3)
    yield _level(row.l4)


def _errors(found: Difference | None) -> tuple[str, ...]:
    if found is None:
        return ("",) * 6
    counts = found.off or ()
    total = sum(counts) or 1
    shares = tuple(f"{count / total:.1%}" for count in counts) or ("",) * 3
    return (f"{found.largest:.3g}", f"{found.mean:.3g}", f"{found.sqnr_db:.1f}", *shares)


def _level(found: Difference | None) -> str:
    if found is None:
        return ""
    if found.same:
        return "same"
    return f"off by {found.largest:.3g}"


def _lines(report: Report) -> Iterator[str]:
    hidden = len(report.rows) - len(_shown(report))
    if hidden:
        yield f"and {hidden:,} more tensors: --json lists all"
    yield ""
    if report.fused:
        yield f"stored nowhere: {', '.join(_fused(report))}"
    yield from (_parting(p, several=report.batches > 1) for p in report.partings)
    if report.stopped is not None:
        yield f"L4 stopped: {report.stopped}"
    if report.agrees:
        yield from _agreement(report)


def _agreement(report: Report) -> Iterator[str]:
    checked = [row for row in report.rows if row.l4 is not None]
    what = f"{len(checked)} tensors, {sum(row.elements for row in checked):,} elements"
    what += f", in each of {report.batches} batches" if report.batches > 1 else ""
    bounded = [row for row in checked if row.of_bound is not None]
    if not bounded:
        yield f"L2, L3 and L4 agree bit for bit: {what}"
        return
    yield f"L3 and L4 agree bit for bit: {what}"
    worst = max(bounded, key=lambda row: row.of_bound or 0.0)
    yield (
        f"{len(bounded)} float ops, each on the operands it had, are within 4 * K * 2^-24 * "
        f"sum|x*w| of L2 before they are rounded; the most is {worst.of_bound:.0%}, %{worst.name}"
    )


def _fused(report: Report) -> list[str]:
    """Return the fused values, those of one op together."""
    groups: dict[str | None, list[str]] = {}
    for fused in report.fused:
        groups.setdefault(fused.into, []).append(f"%{fused.name}")
    shown = [
        f"{', '.join(names)} (in %{into})" if into else f"{', '.join(names)} (unused)"
        for into, names in list(groups.items())[:_MOST_FUSED]
    ]
    rest = len(groups) - len(shown)
    return [*shown, f"and those in {rest} more ops"] if rest else shown


def _parting(found: Parting, *, several: bool) -> str:
    first = found.first
    batch = f"in batch {found.batch}, " if several else ""
    at = ", ".join(map(str, first.index))
    place = f" ({found.place})" if found.place else ""
    return (
        f"{found.level} parts from {found.above} at {found.op} %{found.name}{place}: "
        f"{batch}element [{at}] is {first.got}, expected {first.expected}; "
        f"{first.count:,} of {found.elements:,} differ"
    )
