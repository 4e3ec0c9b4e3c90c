"""Two hours of heat: temperature, latency and top-1, with the boot's timing and the reloader."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from npufw.fault_models.heat import Constant, Heat, HeatOfRun
from npufw.gates.base import Subject
from npufw.gates.heat import AMBIENT_C, HOURS, hooks_of, top1, two_hours
from npufw.gates.subject import load_subject

__all__ = ["draw"]

_POINTS = 9
_SAMPLES = 180


def draw(path: Path) -> None:
    """Draw the figure to *path*."""
    subject = load_subject()
    figure = Figure(figsize=(8, 6), layout="constrained")
    warmth, latency, accuracy = figure.subplots(3, sharex=True)
    for reload, label, colour in (
        (False, "timing of the boot", "tab:red"),
        (True, "reloader", "tab:blue"),
    ):
        met = two_hours(subject, reload=reload)
        minutes = [run.second / 60 for run in met.runs]
        warmth.plot(minutes, [run.celsius for run in met.runs], color=colour, label=label)
        latency.plot(minutes, [run.time_ms * 1e3 for run in met.runs], color=colour, lw=0.8)
        chosen = [met.runs[i * (len(met.runs) - 1) // (_POINTS - 1)] for i in range(_POINTS)]
        rates = [100 * _top1_at(subject, run, reload=reload) for run in chosen]
        accuracy.plot([run.second / 60 for run in chosen], rates, "o-", color=colour, ms=4)
    warmth.set(ylabel="chip, degC", title=f"digits without a pause, air of {AMBIENT_C:g} degC")
    warmth.legend(loc="lower right", fontsize=8)
    latency.set(ylabel="one run, us", ylim=(0, None))
    accuracy.set(ylabel="top-1, %", xlabel="minutes", xlim=(0, HOURS * 60))
    for axes in (warmth, latency, accuracy):
        axes.grid(alpha=0.3)
    with mpl.rc_context({"svg.hashsalt": "npu", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


def _top1_at(subject: Subject, run: HeatOfRun, *, reload: bool) -> float:
    heat = Heat(subject.image, Constant(run.celsius), seed=1, seconds=1.0)
    return top1(subject, hooks_of(subject, heat, reload=reload)[0], _SAMPLES)
