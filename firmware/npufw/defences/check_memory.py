"""The check memory beside the banks: which bytes have a CRC-32 of their own.

An *area* is a set of bytes that each record of the program covers whole or not at all, in pieces of
at most 4 KiB, since two or three flips in a longer run may cancel out. So a write renews whole
CRCs and never mixes into one the bytes of somebody else, which may have flipped; and a read checks
all of its bytes and no others. Lanes beyond the channels, which mean nothing, are in areas of
their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space, Unit
from npuabi.records import NO_TENSOR
from npufw.boot import Image
from npufw.memory import Memory
from npufw.sanitize_pieces import Indices, Pieces

__all__ = ["CHECKED_BYTES", "Area", "CheckMap"]

CHECKED_BYTES = 4096
"""Bytes under one CRC-32 at most: up to 11,450, any three flipped bits are found."""


@dataclass(frozen=True, slots=True)
class Area:
    """At most 4 KiB of one space: bytes *first* to *end*, or those that *places* list."""

    space: Space
    first: int
    end: int
    places: NDArray[np.int64] | None = None

    def read(self, memory: Memory) -> NDArray[np.uint8]:
        """Return its bytes, contiguous; a view where they lie so."""
        octets = memory.spaces[self.space]
        return octets[self.first : self.end] if self.places is None else octets[self.places]

    @property
    def octets(self) -> NDArray[np.int64]:
        """Where its bytes are in their space."""
        return np.arange(self.first, self.end) if self.places is None else self.places

    def write(self, memory: Memory, octets: NDArray[np.uint8]) -> None:
        """Put *octets* there."""
        where = slice(self.first, self.end) if self.places is None else self.places
        memory.spaces[self.space][where] = octets

    def crc(self, memory: Memory) -> int:
        """Return the CRC-32 of its bytes."""
        return zlib.crc32(self.read(memory).data)


class CheckMap:
    """The areas of an image, and which of them each tensor covers.

    Raises FirmwareError BAD_COUNT for a program whose memory lies in too many pieces.
    """

    def __init__(self, image: Image) -> None:
        pieces = Pieces(image)
        tensors = [i for i in range(len(image.program.tensors)) if i in pieces]
        moved = {s.toa.tensors[4] for s in image.steps if s.toa.unit in (Unit.DMA_IN, Unit.DMA_OUT)}
        moved.discard(NO_TENSOR)
        kinds = _kinds(pieces, tensors, moved)
        self.areas: list[Area] = []
        numbers: dict[int, range] = {}
        for kind, indices in _grouped(kinds):
            first = len(self.areas)
            self.areas += _areas(pieces, indices)
            numbers[kind] = range(first, len(self.areas))
        self._of = {t: _numbers(numbers, kinds[pieces.elements(t)]) for t in tensors}
        self._spare = {t: _numbers(numbers, kinds[pieces.spare(t)]) for t in moved if t in pieces}

    def of(self, tensor: int) -> tuple[int, ...]:
        """Return the areas of the elements of tensor *tensor*; none for constants and for none."""
        return self._of.get(tensor, ())

    def spare(self, tensor: int) -> tuple[int, ...]:
        """Return the areas of the other lanes, which a DMA to *tensor* overwrites."""
        return self._spare.get(tensor, ())


def _kinds(pieces: Pieces, tensors: list[int], moved: set[int]) -> NDArray[np.int64]:
    """Return a number for each piece, equal where the same tensors cover them; 0 for none."""
    # Each tensor has a random word, and a piece the XOR of those that cover it.
    words = np.asarray(np.random.PCG64(0).random_raw(2 * len(tensors)), np.uint64)
    marks = np.zeros(pieces.count, np.uint64)
    for place, tensor in enumerate(tensors):
        marks[pieces.elements(tensor)] ^= words[2 * place]
        if tensor in moved:
            marks[pieces.spare(tensor)] ^= words[2 * place + 1]
    known, kinds = np.unique(np.append(marks, np.uint64(0)), return_inverse=True)
    assert known[0] == 0
    return kinds[:-1].astype(np.int64)


def _grouped(kinds: NDArray[np.int64]) -> Iterator[tuple[int, Indices]]:
    """Yield each kind above 0 with its pieces, in order."""
    order = np.argsort(kinds, kind="stable")
    bounds = np.flatnonzero(np.diff(kinds[order])) + 1
    for indices in np.split(order, bounds):
        if len(indices) and kinds[indices[0]]:
            yield int(kinds[indices[0]]), indices


def _areas(pieces: Pieces, indices: Indices) -> Iterator[Area]:
    starts, ends = pieces.bounds[indices], pieces.bounds[indices + 1]
    joined = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    firsts = starts[np.append(0, joined)]
    lasts = ends[np.append(joined - 1, len(ends) - 1)]
    space = Space.ARENA if firsts[0] >= pieces.arena else Space.SRAM
    low = pieces.arena if space is Space.ARENA else 0
    if len(firsts) == 1:
        whole = range(int(firsts[0]) - low, int(lasts[0]) - low, CHECKED_BYTES)
        end = int(lasts[0]) - low
        yield from (Area(space, at, min(at + CHECKED_BYTES, end)) for at in whole)
        return
    places = np.concatenate([np.arange(a, b) for a, b in zip(firsts, lasts, strict=True)]) - low
    for at in range(0, len(places), CHECKED_BYTES):
        part = places[at : at + CHECKED_BYTES]
        yield Area(space, int(part[0]), int(part[-1]) + 1, part)


def _numbers(numbers: dict[int, range], kinds: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(n for kind in np.unique(kinds).tolist() for n in numbers[kind])
