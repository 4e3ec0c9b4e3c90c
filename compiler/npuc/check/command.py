"""``npuc check``: run inputs at four levels, print what differs, say which ops lose most."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from npuabi.progress import Progress, progress_bar, silent
from npuc.check.inputs import Chosen, choose_inputs, without_images
from npuc.check.levels import Compiled, Levels, Runner, compiled, float_graph
from npuc.check.rank import Loss, Mixed, losses, mixed
from npuc.check.report import Report, report_of, tensors_json, united_reports
from npuc.check.report_text import print_report
from npuc.driver import Options
from npuc.frontend.source import load_source

__all__ = ["run_check"]

_MOST_LOSSES = 10


def run_check(
    model: str, options: Options, *, given: Sequence[str], count: int, as_json: bool
) -> bool:
    """Check *model* and print the report; return whether the levels agree.

    *count* ops are proposed for wider precisions. Raises CompileError, AbiError, OSError.
    """
    source = load_source(model)
    with source.shown(), progress_bar() as progress:
        chosen = choose_inputs(float_graph(source, options), source, options, given)
        made = compiled(source, without_images(options, given), progress=progress)
        levels, report = _run(made, chosen, progress)
        ranked = losses(levels, progress=progress)
        proposal = mixed(levels, ranked, count, progress=progress) if count and ranked else None
    for note in levels.compilation.notes:
        click.echo(str(note), err=True)
    if as_json:
        click.echo(
            json.dumps(_report_json(model, levels, chosen, report, ranked, proposal), indent=2)
        )
    else:
        _print(levels, chosen, report, ranked, proposal)
    return report.agrees


def _run(made: Compiled, chosen: Chosen, progress: Progress) -> tuple[Levels, Report]:
    """Return the levels of the first batch, and the report on all up to one that stops."""
    runner, reports, first = Runner(made), [], None
    for number, batch in enumerate(chosen.batches):
        if len(chosen.batches) > 1:
            progress("batches", number, len(chosen.batches))
        levels = runner.run(batch, progress=progress if number == 0 else silent)
        first = first or levels
        reports.append(report_of(levels))
        if levels.stopped is not None:
            break
    if first is None:
        raise ValueError("there is no batch to check")
    return first, united_reports(reports)


def _print(
    levels: Levels, chosen: Chosen, report: Report, ranked: Sequence[Loss], proposal: Mixed | None
) -> None:
    click.echo(f"input: {chosen.text}")
    if not report.has_float:
        click.echo("the graph is quantised already: there is no L1 to compare L2 with")
    print_report(report)
    for line in _loss_lines(ranked, report.batches):
        click.echo(line)
    if proposal is not None:
        for line in _mixed_lines(proposal):
            click.echo(line)


def _loss_lines(ranked: Sequence[Loss], batches: int) -> Iterator[str]:
    shown = [loss for loss in ranked if math.isfinite(loss.sqnr_db)][:_MOST_LOSSES]
    if not shown:
        return
    wider = list(shown[0].wider)
    yield ""
    where = " of the first batch" if batches > 1 else ""
    yield f"lost most, each op alone on exact operands{where} (SQNR dB):"
    rows = [("op", "kind", "line", "here", *(f"at {p}" for p in wider))]
    rows += [
        (s.name, s.op, str(s.line), _db(s.sqnr_db), *(_db(s.wider[p]) for p in wider))
        for s in shown
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        left = (c.ljust(w) for c, w in zip(row[:2], widths[:2], strict=True))
        right = (c.rjust(w) for c, w in zip(row[2:], widths[2:], strict=True))
        yield "  ".join((*left, *right)).rstrip()


def _mixed_lines(proposal: Mixed) -> Iterator[str]:
    yield ""
    if not proposal.keep:
        yield "no op that is widened alone makes the outputs better"
        return
    yield "to widen, those that alone help the outputs most:"
    yield f"  {' '.join(f'--keep {name}={wide}' for name, wide in proposal.keep.items())}"
    for name, before in proposal.before_db.items():
        yield f"%{name}: SQNR {_db(before)} dB, with these {_db(proposal.after_db[name])} dB"


def _db(value: float | None) -> str:
    return "none" if value is None else "exact" if math.isinf(value) else f"{value:.1f}"


def _report_json(
    model: str,
    levels: Levels,
    chosen: Chosen,
    report: Report,
    ranked: Sequence[Loss],
    proposal: Mixed | None,
) -> dict[str, Any]:
    header = levels.compilation.program.header
    return {
        "schema": 1,
        "model": model,
        "input": chosen.text,
        "target": levels.compilation.target.name,
        "precision": header.precision.name.lower(),
        "rounding": header.rounding.name.lower(),
        "has_float": report.has_float,
        **tensors_json(report),
        "losses": [_loss_json(loss) for loss in ranked],
        "mixed": None if proposal is None else _mixed_json(proposal),
    }


def _loss_json(loss: Loss) -> dict[str, Any]:
    return {
        "name": loss.name,
        "op": loss.op,
        "line": loss.line,
        "sqnr_db": _finite(loss.sqnr_db),
        "wider": {p: _finite(db) for p, db in loss.wider.items()},
        "best": loss.best,
    }


def _mixed_json(proposal: Mixed) -> dict[str, Any]:
    def plain(found: Mapping[str, float]) -> dict[str, float | None]:
        return {name: _finite(db) for name, db in found.items()}

    return {
        "keep": dict(proposal.keep),
        "sqnr_db": {"before": plain(proposal.before_db), "after": plain(proposal.after_db)},
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
