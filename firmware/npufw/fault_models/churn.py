"""Churn: a week in the life of a device's memory, as a trace that any allocator can be put through.

A recorder with 13 channels, each with its own variant of one network (2.1 to 3.9 MiB); every ten
minutes one channel gets a new variant, which is loaded while the old one still runs, three frames
in flight. Each swap leaves a record (4 to 60 KiB); of 15 one is dropped at random for the next.
Between swaps there are 18,000 frames, each with an arena while it runs.

Invariant: the trace is a function of its seed; no allocator sees another one's failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from npufw.allocator import Allocator, Usage
from npufw.errors import FirmwareError

__all__ = [
    "POOL_BYTES",
    "SWAPS",
    "SWAP_FRAMES",
    "Failure",
    "Step",
    "Tenancy",
    "frames",
    "fresh_fits",
    "week",
]

POOL_BYTES = 64 << 20
"""What a board sets aside for the NPU."""

SWAPS = 1008
"""One in ten minutes for seven days."""

SWAP_FRAMES = 18_000
"""Ten minutes at 30 frames a second."""

_CHANNELS = 13
_RECORDS = 15
_CORES = 3
_VARIANT_BYTES = (2_202_009, 4_120_903)
_RECORD_BYTES = (4_096, 61_440)
_ARENA_BYTES = 1_810_432
_FRAME_MS = (60, 95)
_PERIOD_MS = 1000 / 30


@dataclass(frozen=True, slots=True)
class Step:
    """Allocate *size* bytes under a key, or with size 0 free what the key names."""

    key: int
    size: int
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An allocation that could not be: in which swap, its size, the pool then.

    ``fragmented`` says that a fresh pool would have held all of it at once.
    """

    swap: int
    size: int
    usage: Usage
    fragmented: bool


class _Words:
    """Whole numbers from the raw words of PCG64."""

    def __init__(self, seed: int) -> None:
        self._source = np.random.PCG64(seed)

    def between(self, low: int, high: int) -> int:
        return low + int(self._source.random_raw()) % (high - low)


def week(seed: int, swaps: int = SWAPS) -> Iterator[list[Step]]:
    """Yield the steps of each swap; the first list loads all channels."""
    words, keys = _Words(seed), iter(range(1 << 62))
    first = [_variant(words, next(keys), channel) for channel in range(_CHANNELS)]
    models, records = [step.key for step in first], list[int]()
    yield first
    for _ in range(swaps):
        arenas = [Step(next(keys), _ARENA_BYTES, f"frame {core}") for core in range(_CORES)]
        channel = words.between(0, _CHANNELS)
        model = _variant(words, next(keys), channel)
        steps = [*arenas, model]
        if len(records) == _RECORDS:
            steps.append(Step(records.pop(words.between(0, _RECORDS)), 0))
        records.append(next(keys))
        steps.append(Step(records[-1], words.between(*_RECORD_BYTES), "record"))
        yield [*steps, Step(models[channel], 0), *(Step(arena.key, 0) for arena in arenas)]
        models[channel] = model.key


def _variant(words: _Words, key: int, channel: int) -> Step:
    return Step(key, words.between(*_VARIANT_BYTES), f"channel {channel}")


@dataclass
class Tenancy:
    """Who holds what of an allocator while a trace goes by; a failed key is passed over."""

    allocator: Allocator
    held: dict[int, tuple[int, int]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def apply(self, steps: list[Step], swap: int = 0) -> None:
        """Take the steps of one swap."""
        for step in steps:
            if not step.size:
                if step.key in self.held:
                    self.allocator.free(self.held.pop(step.key)[0])
                continue
            try:
                self.held[step.key] = (self.allocator.allocate(step.size, step.owner), step.size)
            except FirmwareError:
                sizes = [*(size for _, size in self.held.values()), step.size]
                usage, fits = self.allocator.usage(), fresh_fits(self.allocator, sizes)
                self.failures.append(Failure(swap, step.size, usage, fits))

    def unload(self) -> None:
        """Free everything."""
        for address, _ in self.held.values():
            self.allocator.free(address)
        self.held.clear()


def fresh_fits(like: Allocator, sizes: list[int]) -> bool:
    """Return whether a fresh pool of the same kind holds all *sizes*, the largest first."""
    fresh = type(like)(like.pool, guard=like.guard)
    try:
        for size in sorted(sizes, reverse=True):
            fresh.allocate(size)
    except FirmwareError:
        return False
    return True


def frames(allocator: Allocator, seed: int, count: int = SWAP_FRAMES) -> Iterator[int]:
    """Run *count* frames in event time: each holds an arena from its dispatch to its end.

    Frames come 30 a second and take 60 to 95 ms on one of three cores; they wait when none is free.
    Yields the number of each frame that has begun. Raises what ``allocate`` raises.
    """
    low, high = _FRAME_MS
    words = np.random.PCG64(seed).random_raw(count)
    takes = (low + words % np.uint64(1000 * (high - low)) / 1000).tolist()
    running: list[tuple[float, int]] = []
    for number, length in enumerate(takes):
        now = number * _PERIOD_MS
        while running and running[0][0] <= now:
            allocator.free(heappop(running)[1])
        if len(running) == _CORES:
            now, address = heappop(running)
            allocator.free(address)
        heappush(running, (now + length, allocator.allocate(_ARENA_BYTES, "frame")))
        yield number
    for _, address in running:
        allocator.free(address)
