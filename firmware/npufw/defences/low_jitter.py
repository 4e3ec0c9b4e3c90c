"""Gate 5: low-jitter mode of the DDR controller, held while a camera streams.

In the mode the controller drops spread-spectrum clocking and keeps slots free around the camera's
lines: reads stay in the eye, and 5 % of the bandwidth are gone. So the mode is counted by stream:
the first hold switches it on, the last release off.

Invariant: the mode is on exactly while there is a hold that its client has renewed in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from npuabi.enums import Unit
from npuabi.simulate import simulate
from npufw.boot import Image
from npufw.defences.base import Defence
from npufw.fault_models.camera import Camera
from npufw.faults import Hook, Machine, Moment, Outcome, Phase

__all__ = ["BANDWIDTH", "DEFENCE", "TIMEOUT_US", "LowJitter", "LowJitterMode", "mode_surcharge"]

NAME = "camera"
BANDWIDTH = 0.95
"""Part of the DDR's bandwidth that is left in the mode."""
TIMEOUT_US = 100_000.0
"""A hold that nobody renews ends after three frames of 30 a second."""


class LowJitterMode:
    """Holds by stream, in event time: every call says what time it is, in us, never going back.

    A client is one life of a process: after a crash it comes back under another number.
    """

    def __init__(self, timeout_us: float = TIMEOUT_US) -> None:
        self._timeout_us = timeout_us
        self._seen: dict[tuple[int, int], float] = {}

    @property
    def holds(self) -> int:
        """How many streams hold the mode."""
        return len(self._seen)

    @property
    def active(self) -> bool:
        """Whether the controller is in the mode."""
        return bool(self._seen)

    def start(self, client: int, stream: int, now_us: float) -> None:
        """Hold for a stream of *client*; again for one that has a hold renews it."""
        self.expire(now_us)
        self._seen[client, stream] = now_us

    def beat(self, client: int, now_us: float) -> None:
        """Renew all holds of *client*, as its driver does with each frame."""
        self.expire(now_us)
        for key in self._seen:
            if key[0] == client:
                self._seen[key] = now_us

    def stop(self, client: int, stream: int, now_us: float) -> None:
        """Release the hold of a stream; harmless when there is none."""
        self.expire(now_us)
        self._seen.pop((client, stream), None)

    def expire(self, now_us: float) -> None:
        """Drop the holds of clients that have been silent for the timeout."""
        late = [key for key, seen in self._seen.items() if now_us - seen >= self._timeout_us]
        for key in late:
            del self._seen[key]


def mode_surcharge(image: Image) -> int:
    """Return by how many cycles a run is longer in the mode, in which DMA moves 95 % as much."""
    works = [
        replace(work, compute_cycles=math.ceil(work.compute_cycles / BANDWIDTH))
        if work.unit in (Unit.DMA_IN, Unit.DMA_OUT)
        else work
        for work in image.works
    ]
    return simulate(works, image.target).cycles - image.timeline.cycles


class LowJitter(Hook):
    """Holds the mode for each stream of the cameras, from the job in which it starts."""

    def __init__(self, image: Image, cameras: Sequence[Camera]) -> None:
        self._image, self._cameras, self.mode = image, cameras, LowJitterMode()
        self._held: set[tuple[int, int]] = set()

    @cached_property
    def _cycles(self) -> int:
        return mode_surcharge(self._image)

    def at(self, machine: Machine, moment: Moment) -> None:
        """Follow the streams between jobs."""
        if moment.phase is not Phase.RUN_STARTS:
            return
        now_us = moment.cycle / self._image.target.clock_mhz
        wanted = {(c, s) for c, camera in enumerate(self._cameras) for s in range(camera.streams)}
        was_on = self.mode.active
        for client, stream in wanted:
            self.mode.start(client, stream, now_us)
        for client, stream in self._held - wanted:
            self.mode.stop(client, stream, now_us)
        self._held = wanted
        for camera in self._cameras:
            camera.quiet = self.mode.active
        if self.mode.active:
            machine.surcharge[NAME] += self._cycles
        if self.mode.active is not was_on:
            text = "low-jitter mode is on" if self.mode.active else "low-jitter mode is off"
            machine.note(NAME, moment, Outcome.DETECTED, f"{text}: {len(wanted)} streams")


def _make(image: Image, faults: Sequence[Hook]) -> Hook | None:
    cameras = [hook for hook in faults if isinstance(hook, Camera)]
    return LowJitter(image, cameras) if cameras else None


DEFENCE = Defence(
    name=NAME,
    title="low-jitter mode of the DDR while a camera streams, counted by stream",
    make=_make,
)
