"""Accuracy over the rate at which bits flip, without and with the checks; what becomes of jobs."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from npufw.gates.ripple import Jobs, jobs_at
from npufw.gates.subject import load_subject

__all__ = ["RATES", "draw", "sweep"]

RATES = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
_SAMPLES = 180


def sweep(samples: int = _SAMPLES) -> list[tuple[float, Jobs, Jobs]]:
    """Return for each rate what becomes of jobs without and with the checks."""
    subject = load_subject()
    return [
        (
            rate,
            jobs_at(subject, rate, samples, checked=False),
            jobs_at(subject, rate, samples, checked=True),
        )
        for rate in RATES
    ]


def draw(path: Path) -> None:
    """Draw the figure to *path*, and print its numbers."""
    rows = sweep()
    for rate, bare, checked in rows:
        print(
            f"{rate:g}: top-1 {bare.top1:.2%}, {bare.changed} changed | finished "
            f"{checked.finished} of {checked.count}, {checked.changed} changed, "
            f"top-1 {checked.top1:.2%}, {checked.repaired} repairs"
        )
    rates = [rate for rate, _, _ in rows]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogx(rates, [100 * b.top1 for _, b, _ in rows], "o-", color="tab:red", label="without")
    done = [(rate, 100 * c.top1) for rate, _, c in rows if c.finished]
    left.semilogx(*zip(*done, strict=True), "s-", color="tab:green", label="with, finished jobs")
    left.axhline(10, color="grey", linestyle=":", label="chance")
    left.set(title="top-1", xlabel="flips a bit and write", ylabel="%", ylim=(0, 104))
    left.legend(fontsize=8, loc="lower left")
    for values, colour, label in (
        ([100 * b.changed / b.count for _, b, _ in rows], "tab:red", "wrong bits, without"),
        ([100 * c.changed / c.count for _, _, c in rows], "tab:blue", "wrong bits, with"),
        ([100 * c.refused / c.count for _, _, c in rows], "tab:green", "refused, with"),
    ):
        right.semilogx(rates, values, "o-", color=colour, label=label, markersize=4)
    right.set(title="jobs", xlabel="flips a bit and write", ylabel="%", ylim=(-4, 104))
    right.legend(fontsize=8, loc="upper left")
    with mpl.rc_context({"svg.hashsalt": "npu", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
