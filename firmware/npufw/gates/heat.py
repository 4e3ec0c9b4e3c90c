"""Gate 1, thermal wall: two hours in a hot cabinet, with the boot's timing and with the right one.

The chip starts at 25 degC in warm air; all cores run without a pause. Samples are spread over
the two hours, and each run stands for the seconds until the next one. Accuracy is that of all
samples run at the end's temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.progress import Progress
from npufw.defences.reloader import Reloader
from npufw.engine import Engine
from npufw.fault_models.heat import Constant, Heat, HeatOfRun, SelfHeating
from npufw.fault_models.sensor import Sensor
from npufw.faults import Hook
from npufw.gates.base import Figures, Gate, Shown, Subject
from npufw.thermal import Junction

__all__ = ["AMBIENT_C", "GATE", "HOURS", "TwoHours", "hooks_of", "top1", "two_hours"]

AMBIENT_C = 52.0
"""Air in a closed cabinet in summer: 40 degC in the shade and 12 more."""

HOURS = 2
_SECONDS = HOURS * 3600
_START_C = 25.0
_RUNS = 90
_TAIL = 10
"""Runs at the end whose mean is the latency then: replays depend on the sample."""

_MOST_SAMPLES = 360
_SEED = 1


@dataclass(frozen=True, kw_only=True)
class TwoHours:
    """What the runs met, accuracy at the end, and the cycles of the defence."""

    runs: Sequence[HeatOfRun]
    hot_top1: float
    swaps: int
    surcharge_cycles: int

    @property
    def latency_ms(self) -> float:
        """Of a run at the end."""
        return float(np.mean([run.time_ms for run in self.runs[-_TAIL:]]))

    @property
    def rise(self) -> float:
        """Latency at the end, as a multiple of that at the start."""
        return self.latency_ms / self.runs[0].time_ms

    @property
    def rise_beyond_clock(self) -> float:
        """The same without what the clock's own derating makes of it."""
        return self.rise * self.runs[-1].clock / self.runs[0].clock

    def figures(self) -> Figures:
        """Return the figures of the gate."""
        last = self.runs[-1]
        return {
            "start_us": self.runs[0].time_ms * 1e3,
            "end_us": self.latency_ms * 1e3,
            "latency_rise": self.rise,
            "rise_beyond_clock": self.rise_beyond_clock,
            "end_celsius": last.celsius,
            "end_clock": last.clock,
            "top1": self.hot_top1,
        }


def two_hours(
    subject: Subject, *, reload: bool, runs: int = _RUNS, progress: Progress | None = None
) -> TwoHours:
    """Return what two hours do to *subject*, with the reloader or without."""
    image, count = subject.image, len(subject.labels)
    junction = Junction(ambient_c=AMBIENT_C, celsius=_START_C)
    source = SelfHeating(junction, image.target.cores)
    heat = Heat(image, source, seed=_SEED, seconds=_SECONDS / runs)
    hooks, guard = hooks_of(subject, heat, reload=reload)
    engine = Engine(image, hooks=hooks)
    for run in range(runs):
        engine.run(_samples(subject, run % count, 1))
        if progress is not None and run % _TAIL == 0:
            progress("gate 1: minutes", run * HOURS * 60 // runs, HOURS * 60)
    still = Heat(image, Constant(heat.celsius), seed=_SEED, seconds=1.0)
    return TwoHours(
        runs=heat.runs,
        hot_top1=top1(subject, hooks_of(subject, still, reload=reload)[0]),
        swaps=0 if guard is None else guard.swaps,
        surcharge_cycles=engine.surcharge.get("heat", 0),
    )


def hooks_of(
    subject: Subject, heat: Heat, *, reload: bool
) -> tuple[tuple[Hook, ...], Reloader | None]:
    """Return *heat*, with the reloader or without, and the reloader."""
    if not reload:
        return (heat,), None
    guard = Reloader(heat, Sensor(seed=_SEED), subject.image.program.bands)
    return (heat, guard), guard


def _samples(subject: Subject, first: int, count: int) -> dict[str, NDArray[Any]]:
    return {name: array[first : first + count] for name, array in subject.inputs.items()}


def top1(subject: Subject, hooks: Sequence[Hook] = (), most: int = _MOST_SAMPLES) -> float:
    """Return the accuracy of at most *most* samples with *hooks*."""
    engine, count = Engine(subject.image, hooks=hooks), min(most, len(subject.labels))
    (scores, *_) = engine.run(_samples(subject, 0, count)).values()
    found = scores.reshape(count, -1).argmax(axis=1)
    return float((found == subject.labels[:count]).mean())


def _show(subject: Subject, progress: Progress) -> Shown:
    bare = two_hours(subject, reload=False, progress=progress)
    held = two_hours(subject, reload=True, progress=progress)
    cool = top1(subject)
    lost, kept = (100 * (cool - found.hot_top1) for found in (bare, held))
    return Shown(
        undefended={**bare.figures(), "points_lost": lost},
        defended={**held.figures(), "points_lost": kept},
        surcharge={
            "swaps": held.swaps,
            "swap_cycles": held.surcharge_cycles,
            "cycles_a_run": held.runs[-1].cycles - held.runs[0].cycles,
            "blob_bytes": sum(entry.SIZE for entry in subject.image.program.bands),
        },
        passed=bool(bare.rise >= 2.5 and lost >= 3 and held.rise_beyond_clock <= 1.2 and kept == 0),
    )


GATE = Gate(
    number=1,
    name="heat",
    fault="two hours in air of 52 degC: read-outs late and replayed, some wrong, clock derated",
    defence="between jobs, the timing set of the band that the temperature sensor reads",
    show=_show,
)
