"""What four camera streams do to reads from DDR: latency, and an image that comes in stripes."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from npufw.fault_models.camera import Jitter, striped
from npufw.fault_models.draws import Source
from npufw.gates.camera import jitter_cycles, latencies

__all__ = ["draw", "picture"]

_STREAMS, _READS, _HEIGHT, _BURST = 4, 100_000, 96, 256


def picture(*, quiet: bool) -> NDArray[np.uint8]:
    """Return a grey image as it is read, a burst in each row."""
    y, x = np.mgrid[0:_HEIGHT, 0:_BURST]
    octets = (128 + 110 * np.sin(x / 17 + y / 23)).astype(np.uint8).reshape(-1)
    jitter = Jitter()
    deviation = jitter.deviation(_STREAMS, quiet=quiet)
    errors = jitter.errors(Source(17), len(octets) // _BURST, deviation)
    return striped(octets, errors, jitter.eye_ps, _BURST, 1).reshape(_HEIGHT, _BURST)


def draw(path: Path) -> None:
    """Draw the figure to *path*, and print its numbers."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots(1, 3)
    for quiet, colour, label in (
        (False, "tab:red", "without"),
        (True, "tab:green", "with the mode"),
    ):
        extra = latencies(_READS, streams=_STREAMS, quiet=quiet)
        jitter = jitter_cycles(extra)
        print(f"{label}: p99.9 - p50 = {jitter:g} cycles")
        name = f"{label}: jitter {jitter:g}"
        axes[0].hist(extra, bins=np.arange(0, 29) - 0.5, alpha=0.6, color=colour, label=name)
    axes[0].set(title="reads from DDR", xlabel="cycles more than usual", yscale="log")
    axes[0].legend(fontsize=7)
    for place, quiet, title in ((1, False, "read without"), (2, True, "read in the mode")):
        axes[place].imshow(picture(quiet=quiet), cmap="gray", vmin=0, vmax=255, aspect="auto")
        axes[place].set(title=title, xticks=[], yticks=[])
    with mpl.rc_context({"svg.hashsalt": "npu", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
