"""Dies: how many of a hundred answers are the nominal die's, untrimmed and trimmed."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from npufw.defences.calibration import Trim
from npufw.fault_models.die import DieHook, Spread
from npufw.gates.variation import classes, die_of, fused
from tools.campaigns.variation import subject_of_100

__all__ = ["draw"]

_DIES = 240


def draw(path: Path) -> None:
    """Draw the figure to *path*."""
    subject = subject_of_100()
    shares: dict[str, list[int]] = {spread.name.lower(): [] for spread in Spread}
    trimmed: list[int] = []
    for number in range(_DIES):
        die = die_of(number, subject.image.target.cores)
        silicon = DieHook(die)
        trim = Trim(fused(die, subject.image), die.id)
        bare = classes(subject.image, subject.inputs, (silicon,)) == subject.nominal
        held = classes(subject.image, subject.inputs, (silicon, trim)) == subject.nominal
        shares[die.spread.name.lower()].append(int(bare.sum()))
        trimmed.append(int(held.sum()))
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    levels = np.linspace(0, 100, _DIES)
    for name, counts in shares.items():
        places = np.linspace(0, 100, len(counts))
        axes.step(places, sorted(counts), where="mid", label=f"{name}, untrimmed")
    axes.step(levels, sorted(trimmed), where="mid", color="black", lw=2, label="all, trimmed")
    axes.set(xlabel="dies, %, from the worst to the best", xlim=(0, 100))
    axes.set(ylabel="answers of 100 as the nominal die", ylim=(0, 102))
    axes.set_title(f"{_DIES} dies, gains within 18 %")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    with mpl.rc_context({"svg.hashsalt": "npu", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
