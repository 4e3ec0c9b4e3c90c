"""Which accesses of a byte nothing orders, and waits for what nobody reads.

The last access of a unit stands for all its earlier ones, because a unit runs in order.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from npuabi.records import NO_TENSOR
from npufw.boot import Image
from npufw.sanitize_findings import OUTPUT, Access, Findings, Kind, bytes_text
from npufw.sanitize_order import Order
from npufw.sanitize_pieces import Indices, Pieces
from npufw.sanitize_shadow import Shadow

__all__ = ["Races"]


class Races:
    """Checks accesses against *shadow*; *writes* are all writing accesses, by ring position."""

    def __init__(
        self,
        image: Image,
        pieces: Pieces,
        shadow: Shadow,
        findings: Findings,
        writes: dict[int, Access],
    ) -> None:
        self._steps, self._image = image.steps, image
        self._pieces, self._shadow, self._findings = pieces, shadow, findings
        self._writes = writes
        self.order = Order([step.toa for step in image.steps])

    def check(self, access: Access, pieces: Indices) -> None:
        """Check that all other units' accesses that this one must come after surely do."""
        self._after(access, pieces, self._shadow.written, writes=True)
        if access.writes:
            self._after(access, pieces, self._shadow.touched, writes=False)

    def _after(
        self, access: Access, pieces: Indices, table: NDArray[np.int64], *, writes: bool
    ) -> None:
        clock, found = self.order.clocks[access.position], table[:, pieces]
        for unit in np.flatnonzero(found.max(axis=1) > clock).tolist():
            if unit == self.order.units[access.position]:
                continue  # its own read: a TOA reads before it writes
            late = found[unit]
            for count in np.unique(late[late > clock[unit]]).tolist():
                both = pieces[late == count]
                self._report(access, self.order.member(unit, count), both, writes=writes)

    def _report(self, access: Access, earlier: int, pieces: Indices, *, writes: bool) -> None:
        other = self._writes[earlier] if writes else self._reader(earlier, int(pieces[0]))
        found, extent = self._findings, self._pieces.extent(pieces)
        does, did = ("writes" if a.writes else "reads" for a in (access, other))
        text = (
            f"{found.who(access)} {does} {bytes_text(extent)} as {found.name(access.tensor)}, "
            f"{found.who(other)} {did} them as {found.name(other.tensor)}, and no wait orders the "
            f"two; {self._outcome(access.position, earlier)}"
        )
        found.add(Kind.RACE, text, (access, other), extent)

    def _reader(self, position: int, piece: int) -> Access:
        for operand, tensor in enumerate(self._steps[position].toa.tensors[:OUTPUT]):
            if tensor in self._pieces and self._pieces.holds(tensor, piece):
                return Access(position, operand, tensor)
        raise LookupError(f"position {position} does not read piece {piece}")

    def _outcome(self, later: int, earlier: int) -> str:
        slots = self._image.timeline.slots
        early = slots[earlier].end - slots[later].start
        index = self._steps[later].index
        if early > 0:
            return f"as timed here TOA {index} comes {early} cycles too early"
        return "as timed here they happen to come in the right order"

    def waits_for_nothing(self, used: Collection[int]) -> None:
        """Report each TOA whose bytes nobody reads, and that is waited for by one that shares none.

        Such a wait names what its TOA should have found: the bytes have gone elsewhere.
        """
        for position in range(len(self._steps)):
            for earlier in self.order.waited(position):
                write = self._writes.get(earlier)
                if write is None or earlier in used or self._share(position, earlier):
                    continue
                found = self._findings
                waiter = Access(position, OUTPUT, self._steps[position].toa.tensors[OUTPUT])
                extent = self._pieces.extent(self._pieces.elements(write.tensor))
                text = (
                    f"{found.who(waiter)} waits for {found.who(write)} and shares no byte with it, "
                    f"and nobody reads the {bytes_text(extent)} that it writes as "
                    f"{found.name(write.tensor)}"
                )
                found.add(Kind.LOST, text, (waiter, write), extent)

    def _share(self, one: int, other: int) -> bool:
        return bool(np.intersect1d(self._touched(one), self._touched(other)).size)

    def _touched(self, position: int) -> Indices:
        tensors = [i for i in self._steps[position].toa.tensors if i != NO_TENSOR]
        found = [f(i) for i in tensors if i in self._pieces
                 for f in (self._pieces.elements, self._pieces.spare)]  # fmt: skip
        return np.concatenate(found)
