"""A camera that streams: its traffic and its clock shake that of the DDR, and reads miss the eye.

The phase of the sampling clock is off by a bell-shaped error in each burst. A row of 16 bytes that
is sampled outside the eye reads as its neighbour: the one before when the clock is early, the one
after when it is late. The camera's line clock beats with the burst, so that every fourth row is
hit: in an image these are stripes. The error also lengthens the read, a cycle for each step of the
synchroniser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode
from npufw.boot import Image
from npufw.fault_models.base import SEED, FaultModel, Field, Values
from npufw.fault_models.draws import Source
from npufw.faults import Hook, Machine, Moment, Outcome, Phase

__all__ = ["CAMERA", "Camera", "Jitter", "striped"]

_ROW = 16
_BEAT = 4
"""A row in so many of a burst is sampled when the camera's line clock switches."""
_STEP_PS = 25
"""Phase error that costs a read one more cycle in the synchroniser."""
_IDLE_PS = 20
"""Deviation of the phase when no camera streams, and in low-jitter mode."""


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """Phase errors of the sampling clock in ps: *jitter_ps* is the deviation for one stream."""

    jitter_ps: float = 90.0
    eye_ps: float = 250.0

    def deviation(self, streams: int, *, quiet: bool) -> float:
        """Return the deviation in ps; streams add in squares, and not in low-jitter mode."""
        if quiet or not streams:
            return _IDLE_PS
        return math.sqrt(_IDLE_PS**2 + streams * self.jitter_ps**2)

    def errors(self, source: Source, bursts: int, deviation: float) -> NDArray[np.float64]:
        """Return the phase error of each burst, in ps; early ones are negative."""
        return source.bell(bursts) * deviation

    def extra_cycles(self, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how many cycles each read is longer."""
        return np.floor(np.abs(errors) / _STEP_PS)


def striped(
    octets: NDArray[np.uint8], errors: NDArray[np.float64], eye_ps: float, burst: int, beat: int
) -> NDArray[np.uint8]:
    """Return what *octets* read as when burst i has the phase error ``errors[i]``.

    Rows of 16 bytes; those with number *beat* modulo 4 in their burst are sampled off.
    """
    found = octets.copy()
    for place in np.flatnonzero(np.abs(errors) > eye_ps).tolist():
        end = min((place + 1) * burst, len(octets)) // _ROW
        step = 1 if errors[place] > 0 else -1
        for row in range(place * burst // _ROW + beat, end, _BEAT):
            other = row + step
            if 0 <= other < len(octets) // _ROW:
                found[row * _ROW : (row + 1) * _ROW] = octets[other * _ROW : (other + 1) * _ROW]
    return found


class Camera(Hook):
    """*streams* streams from job *start* to job *stop*, which is not counted."""

    def __init__(self, jitter: Jitter, *, streams: int, start: int, stop: int, seed: int) -> None:
        self._jitter, self._streams, self._span = jitter, streams, range(start, stop)
        self._source = Source(seed)
        self._beat = self._source.below(_BEAT)
        self._job = -1
        self.quiet = False
        """Whether the memory controller is in low-jitter mode: the firmware sets it."""

    @property
    def streams(self) -> int:
        """How many streams there are now."""
        return self._streams if self._job in self._span else 0

    def at(self, machine: Machine, moment: Moment) -> None:
        """Count jobs."""
        if moment.phase is Phase.RUN_STARTS:
            self._job += 1

    def transferred(self, machine: Machine, moment: Moment, data: NDArray[Any]) -> NDArray[Any]:
        """Read from DDR at the phases that the clock has."""
        step = moment.step
        if step is None or step.toa.opcode is not Opcode.DMA_IN or not self.streams:
            return data
        octets = np.frombuffer(data.tobytes(), np.uint8)
        burst = step.target.dma_burst_bytes
        deviation = self._jitter.deviation(self.streams, quiet=self.quiet)
        errors = self._jitter.errors(self._source, -(-len(octets) // burst), deviation)
        found = striped(octets, errors, self._jitter.eye_ps, burst, self._beat)
        changed = int((found != octets).sum())
        if not changed:
            return data
        missed = int((np.abs(errors) > self._jitter.eye_ps).sum())
        text = f"{step.where}: {missed} bursts sampled outside the eye, {changed} bytes in stripes"
        machine.note("camera", moment, Outcome.INJECTED, text)
        return found.view(data.dtype).reshape(data.shape)


def _make(image: Image, values: Values) -> Hook:
    jitter = Jitter(jitter_ps=float(values["jitter"]), eye_ps=float(values["eye"]))
    return Camera(
        jitter,
        streams=int(values["streams"]),
        start=int(values["start"]),
        stop=int(values["stop"]),
        seed=int(values["seed"]),
    )


CAMERA = FaultModel(
    name="camera",
    title="camera streams shake the DDR clock: reads miss the eye and come in stripes",
    gate="camera",
    fields=(
        Field(name="streams", kind=int, default=1, high=16, help="how many cameras stream"),
        Field(
            name="jitter",
            kind=float,
            default=90.0,
            high=1000,
            unit="ps",
            help="deviation of the clock's phase that one stream brings",
        ),
        Field(name="eye", kind=float, default=250.0, low=1, high=1000, unit="ps", help="half eye"),
        Field(name="start", kind=int, default=0, help="job in which they start, from 0"),
        Field(name="stop", kind=int, default=2**31, help="job in which they have stopped"),
        SEED,
    ),
    make=_make,
    example="camera:streams=2,start=1,stop=10",
)
