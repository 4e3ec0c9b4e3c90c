"""Gate 5: a week of frames in event time, while cameras start, stop twice and crash at random.

A trial is ten minutes of 30 frames a second. Each frame has one read from DDR at the phase that the
clock has then; a failure is a frame in which a camera streams and the mode is off, or is on a
timeout after the last stream has gone, a striped read in the mode, or more missed deadlines with it
than without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.progress import Progress
from npufw.defences.low_jitter import TIMEOUT_US, LowJitterMode, mode_surcharge
from npufw.fault_models.camera import Jitter
from npufw.fault_models.draws import Source
from npufw.gates.subject import load_subject
from tools.campaigns.base import Campaign, Tally

__all__ = ["CAMPAIGN", "FRAMES", "Client", "frames_of"]

FRAMES = 18_000
FRAME_US = 1e6 / 30
_CLIENTS, _STREAMS = 3, 2
_EVERY = 32
"""A client does something in one of so many frames."""


@dataclass
class Client:
    """A camera's driver: its streams, and whether it has crashed; a crash ends the streams."""

    number: int
    streams: set[int]
    crashed: bool = False

    def act(self, source: Source, mode: LowJitterMode, now_us: float) -> None:
        """Start, stop, stop twice or crash, or come back after a crash."""
        stream, deed = source.below(_STREAMS), source.below(8)
        if self.crashed or deed < 2:
            # Who comes back after a crash is somebody else: a beat must not renew the old holds.
            self.number += _CLIENTS * self.crashed
            self.crashed = False
            self.streams.add(stream)
            mode.start(self.number, stream, now_us)
        elif deed < 7:
            self.streams.discard(stream)
            for _ in range(1 + deed % 2):
                mode.stop(self.number, stream, now_us)
        else:
            self.crashed = True
            self.streams.clear()


def frames_of(
    number: int, frames: int = FRAMES
) -> tuple[NDArray[np.int64], NDArray[np.bool_], LowJitterMode, list[str]]:
    """Return each frame's streams and whether the mode is on, the mode, and what was wrong."""
    source, mode = Source(number, 5), LowJitterMode()
    clients = [Client(n, set()) for n in range(_CLIENTS)]
    streams, modes = np.zeros(frames, np.int64), np.zeros(frames, np.bool_)
    silent, wrong = 0, []
    for frame in range(frames):
        now_us = frame * FRAME_US
        for client in clients:
            if not client.crashed:
                mode.beat(client.number, now_us)
            if source.below(_EVERY) == 0:
                client.act(source, mode, now_us)
        mode.expire(now_us)
        streams[frame] = sum(len(client.streams) for client in clients)
        modes[frame] = mode.active
        silent = 0 if streams[frame] else silent + 1
        if streams[frame] and not mode.active:
            wrong.append(f"frame {frame}: {streams[frame]} streams, the mode is off")
        if mode.active and silent * FRAME_US > TIMEOUT_US + FRAME_US:
            wrong.append(f"frame {frame}: no stream for {silent} frames, the mode is on")
    for client in clients:
        for stream in range(_STREAMS):
            mode.stop(client.number, stream, frames * FRAME_US)
    mode.expire(frames * FRAME_US + TIMEOUT_US)
    if mode.holds:
        wrong.append(f"{mode.holds} holds are left at the end")
    return streams, modes, mode, wrong


def _run(ids: Sequence[int], progress: Progress) -> Tally:
    image, jitter, tally = load_subject().image, Jitter(), Tally()
    more, cycles = mode_surcharge(image), image.timeline.cycles
    sums = dict.fromkeys(("frames", "with a stream", "striped without", "striped with"), 0)
    misses = {"without": 0, "with": 0}
    for done, number in enumerate(ids, start=1):
        streams, modes, _, wrong = frames_of(number)
        bell = Source(number, 6).bell(len(streams))
        bare = np.sqrt(jitter.deviation(0, quiet=False) ** 2 + streams * jitter.jitter_ps**2)
        behind = np.where(modes, jitter.deviation(1, quiet=True), bare)
        sums["frames"] += len(streams)
        sums["with a stream"] += int((streams > 0).sum())
        sums["striped without"] += int((np.abs(bell * bare) > jitter.eye_ps).sum())
        striped = int((np.abs(bell * behind) > jitter.eye_ps).sum())
        sums["striped with"] += striped
        late = FRAME_US * image.target.clock_mhz
        misses["without"] += int((cycles + jitter.extra_cycles(bell * bare) > late).sum())
        taken = cycles + more * modes + jitter.extra_cycles(bell * behind)
        misses["with"] += int((taken > late).sum())
        if striped:
            wrong.append(f"{striped} striped reads in spite of the mode")
        tally.failures += [f"{number}: {text}" for text in wrong]
        progress("ten minutes", done, len(ids))
    tally.trials = len(ids)
    tally.figures = {**sums, **{f"missed deadlines {k}": v for k, v in misses.items()}}
    if misses["with"] > misses["without"]:
        tally.failures.append(f"{ids[0]}: the mode makes frames late")
    return tally


CAMPAIGN = Campaign(
    name="camera",
    title="a week of frames, cameras that start, stop and crash",
    short=3,
    long=1008,
    run=_run,
)
