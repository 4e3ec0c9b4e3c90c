"""Gate 1's defence: between jobs it loads the timing set of the band that the chip is in.

| sensor says | then |
| --- | --- |
| a hotter band | its set, at once |
| a cooler band | its set, once the temperature is 1 degC below the limit |
| 125 to 150 degC | the job is refused |
| what no sensor says, or what no chip does | the safe set, the hottest, until the next boot |

A set that is missing or whose CRC does not hold is passed over for the nearest hotter one; a cooler
one is never used above its limit, so without any the job is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from npuabi.bands import BANDS, BASE_BAND, HOTTEST_C, band_of, band_text
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import BandSet
from npufw.boot import Image
from npufw.defences.base import Defence
from npufw.errors import FirmwareError
from npufw.fault_models.heat import Heat
from npufw.fault_models.sensor import PERIOD_S, BadSensor, Reading, Sensor
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.thermal import EXTREMES_C

__all__ = [
    "DEFENCE",
    "HYSTERESIS_C",
    "SWAP_CYCLES",
    "BandPicker",
    "Monitor",
    "Reloader",
    "SetMemory",
]

HYSTERESIS_C = 1.0
"""So far below a band's limit the temperature must fall before the cooler set is loaded."""

SWAP_CYCLES = 8
"""Two differences for each of four units go into the fetcher's adders, a cycle each."""

_SAFE = BANDS - 1
_PLAUSIBLE_C = (EXTREMES_C[0] - 1, EXTREMES_C[1] + 1)
"""A live chip's temperature, and the sensor's noise."""

_FASTEST_KELVIN_A_SECOND = 20.0
"""No chip of this heat capacity warms or cools faster; noise of the sensor is far below it."""

_NOISE_KELVIN = 1.0
_STALE_S = 10.0
_SAME = 32
"""A live sensor dithers: so many equal conversions in a row have a chance of 3^-31."""


@dataclass(slots=True)
class BandPicker:
    """Which band's set is due: up at once, down with hysteresis."""

    band: int = BASE_BAND

    def pick(self, celsius: float) -> int:
        """Return the band at *celsius*; ValueError from 125 degC on."""
        rising, falling = band_of(celsius), _least_band(celsius + HYSTERESIS_C)
        self.band = max(rising, min(self.band, falling))
        return self.band


def _least_band(celsius: float) -> int:
    return band_of(min(celsius, math.nextafter(HOTTEST_C, 0)))


@dataclass(slots=True)
class Monitor:
    """Judges readings: whether a sensor that works, on a chip that exists, could give them."""

    _before: Reading | None = None
    _same: int = 1

    def fault(self, reading: Reading, second: float) -> str:
        """Return what is wrong with *reading*, which is there at *second*; "" for nothing."""
        before, low, high = self._before, *_PLAUSIBLE_C
        if not low <= reading.celsius <= high:
            return f"it reads {reading.celsius:g} degC"
        if second - reading.second >= _STALE_S:
            return f"its reading is {second - reading.second:.0f} s old"
        if before is None or reading.second > before.second:
            self._before = reading
        if before is None or reading.second <= before.second:
            return ""
        change = abs(reading.celsius - before.celsius)
        passed = max(reading.second - before.second, PERIOD_S)
        if change > _NOISE_KELVIN + _FASTEST_KELVIN_A_SECOND * min(passed, 1.0):
            return f"it jumped from {before.celsius:.1f} to {reading.celsius:.1f} degC"
        self._same = self._same + 1 if reading.celsius == before.celsius else 1
        return f"it gave {_SAME} equal readings" if self._same >= _SAME else ""


@dataclass(slots=True)
class SetMemory:
    """The sets as bytes in the device's memory, each under its CRC."""

    records: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, sets: Sequence[BandSet]) -> SetMemory:
        """Return a memory that holds *sets*."""
        return cls({entry.band: entry.encode() for entry in sets})

    def nearest(self, band: int) -> tuple[BandSet | None, list[int]]:
        """Return the set of *band* or of the nearest hotter one, and the bands passed over."""
        passed: list[int] = []
        for wanted in range(band, BANDS):
            try:
                return BandSet.decode(self.records.get(wanted, b"")), passed
            except AbiError:
                passed.append(wanted)
        return None, passed


class Reloader(Hook):
    """Loads sets into *heat*'s timing at the start of jobs, by what *sensor* reads."""

    def __init__(self, heat: Heat, sensor: Sensor, sets: Sequence[BandSet]) -> None:
        self.memory = SetMemory.of(sets)
        self.swaps = 0
        self._heat, self._sensor = heat, sensor
        self._picker, self._monitor = BandPicker(), Monitor()
        self._distrusted = False
        self._told: set[int] = set()

    def at(self, machine: Machine, moment: Moment) -> None:
        """Choose the set before a job begins; never inside one."""
        if moment.phase is not Phase.RUN_STARTS:
            return
        due, passed = self.memory.nearest(self._band(machine, moment))
        for band in (band for band in passed if band not in self._told):
            self._told.add(band)
            text = f"the set for {band_text(band)} is missing or bad, a hotter one is used"
            machine.note("heat", moment, Outcome.DETECTED, text)
        if due is None:
            text = f"no timing set for {band_text(passed[0])} or hotter holds"
            raise FirmwareError(ErrorCode.NO_TIMING_SET, text)
        if due != self._heat.timing:
            self._heat.timing = due
            self.swaps += 1
            machine.surcharge["heat"] += SWAP_CYCLES

    def _band(self, machine: Machine, moment: Moment) -> int:
        reading = self._sensor.read(self._heat.second, self._heat.celsius)
        fault = "" if self._distrusted else self._monitor.fault(reading, self._heat.second)
        if fault:
            self._distrusted = True
            text = f"the temperature sensor is not to be trusted, {fault}: safe timing until boot"
            machine.note("sensor", moment, Outcome.DETECTED, text)
        if self._distrusted:
            return _SAFE
        if reading.celsius >= HOTTEST_C:
            text = (
                f"the chip has {reading.celsius:.1f} degC, the hottest timing ends at {HOTTEST_C}"
            )
            raise FirmwareError(ErrorCode.TOO_HOT, text)
        return self._picker.pick(reading.celsius)


def _reloader(image: Image, faults: Sequence[Hook]) -> Reloader | None:
    heat = next((hook for hook in faults if isinstance(hook, Heat)), None)
    if heat is None:
        return None
    bad = (hook.sensor for hook in faults if isinstance(hook, BadSensor))
    return Reloader(heat, next(bad, Sensor()), image.program.bands)


DEFENCE = Defence(
    name="heat",
    title="loads the timing set of the temperature's band between jobs",
    make=_reloader,
)
