"""Temperature bands: which there are, and the timing that a descriptor set of each needs.

Logic slows down as it warms up. A set gives the registers of a unit more cycles before its clock,
and lets the read-out of the sums sample later; a hotter band's set is safe in a cooler one, and
never the other way round. Sets differ in these fields only, never in a number that is computed.

Invariant: bands are half open and tile -40 to 125 degC; timing never shrinks from band to band.
docs/gates/1-heat.md gives the reason of each constant.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from npuabi.enums import Unit
from npuabi.records import BandSet, Toa
from npuabi.target import Target

__all__ = [
    "BANDS",
    "BASE_BAND",
    "HOTTEST_C",
    "JITTER_PS",
    "TAP_PS",
    "band_of",
    "band_sets",
    "band_text",
    "fits",
    "limits",
    "sample_taps",
    "settle_ps",
    "setup_cycles",
]

_COLDEST_C = -40
_WIDTH_C = 5
BANDS = 33
HOTTEST_C = _COLDEST_C + _WIDTH_C * BANDS
"""Where the bands end, in degrees Celsius."""

BASE_BAND = 13
"""The band from 25 to 30 degC: its set is what the TOAs themselves say."""

TAP_PS = 4
"""One tap of the delay line that places the sampling window; it is locked to a quartz."""

_SETTLE_PS = 560.0
"""From the start of a read-out until its carries have settled, on average, at 25 degC."""

_PER_KELVIN = 0.002
"""What delays grow by, a kelvin."""

JITTER_PS = 14.0
"""Standard deviation of one settling: ripple of the supply, and the data's own carries."""

_MARGIN = 7
"""Standard deviations between the settling at a band's upper limit and its sampling window."""

_SETUP_NS = 1.9
"""What the registers of a unit need before its clock at 25 degC."""

_STARTS = tuple(_COLDEST_C + _WIDTH_C * band for band in range(BANDS))
_LEAST_SETUP = 2
_LARGEST_FIELD = 255


def limits(band: int) -> tuple[int, int]:
    """Return the degrees Celsius where *band* begins, and before which it ends."""
    return _STARTS[band], _STARTS[band] + _WIDTH_C


def band_of(celsius: float) -> int:
    """Return the band that *celsius* lies in, the first one below them all.

    Raises ValueError from 125 degC on and for what is no number.
    """
    if not celsius < HOTTEST_C:
        raise ValueError(f"{celsius} degC lies above all bands, which end at {HOTTEST_C}")
    return max(0, bisect_right(_STARTS, celsius) - 1)


def band_text(band: int) -> str:
    """Return a band's limits in words."""
    low, high = limits(band)
    return f"{low} to {high} degC"


def settle_ps(celsius: float) -> float:
    """Return the mean time that a read-out's carries take at *celsius*, in picoseconds."""
    return _SETTLE_PS * _slower(celsius)


def sample_taps(celsius: float) -> int:
    """Return where the sampling window must stand so that it is right up to *celsius*."""
    return math.ceil((settle_ps(celsius) + _MARGIN * JITTER_PS) / TAP_PS)


def setup_cycles(celsius: float, target: Target) -> int:
    """Return the cycles that the registers need at up to *celsius*."""
    needed = math.ceil(_SETUP_NS * _slower(celsius) * target.clock_mhz / 1000)
    return min(max(_LEAST_SETUP, needed), _LARGEST_FIELD)


def _slower(celsius: float) -> float:
    return 1 + _PER_KELVIN * (celsius - limits(BASE_BAND)[0])


def band_sets(target: Target) -> tuple[BandSet, ...]:
    """Return the set of each band, as differences from the base set."""
    return tuple(_band_set(band, target) for band in range(BANDS))


def _band_set(band: int, target: Target) -> BandSet:
    (low, high), (_, base) = limits(band), limits(BASE_BAND)
    setup = setup_cycles(high, target) - setup_cycles(base, target)
    return BandSet(
        band=band,
        low=low,
        high=high,
        setup=(setup,) * len(Unit),
        sample=sample_taps(high) - sample_taps(base),
    )


def fits(entry: BandSet, toas: Sequence[Toa]) -> bool:
    """Return whether every field of every TOA still fits its record with the set's differences."""
    setups = {(toa.unit, toa.setup_cycles) for toa in toas}
    base = sample_taps(limits(BASE_BAND)[1])
    samples = {toa.sample_taps or base for toa in toas if toa.unit is Unit.MAC}
    timed = [cycles + entry.setup[unit - 1] for unit, cycles in setups]
    return all(_LEAST_SETUP <= cycles <= _LARGEST_FIELD for cycles in timed) and all(
        0 < taps + entry.sample <= _LARGEST_FIELD for taps in samples
    )
