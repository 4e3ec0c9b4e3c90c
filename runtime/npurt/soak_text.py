"""What ``npurt soak`` prints for people."""

from __future__ import annotations

import click

from npurt.soak import Totals

__all__ = ["print_soak"]

_LINES = {
    "taken": "taken",
    "done": "done",
    "failed": "failed: a deadline missed, no memory found, or made to fail",
    "cancelled": "cancelled",
    "cancelled too late": "cancelled too late: they had begun",
    "refused, queue full": "refused: the queue was full",
    "refused, no core": "refused: their cores were lost",
    "out of memory": "found no device memory",
    "core began": "times a core began a job",
    "core preempted": "times a job was put aside for a more urgent one",
    "core resumed": "times it went on",
    "core lost": "times a context was lost with its core",
    "loads": "times a model was loaded",
    "evictions": "times one was evicted",
    "fault swap": "swaps of a model under load",
    "fault heat": "steps of temperature",
    "fault fail": "faults in whatever a core ran",
    "fault stall": "stalls of a core",
    "fault lose": "cores lost",
}
"""What a count is, in the order of the report."""


def print_soak(totals: Totals, number: int | None) -> None:
    """Print the totals, or what round *number* gave."""
    which = f"{totals.rounds:,} rounds" if number is None else f"round {number}"
    head = f"seed {totals.seed}, {which}: {totals.jobs:,} jobs in {totals.emulated_s:,.1f}"
    click.echo(f"{head} emulated seconds, every invariant held")
    for name, text in _LINES.items():
        click.echo(f"{totals.counts.get(name, 0):>11,} {text}")
    click.echo(f"digest {totals.digest:08x}: the same for the same seed and rounds")
