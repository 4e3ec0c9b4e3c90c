"""What each TOA reads and writes, byte by byte, and which orders its records allow.

Everything is computed from the descriptors by address arithmetic and brute force, and nothing by
the compiler's or the firmware's code, so that a hazard which ``depend`` forgets shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Direction, Layout, Space, ToaFlag, Unit
from npuabi.records import NO_TENSOR, TensorDescriptor, Toa
from npuabi.simulate import Timeline
from npufw.boot import Image
from tests.builders import addresses

__all__ = [
    "Access",
    "accesses",
    "dead_before",
    "hazards",
    "random_timeline",
    "waits_of",
]

_FLAGS = (ToaFlag.WAIT_DMA_IN, ToaFlag.WAIT_DMA_OUT, ToaFlag.WAIT_MAC, ToaFlag.WAIT_VECTOR)
_DMA = (Unit.DMA_IN, Unit.DMA_OUT)
Bytes = NDArray[np.bool_]
Event = tuple[int, str]


@dataclass(frozen=True)
class Access:
    """Masks over SRAM followed by the arena."""

    reads: Bytes
    writes: Bytes


def accesses(image: Image) -> list[Access]:
    """Return what each TOA touches, in ring order."""
    sram = image.target.sram_bytes
    size = sram + image.program.header.arena_bytes
    tensors = image.program.tensors
    found = []
    for step in image.steps:
        toa = step.toa
        reads, writes = np.zeros(size, bool), np.zeros(size, bool)
        for position, index in enumerate(toa.tensors):
            if index != NO_TENSOR and tensors[index].space is not Space.CONSTANTS:
                octets = _octets(tensors[index], whole=toa.unit in _DMA)
                start = sram if tensors[index].space is Space.ARENA else 0
                (writes if position == 4 else reads)[octets + start] = True
        found.append(Access(reads, writes))
    return found


def _octets(tensor: TensorDescriptor, *, whole: bool) -> NDArray[np.int64]:
    """Return the address of every byte; with *whole*, of all lanes of its bricks."""
    if whole and tensor.layout is Layout.NCHW16C:
        channels = -(-(tensor.lane + tensor.dims[1]) // 16) * 16
        dims = (tensor.dims[0], channels, *tensor.dims[2:])
        tensor = replace(tensor, lane=0, dims=dims)
    return (addresses(tensor)[..., None] + np.arange(tensor.dtype.size)).ravel()


def _output_bytes(image: Image) -> Bytes:
    """Return the mask of the bytes that the host reads after a run."""
    sram = image.target.sram_bytes
    mask = np.zeros(sram + image.program.header.arena_bytes, bool)
    for entry in image.program.interface:
        if entry.direction is Direction.OUTPUT:
            mask[_octets(image.program.tensors[entry.tensor], whole=False) + sram] = True
    return mask


def dead_before(image: Image, events: Sequence[Event]) -> list[Bytes]:
    """Return, for each event of a run and for its end, what nothing reads before it is written.

    A DMA moves whole bricks, but what it reads in lanes beyond the channels means nothing.
    """
    found = accesses(image)
    tensors = image.program.tensors
    position = {step.index: i for i, step in enumerate(image.steps)}
    sram = image.target.sram_bytes
    live = _output_bytes(image)
    dead = [~live]
    for index, what in reversed(events):
        access = found[position[index]]
        if what == "end":
            live = live & ~access.writes
        else:
            live = live.copy()
            for operand in image.program.toas[index].tensors[:4]:
                if operand != NO_TENSOR and tensors[operand].space is not Space.CONSTANTS:
                    start = sram if tensors[operand].space is Space.ARENA else 0
                    live[_octets(tensors[operand], whole=False) + start] = True
        dead.append(~live)
    return dead[::-1]


def waits_of(toa: Toa) -> Iterator[tuple[Unit, int]]:
    """Yield (unit, count) of each wait that counts."""
    for unit, flag, count in zip(Unit, _FLAGS, toa.waits, strict=True):
        if toa.flags & flag:
            yield unit, count


def _clocks(toas: Sequence[Toa]) -> list[dict[Unit, int]]:
    """Return, for each TOA of a ring, how many TOAs of each unit have surely ended before it."""
    places: dict[Unit, list[int]] = {unit: [] for unit in Unit}
    made: list[dict[Unit, int]] = []
    for index, toa in enumerate(toas):
        own = places[toa.unit]
        before = [(toa.unit, len(own)), *waits_of(toa)]
        clock = dict.fromkeys(Unit, 0)
        for unit, count in before:
            if count:
                earlier = made[places[unit][count - 1]]
                clock = {u: max(clock[u], earlier[u]) for u in Unit}
            clock[unit] = max(clock[unit], count)
        made.append(clock)
        own.append(index)
    return made


def hazards(toas: Sequence[Toa], found: Sequence[Access]) -> list[tuple[str, int, int]]:
    """Return (kind, earlier, later) of every hazard that waits and unit order leave open."""
    clock = _clocks(toas)
    ordinal, counts = [], dict.fromkeys(Unit, 0)
    for toa in toas:
        counts[toa.unit] += 1
        ordinal.append(counts[toa.unit])
    opened = []
    for later, toa in enumerate(toas):
        for earlier in range(later):
            unit = toas[earlier].unit
            if unit is not toa.unit and clock[later][unit] < ordinal[earlier]:
                kinds = _kinds(found[earlier], found[later])
                opened += [(kind, earlier, later) for kind in kinds]
    return opened


def _kinds(earlier: Access, later: Access) -> Iterator[str]:
    pairs = (
        ("RAW", earlier.writes, later.reads),
        ("WAR", earlier.reads, later.writes),
        ("WAW", earlier.writes, later.writes),
    )
    for kind, first, second in pairs:
        if (first & second).any():
            yield kind


def random_timeline(image: Image, random: Random, *, slow: float = 0.3) -> Timeline:
    """Return a timeline that obeys unit order and waits and nothing else.

    A TOA takes 1 to 10 cycles, or with probability *slow* up to 1000, and starts late or at once.
    """
    ends: dict[Unit, list[int]] = {unit: [] for unit in Unit}
    slots: list[Any] = []
    for step, slot in zip(image.steps, image.timeline.slots, strict=True):
        own = ends[step.toa.unit]
        before = own[-1:] + [ends[u][n - 1] for u, n in waits_of(step.toa) if n]
        start = max(before, default=0) + random.choice((0, 0, random.randint(0, 50)))
        end = start + random.randint(1, 1000 if random.random() < slow else 10)
        own.append(end)
        slots.append(replace(slot, start=start, end=end))
    return replace(image.timeline, slots=slots)
