"""The temperature sensor: a reading every tenth of a second, and the ways in which sensors fail.

| fault | what it reads |
| --- | --- |
| none | the temperature, in steps of 1/16 degC, one step up or down by chance |
| stuck | what it read last, under ever new time stamps |
| nan | no number |
| high, low | 200 degC above or below |
| stale | the last reading, with its old time stamp |
| jump | 40 degC less from one reading to the next |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from npufw.boot import Image
from npufw.fault_models.base import SEED, FaultModel, Field, Values
from npufw.faults import Hook

__all__ = ["PERIOD_S", "SENSOR", "SENSOR_FAULTS", "BadSensor", "Reading", "Sensor"]

SENSOR_FAULTS = ("none", "stuck", "nan", "high", "low", "stale", "jump")

PERIOD_S = 0.1
"""Between two conversions."""

_STEP_C = 1 / 16
_OFFSETS = {"high": 200.0, "low": -200.0, "jump": -40.0, "nan": math.nan}


@dataclass(frozen=True, slots=True)
class Reading:
    """Degrees Celsius, and the second of the conversion."""

    celsius: float
    second: float


class Sensor:
    """Reads a temperature; from *start* seconds on with *fault*. Noise follows from *seed*."""

    def __init__(self, fault: str = "none", *, start: float = 0.0, seed: int = 0) -> None:
        if fault not in SENSOR_FAULTS:
            raise ValueError(f"no sensor fault {fault!r}: there are {', '.join(SENSOR_FAULTS)}")
        self.fault, self._start = fault, start
        self._noise = np.random.PCG64(seed)
        self._last = Reading(math.nan, -math.inf)

    def read(self, second: float, celsius: float) -> Reading:
        """Return the reading that is there at *second*, when the chip has *celsius*."""
        broken = self.fault != "none" and second >= self._start
        first = self._last.second == -math.inf
        if not first and (
            second - self._last.second < PERIOD_S or (broken and self.fault == "stale")
        ):
            return self._last
        if broken and self.fault == "stuck" and not first:
            self._last = Reading(self._last.celsius, second)
            return self._last
        noise = int(self._noise.random_raw()) % 3 - 1
        value = (round(celsius / _STEP_C) + noise) * _STEP_C
        self._last = Reading(value + (_OFFSETS.get(self.fault, 0.0) if broken else 0.0), second)
        return self._last


class BadSensor(Hook):
    """Gives the reloader *sensor* in the place of one that works."""

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor


def _sensor(image: Image, values: Values) -> BadSensor:
    fault, start = str(values["fault"]), float(values["start"])
    return BadSensor(Sensor(fault, start=start, seed=int(values["seed"])))


SENSOR = FaultModel(
    name="sensor",
    title="the temperature sensor fails; only what is warm, by heat, has one",
    gate="heat",
    fields=(
        Field(name="fault", kind=str, default="stuck", choices=SENSOR_FAULTS[1:], help="how"),
        Field(name="start", kind=float, default=1.0, unit="s", help="from then on"),
        SEED,
    ),
    make=_sensor,
    example="sensor:fault=jump,start=60",
    single=True,
    needs="heat",
)
