"""What ``npurt bench`` prints for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from npurt.bench import MEASURED, NAIVE_CLIENTS, Comparison, Curve, played_dict
from npurt.board import Board, Row
from npurt.play import Played

__all__ = ["print_bench", "print_played"]


def print_bench(found: Curve, against: Comparison, console: Console) -> None:
    """Print the curve, the comparison and the parameters."""
    table = Table(title="clients with a context each, and clients of the service")
    heads = (
        "clients",
        "images/s",
        "measured",
        "mean ms",
        "measured",
        "service images/s",
        "mean ms",
    )
    for head in heads:
        table.add_column(head, justify="right")
    for sliced, served in zip(found.contexts, found.service, strict=True):
        images, latency = MEASURED[sliced.clients]
        shown = [f"{sliced.images_per_s:.1f}", f"{images:g}", f"{sliced.mean_ms:.0f}"]
        more = [f"{latency:g}", f"{served.images_per_s:.1f}", f"{served.mean_ms:.0f}"]
        table.add_row(str(sliced.clients), *shown, *more)
    console.print(table)
    console.print(f"most images a second with {found.best} time-sliced clients")
    _print_comparison(against, console)
    _print_parameters(found.board, console)


def _print_comparison(against: Comparison, console: Console) -> None:
    table = Table(title=f"{NAIVE_CLIENTS} naive clients, and the same through the service")
    for head in ("", "naive", "service", "change"):
        table.add_column(head, justify="right" if head else "left")
    before, after, change = against.naive, against.service, against.factors
    rows = (
        ("images/s", "images_per_s", ".1f", f"{change['throughput']:.2f} x"),
        ("mean ms", "mean_ms", ".0f", f"{change['latency_percent']:.0f} %"),
        ("p99 ms", "p99_ms", ".0f", ""),
    )
    for name, key, form, difference in rows:
        pair = (format(getattr(row, key), form) for row in (before, after))
        table.add_row(name, *pair, difference)
    table.add_row("memory", *map(_megabytes, (before, after)), f"{change['memory_percent']:.0f} %")
    table.add_row("out of memory an hour", f"{before.oom:.1f}", f"{after.oom:.1f}", "")
    console.print(table)


def _megabytes(row: Row) -> str:
    return f"{row.peak_bytes / 1e6:,.0f} MB"


def _print_parameters(board: Board, console: Console) -> None:
    machine, work = board.machine, board.work
    console.print(
        f"parameters: a run of {work.alone_us / 1e3:g} ms, {work.ddr_us / 1e3:g} ms of it at DDR; "
        f"{machine.cores} cores; switch {machine.switch_us / 1e3:g} ms; quantum "
        f"{machine.quantum_us / 1e3:g} ms; {machine.resident} contexts resident a core, reload "
        f"{machine.reload_us / 1e3:g} ms; gap {board.gap_us / 1e3:g} ms; naive: input "
        f"{board.prepare_us / 1e3:g} ms in one buffer, model load {board.load_us / 1e3:.0f} ms, "
        f"{board.fits} models fit, {board.output_bytes >> 10} KiB kept a request, board "
        f"{board.memory_bytes >> 20:,} MiB",
        soft_wrap=True,
    )


def print_played(played: Played, console: Console) -> None:
    """Print what a scenario gave each group of clients."""
    found = played_dict(played)
    console.print(f"{found['duration_s']:g} s of emulated time, seed {found['seed']}")
    for group in found["groups"]:
        console.print(_group_text(group), soft_wrap=True)
    for core in found["cores"]:
        out = "" if core["healthy"] else ", taken out"
        busy = f"{core['busy']:.0%} busy, {core['switches']:,} switches{out}"
        console.print(f"core {core['core']}: {busy}")
    console.print(f"{found['open']:,} jobs were still open at the end")
    if found["risen"]:
        text = "ran above their own priority: the bounds of higher ones need not hold"
        console.print(
            f"{found['risen']:,} jobs had waited so long that they {text}", soft_wrap=True
        )


def _group_text(group: dict[str, Any]) -> str:
    counts = ", ".join(
        f"{group[key]:,} {key}" for key in ("done", "failed", "cancelled", "rejected") if group[key]
    )
    spans = ", ".join(f"{key} {group[f'{key}_ms']:,.1f}" for key in ("mean", "p50", "p99", "max"))
    bound = group["bound_ms"]
    limit = "no bound" if bound is None else f"bound {bound:,.1f}"
    who = f"{group['clients']} x {group['model']}, {group['arrivals']}"
    return f"priority {group['priority']}, {who}: {counts or 'nothing'}; ms {spans}, {limit}"
