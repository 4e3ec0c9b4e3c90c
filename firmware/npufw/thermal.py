"""Heat: what warms the device, what heat does to its clock and its read-out, what runs then take.

The physics of gate 1, without hooks: fault_models/heat.py lets it act on runs and
defences/reloader.py answers it. docs/gates/1-heat.md gives the reason of each constant.

Invariant: everything follows from temperature, timing set and the TOAs; chance enters with numbers
that the caller draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from npuabi.bands import BASE_BAND, JITTER_PS, TAP_PS, limits, sample_taps, settle_ps
from npuabi.cycles import Work
from npuabi.enums import Unit
from npuabi.records import BandSet, Toa
from npuabi.simulate import Timeline, simulate
from npufw.boot import Image

__all__ = [
    "ATTEMPTS",
    "BASE_SET",
    "DERATING",
    "DETECTOR_PS",
    "EXTREMES_C",
    "IDLE",
    "Activity",
    "Junction",
    "Regulator",
    "activity_of",
    "late_bits",
    "late_chances",
    "timeline_with",
    "window_ps",
]

BASE_SET = BandSet(
    band=BASE_BAND,
    low=limits(BASE_BAND)[0],
    high=limits(BASE_BAND)[1],
    setup=(0,) * len(Unit),
    sample=0,
)
"""What is loaded at boot: the TOAs' own timing."""

EXTREMES_C = (-55.0, 150.0)
"""What a chip is built for and what it lives through: nothing beyond is modelled."""

# --- the read-out -------------------------------------------------------------------------------

ATTEMPTS = 3
"""A TOA whose read-out is caught late is replayed twice; the third read-out is taken as it is."""

DETECTOR_PS = 32.0
"""The detector samples again so much later and compares; what settles after that escapes it."""

_CARRY_PS = 18.0
"""What one more bit of the carry chain takes; the highest bits settle last."""

_MOST_BITS = 32


def window_ps(toa: Toa, timing: BandSet) -> float:
    """Return when the read-out of *toa* samples with the set *timing*, in picoseconds."""
    taps = toa.sample_taps or sample_taps(limits(BASE_BAND)[1])
    return float((taps + timing.sample) * TAP_PS)


def late_chances(window: float, celsius: float) -> NDArray[np.float64]:
    """Return the chance that at least 1, 2, ... 32 of the highest bits are late, then the
    detector's: that the carry has not arrived when it samples.

    Settling times are normal around the mean at *celsius*; *window* is in picoseconds.
    """
    behind = [k * _CARRY_PS for k in range(_MOST_BITS)] + [DETECTOR_PS]
    margin = window - settle_ps(celsius)
    return np.array([_above((margin + b) / JITTER_PS) for b in behind])


def _above(deviations: float) -> float:
    return 0.5 * math.erfc(deviations / math.sqrt(2))


def late_bits(chances: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many of the highest bits of each read-out are late; *draws* are in [0, 1)."""
    ascending = chances[:_MOST_BITS][::-1]
    return np.asarray(_MOST_BITS - np.searchsorted(ascending, draws, side="right"), np.int64)


# --- clock and time -----------------------------------------------------------------------------

DERATING: tuple[tuple[float, float], ...] = ((85, 0.9), (95, 0.8), (105, 0.65), (115, 0.5))
"""From these temperatures on the clock runs at that part of its nominal rate."""

_STEP_BACK_KELVIN = 2.0


@dataclass(slots=True)
class Regulator:
    """Power management: steps the clock down at once, and up again 2 kelvin below the step."""

    part: float = 1.0

    def settle(self, celsius: float) -> float:
        """Return the part of the nominal rate at which the clock runs at *celsius* from now on."""
        falling, rising = _clock_part(celsius), _clock_part(celsius + _STEP_BACK_KELVIN)
        self.part = min(max(self.part, rising), falling)
        return self.part


def _clock_part(celsius: float) -> float:
    return min([1.0, *(part for start, part in DERATING if celsius >= start)])


def timeline_with(
    image: Image, timing: BandSet, replays: Mapping[int, int] | None = None
) -> Timeline:
    """Return the timeline of *image* with the set *timing*, some TOAs computed again.

    *replays* count by position in the ring. A replay takes the TOA's cycles and words once more.
    """
    again = replays or {}
    works = [
        _timed(work, timing, 1 + again.get(position, 0))
        for position, work in enumerate(image.works)
    ]
    return simulate(works, image.target)


def _timed(work: Work, timing: BandSet, times: int) -> Work:
    return replace(
        work,
        setup_cycles=work.setup_cycles + timing.setup[work.unit - 1],
        compute_cycles=work.compute_cycles * times,
        stream_cycles=work.stream_cycles * times,
        bank_words=tuple((bank, words * times) for bank, words in work.bank_words),
    )


# --- power --------------------------------------------------------------------------------------

_JOULES_A_MAC = 1e-12
_JOULES_A_BYTE = 60e-12
_CLOCKED_WATTS = 0.25
_LEAKAGE_WATTS = 0.15
_LEAKAGE_DOUBLES_KELVIN = 30.0
_REST_WATTS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What one run does: products, bytes to and from DDR, and the cycles that it takes."""

    macs: int
    ddr_bytes: int
    cycles: int

    def watts(self, hertz: float, cores: int) -> float:
        """Return the power of *cores* cores that do nothing else, run after run."""
        seconds = self.cycles / hertz
        joules = self.macs * _JOULES_A_MAC + self.ddr_bytes * _JOULES_A_BYTE
        nominal = 1e9
        return cores * (joules / seconds + _CLOCKED_WATTS * hertz / nominal)


def activity_of(image: Image, cycles: int, replays: Mapping[int, int] | None = None) -> Activity:
    """Return the activity of a run of *image* that took *cycles*; replays compute again."""
    again: Sequence[tuple[int, int]] = list((replays or {}).items())
    return Activity(
        macs=sum(w.macs for w in image.works) + sum(image.works[p].macs * n for p, n in again),
        ddr_bytes=sum(work.ddr_bytes for work in image.works),
        cycles=cycles,
    )


IDLE = Activity(macs=0, ddr_bytes=0, cycles=1)
"""Clocks run, and nothing else."""


@dataclass(slots=True, kw_only=True)
class Junction:
    """The chip's temperature: one resistance to the air around it and one capacity."""

    ambient_c: float
    celsius: float
    kelvin_a_watt: float = 12.0
    joules_a_kelvin: float = 100.0

    def watts(self, running: float) -> float:
        """Return the whole power: what runs, leakage at this temperature, the rest of the chip."""
        hotter = (self.celsius - 25) / _LEAKAGE_DOUBLES_KELVIN
        return float(running + _REST_WATTS + _LEAKAGE_WATTS * 2**hotter)

    def pass_time(self, seconds: float, running: float) -> float:
        """Let *seconds* pass in steps of at most one; return the temperature at their end."""
        whole = max(1, math.ceil(seconds))
        step = seconds / whole
        decay = math.exp(-step / (self.kelvin_a_watt * self.joules_a_kelvin))
        for _ in range(whole):
            end = self.ambient_c + self.kelvin_a_watt * self.watts(running)
            self.celsius = _bounded(end + (self.celsius - end) * decay)
        return self.celsius


def _bounded(celsius: float) -> float:
    """Leakage feeds on its own heat: beyond some air no temperature is steady."""
    coldest, hottest = EXTREMES_C
    return min(max(celsius, coldest), hottest)
