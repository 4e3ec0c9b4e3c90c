"""A week of model swaps: external fragmentation, and the largest free piece, of both allocators."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from npufw.buddy import BuddyAllocator
from npufw.fault_models.churn import POOL_BYTES, SWAPS
from npufw.first_fit import FirstFitAllocator
from npufw.gates.fragmentation import Week, lived

__all__ = ["draw"]

_DAYS = 7
_MIB = 1 << 20


def draw(path: Path) -> None:
    """Draw the figure to *path*."""
    weeks = {
        "first fit, 4 KiB": (lived(FirstFitAllocator(POOL_BYTES)), "tab:red"),
        "buddy, 64 KiB": (lived(BuddyAllocator(POOL_BYTES)), "tab:blue"),
    }
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    days = [swap * _DAYS / SWAPS for swap in range(SWAPS + 1)]
    for name, (week, colour) in weeks.items():
        label = f"{name}: {len(week.failures)} loads failed"
        axes.plot(days, [100 * part for part in week.curve], color=colour, lw=0.8, label=label)
        _mark(axes, week, days, colour)
    axes.set(xlabel="days", ylabel="external fragmentation, %", ylim=(0, 100), xlim=(0, _DAYS))
    axes.set_title(f"{SWAPS:,} model swaps in {POOL_BYTES // _MIB} MiB; x: a load that failed")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    with mpl.rc_context({"svg.hashsalt": "npu", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


def _mark(axes: mpl.axes.Axes, week: Week, days: list[float], colour: str) -> None:
    swaps = [failure.swap for failure in week.failures]
    heights = [100 * week.curve[swap] for swap in swaps]
    axes.plot([days[swap] for swap in swaps], heights, "x", color=colour, ms=8, mew=2)
