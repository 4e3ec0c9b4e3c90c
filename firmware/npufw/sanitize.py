"""The sanitizer: whether a program's TOAs keep out of each other's bytes, from its records alone.

A record's name is its intent: bytes that a TOA reads under a name must have been written under it.
The ring is walked once. A read's producer in ring order must be the same in every order that
units and waits allow, and it is when no two accesses of a byte, one of them a write, are left
unordered. So what is not found here cannot happen on any timeline. docs/machine.md has the rules.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from npuabi.container import read_blob
from npuabi.enums import Direction, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npuabi.target import Target
from npufw.boot import Image, refusals, unchecked
from npufw.errors import FirmwareError
from npufw.kernels import KERNELS
from npufw.kernels.base import Step
from npufw.sanitize_findings import HOST_READS, HOST_WRITES, OUTPUT, Access, Findings, Kind
from npufw.sanitize_pieces import Indices, Pieces
from npufw.sanitize_races import Races
from npufw.sanitize_reads import Reads
from npufw.sanitize_shadow import SPARE, Shadow

__all__ = ["sanitize", "sanitize_blob"]

_KINDS = {
    ErrorCode.OUT_OF_SRAM: Kind.OUT_OF_BOUNDS,
    ErrorCode.OUT_OF_ARENA: Kind.OUT_OF_BOUNDS,
    ErrorCode.OUT_OF_CONSTANTS: Kind.OUT_OF_BOUNDS,
    ErrorCode.OUT_OF_DDR: Kind.OUT_OF_BOUNDS,
    ErrorCode.MISALIGNED: Kind.MISALIGNED,
}
_PLACE = re.compile(r"(tensor|TOA) (\d+)\b")
"""What a refusal's text begins with when it is about one record."""
_MOST_USERS = 2


def sanitize(image: Image) -> Findings:
    """Return what is wrong with how *image*'s TOAs use SRAM and arena; it must have booted.

    Raises FirmwareError BAD_COUNT for a program whose memory lies in too many pieces.
    """
    return _Walk(image).run()


def sanitize_blob(raw: bytes, target: Target) -> Findings:
    """Return what is wrong with a blob: all that boot refuses or, if that is nothing, sanitize's.

    Raises AbiError for a blob that cannot be read at all.
    """
    loaded = read_blob(raw, target=target)
    refused = list(refusals(loaded.program, target))
    image = unchecked(loaded, target)
    return _refused(image, refused) if refused else sanitize(image)


def _refused(image: Image, errors: Sequence[FirmwareError]) -> Findings:
    findings, users = Findings(image), defaultdict[tuple[str, int], list[Access]](list)
    for position, step in enumerate(image.steps):
        for operand, tensor in enumerate(step.toa.tensors):
            users["tensor", tensor].append(Access(position, operand, tensor))
        users["TOA", step.index].append(Access(position, OUTPUT, step.toa.tensors[OUTPUT]))
    for error in errors:
        place = _PLACE.match(error.detail)
        shown = users[place[1], int(place[2])][:_MOST_USERS] if place else []
        kind, text = _KINDS.get(error.code, Kind.REFUSED), error.detail
        if kind.word != error.code.name.lower():
            text += f" ({error.code.name.lower()})"
        if text.startswith("tensor") and shown:
            text += "; used by " + " and ".join(findings.who(user) for user in shown)
        findings.add(kind, text, shown, code=error.code, group=text)
    return findings


class _Walk:
    """One walk over the ring of an image."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._findings = Findings(image)
        self._pieces = Pieces(image)
        self._shadow = Shadow.of(self._pieces.count)
        self._writes = _writes(image)
        parts = (image, self._pieces, self._shadow, self._findings, self._writes)
        self._reads, self._races = Reads(*parts), Races(*parts)

    def run(self) -> Findings:
        for access in self._writes.values():
            if access.position <= HOST_WRITES:
                self._set(access, self._pieces.elements(access.tensor))
        for position, step in enumerate(self._image.steps):
            self._step(position, step)
        for tensor in _host_tensors(self._image, Direction.OUTPUT):
            self._reads.check(Access(HOST_READS, 0, tensor), self._pieces.elements(tensor))
        self._races.waits_for_nothing(self._reads.used)
        self._reads.views.report()
        return self._findings

    def _step(self, position: int, step: Step) -> None:
        row, count = self._races.order.units[position], self._races.order.counts[position]
        for operand, tensor in enumerate(step.toa.tensors[:OUTPUT]):
            if tensor in self._pieces:
                access, pieces = Access(position, operand, tensor), self._pieces.elements(tensor)
                self._reads.check(access, pieces)
                self._races.check(access, pieces)
                self._shadow.touched[row, pieces] = count
                self._shadow.consumed[pieces] = True
        write = self._writes.get(position)
        if write is None:
            return
        pieces = self._pieces.elements(write.tensor)
        self._reads.replaces(write, pieces)
        self._races.check(write, pieces)
        self._set(write, pieces)
        self._shadow.written[row, pieces] = count
        if KERNELS[step.toa.opcode].raw:
            self._spoil(write, row, count)

    def _spoil(self, write: Access, row: int, count: int) -> None:
        """A DMA moves whole bricks: what it puts into the other lanes means nothing."""
        spare = self._pieces.spare(write.tensor)
        if spare.size:
            self._races.check(write, spare)
            self._shadow.write(spare, SPARE, write.position)
            self._shadow.written[row, spare] = count

    def _set(self, write: Access, pieces: Indices) -> None:
        symbol = self._image.program.tensors[write.tensor].symbol
        self._shadow.write(pieces, symbol, write.position)


def _writes(image: Image) -> dict[int, Access]:
    """Return all writing accesses by their position, in order.

    A range of K that is not the last leaves its sums in the accumulators.
    """
    tensors = _host_tensors(image, Direction.INPUT)
    hosts = [Access(HOST_WRITES - i, OUTPUT, tensor) for i, tensor in enumerate(tensors)]
    found = {access.position: access for access in reversed(hosts)}
    for position, step in enumerate(image.steps):
        if step.toa.unit is not Unit.MAC or step.toa.flags & ToaFlag.WRITE:
            found[position] = Access(position, OUTPUT, step.toa.tensors[OUTPUT])
    return found


def _host_tensors(image: Image, direction: Direction) -> list[int]:
    """Return what is in place before a run, or is looked at behind it: ports and states."""
    program = image.program
    ports = [entry.tensor for entry in program.interface if entry.direction is direction]
    return [*ports, *(state.tensor for state in program.states)]
