"""Memory cut into pieces: byte ranges that each record of a program covers whole or not at all.

What is true of one byte of a piece is true of all, so a shadow with an entry a piece is exact.
A tensor's bytes are of two kinds:

| bytes | are | touched by |
| --- | --- | --- |
| elements | those of its elements; of weights whole blocks: zeros beyond O, I count | all |
| spare | the other lanes of its 16-channel bricks | a DMA that writes it |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Layout, Space
from npuabi.errors import ErrorCode
from npuabi.geometry import LANES, merged, runs_of
from npuabi.records import NO_TENSOR, TensorDescriptor
from npufw.boot import Image
from npufw.errors import FirmwareError
from npufw.memory import geometry_of

__all__ = ["Extent", "Indices", "Pieces"]

Indices = NDArray[np.int64]
Ranges = tuple[Indices, Indices]
"""Where ranges start and where they end, not counted."""

_MOST_RUNS = 1 << 22
_REMEDY = "run it without --sanitize, or faults --without ripple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Bytes of one memory: *count* of them from *first* to *end*, which is not counted."""

    space: Space
    first: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class _Group:
    """Runs of *length* bytes, (count, stride) apart, the first at *offset* from the base."""

    offset: int
    pairs: list[tuple[int, int]]
    length: int

    @property
    def runs(self) -> int:
        return math.prod(count for count, _ in self.pairs)


class Pieces:
    """SRAM and arena of an image, cut wherever a record in use begins or ends a run of bytes.

    Raises FirmwareError BAD_COUNT for a program of more than 4 million such runs.
    """

    def __init__(self, image: Image) -> None:
        self._arena = image.target.sram_bytes
        tensors, used = image.program.tensors, _used(image)
        elements = {i: _elements(tensors[i]) for i in used}
        spare = {i: _spare(tensors[i]) for i in used}
        groups = [group for found in (elements, spare) for own in found.values() for group in own]
        if sum(group.runs for group in groups) > _MOST_RUNS:
            text = f"the tensors lie in more than {_MOST_RUNS} pieces, which no shadow here holds"
            raise FirmwareError(ErrorCode.BAD_COUNT, text, remedy=_REMEDY)
        whole = self._arena + image.program.header.arena_bytes
        bases = {i: tensors[i].base + self._low(tensors[i].space) for i in used}
        own = {i: _ranges(bases[i], elements[i]) for i in used}
        rest = {i: _ranges(bases[i], spare[i]) for i in used}
        bounds = [bound for found in (own, rest) for ranges in found.values() for bound in ranges]
        self._cuts = np.unique(np.concatenate([*bounds, np.array([0, self._arena, whole])]))
        self._elements = {i: self._cut(ranges) for i, ranges in own.items()}
        self._spare = {i: self._cut(ranges) for i, ranges in rest.items()}

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return len(self._cuts) - 1

    @property
    def bounds(self) -> Indices:
        """Where pieces begin, those of SRAM first, and where the last one ends."""
        return self._cuts

    @property
    def arena(self) -> int:
        """Where among these addresses the arena begins."""
        return self._arena

    def __contains__(self, tensor: int) -> bool:
        """Whether *tensor* is a tensor in use outside the constants."""
        return tensor in self._elements

    def elements(self, tensor: int) -> Indices:
        """Return the pieces of the elements of tensor *tensor*, which is in use."""
        return _expanded(*self._elements[tensor])

    def spare(self, tensor: int) -> Indices:
        """Return the pieces of the lanes beyond its channels."""
        return _expanded(*self._spare[tensor])

    def holds(self, tensor: int, piece: int) -> bool:
        """Return whether *piece* is one of tensor *tensor*'s, spare lanes included."""
        tables = self._elements[tensor], self._spare[tensor]
        return any(bool(((starts <= piece) & (piece < ends)).any()) for starts, ends in tables)

    def distance(self, tensor: int, piece: int) -> int:
        """Return how many pieces lie between *piece* and the reach of a tensor; 0 inside."""
        starts, ends = self._elements[tensor]
        return max(0, int(starts.min()) - piece, piece - int(ends.max()) + 1)

    def extent(self, pieces: Indices) -> Extent:
        """Return what *pieces* of one memory cover."""
        first, end = self._cuts[pieces], self._cuts[pieces + 1]
        space = Space.SRAM if first[0] < self._arena else Space.ARENA
        low = self._low(space)
        return Extent(
            space=space,
            first=int(first.min()) - low,
            end=int(end.max()) - low,
            count=int((end - first).sum()),
        )

    def _low(self, space: Space) -> int:
        return self._arena if space is Space.ARENA else 0

    def _cut(self, ranges: Ranges) -> Ranges:
        starts, ends = ranges
        return np.searchsorted(self._cuts, starts), np.searchsorted(self._cuts, ends)


def _used(image: Image) -> list[int]:
    """Return the tensors of SRAM and arena that a TOA, a port or a state names."""
    program = image.program
    found = {entry.tensor for entry in program.interface}
    found.update(state.tensor for state in program.states)
    found.update(i for step in image.steps for i in step.toa.tensors if i != NO_TENSOR)
    return sorted(i for i in found if program.tensors[i].space is not Space.CONSTANTS)


def _elements(tensor: TensorDescriptor) -> list[_Group]:
    geometry = geometry_of(tensor)
    if tensor.layout is not Layout.NCHW16C:
        return [_group(tensor, 0, geometry.counts, geometry.inner_bytes)]
    return [_lanes(tensor, *part) for part in _bricks(tensor)]


def _spare(tensor: TensorDescriptor) -> list[_Group]:
    if tensor.layout is not Layout.NCHW16C:
        return []
    found = []
    for brick, count, low, high in _bricks(tensor):
        found += [_lanes(tensor, brick, count, 0, low)] if low else []
        found += [_lanes(tensor, brick, count, high, LANES)] if high < LANES else []
    return found


def _bricks(tensor: TensorDescriptor) -> list[tuple[int, int, int, int]]:
    """Return (first brick, bricks, first lane, last lane + 1) of alike neighbours."""
    count = geometry_of(tensor).counts[1]
    high = (tensor.lane + tensor.dims[1] - 1) % LANES + 1
    if count == 1:
        return [(0, 1, tensor.lane, high)]
    head, tail = int(tensor.lane > 0), int(high < LANES)
    parts = [
        (0, head, tensor.lane, LANES),
        (head, count - head - tail, 0, LANES),
        (count - 1, tail, 0, high),
    ]
    return [part for part in parts if part[1]]


def _lanes(tensor: TensorDescriptor, brick: int, count: int, low: int, high: int) -> _Group:
    n, _, h, w = geometry_of(tensor).counts
    size = tensor.dtype.size
    offset = brick * tensor.strides[1] + low * size
    return _group(tensor, offset, (n, count, h, w), (high - low) * size)


def _group(tensor: TensorDescriptor, offset: int, counts: Sequence[int], length: int) -> _Group:
    return _Group(offset, *merged(counts, tensor.strides, length))


def _ranges(base: int, groups: Sequence[_Group]) -> Ranges:
    starts = [base + group.offset + runs_of(group.pairs) for group in groups]
    ends = [first + group.length for first, group in zip(starts, groups, strict=True)]
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *starts]), np.concatenate([none, *ends])


def _expanded(starts: Indices, ends: Indices) -> Indices:
    """Return the numbers of all ranges, in their order."""
    if len(starts) == 1:
        return np.arange(starts[0], ends[0])
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
