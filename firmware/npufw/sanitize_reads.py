"""What a read may meet: bytes written under its name, with its element type, all of one time.

Invariant: findings are about ring order, the order in which a program means its TOAs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from npuabi.records import NO_TENSOR
from npufw.boot import Image
from npufw.sanitize_findings import HOST_READS, HOST_WRITES, OUTPUT, Access, Findings, Kind
from npufw.sanitize_pieces import Indices, Pieces
from npufw.sanitize_records import Views, values_differ
from npufw.sanitize_shadow import Shadow

__all__ = ["Reads"]

_UNNAMED = 0
"""The symbol of tensors without a name: they may share bytes with any other."""
_MOST_WRITERS = 64
"""Writers of one read among which stale bytes are looked for."""


class Reads:
    """Checks reads against *shadow*; *writes* are all writing accesses, by ring position.

    ``used`` are the ring positions of TOAs whose bytes somebody has read, host writers below 0.
    """

    def __init__(
        self,
        image: Image,
        pieces: Pieces,
        shadow: Shadow,
        findings: Findings,
        writes: dict[int, Access],
    ) -> None:
        self._image, self._tensors = image, image.program.tensors
        self._pieces, self._shadow, self._findings = pieces, shadow, findings
        self._writes = writes
        self._own: dict[int, NDArray[np.bool_]] = {}
        self.views = Views(findings)
        self._replaced: dict[int, set[int]] = defaultdict(set)
        self.used: set[int] = set()

    def check(self, access: Access, pieces: Indices) -> None:
        """Check a read of *pieces* by all rules of this module."""
        symbol = self._tensors[access.tensor].symbol
        names = self._shadow.names[pieces]
        wrong = names < 0
        if symbol != _UNNAMED:
            wrong |= (names != symbol) & (names != _UNNAMED)
        if wrong.any():
            self._meets_others(access, pieces[wrong])
            pieces = pieces[~wrong]
        writers = np.unique(self._shadow.writers[pieces]).tolist()
        self.used.update(writers)
        for writer in writers:
            self._agrees(access, writer, pieces)
        if 1 < len(writers) <= _MOST_WRITERS:
            self._is_of_one_time(access, writers, pieces)

    def replaces(self, writer: Access, pieces: Indices) -> None:
        """Note whose bytes a write is about to replace after somebody has read them."""
        symbol = self._tensors[writer.tensor].symbol
        read = self._shadow.consumed[pieces] & (self._shadow.names[pieces] == symbol)
        for earlier in np.unique(self._shadow.writers[pieces[read]]).tolist():
            if earlier > HOST_WRITES:
                self._replaced[earlier].add(writer.position)

    def _agrees(self, access: Access, writer: int, pieces: Indices) -> None:
        """Writer and reader of one name state the same element type and scale."""
        other = self._writes[writer]
        records = self._tensors[other.tensor], self._tensors[access.tensor]
        if not records[0].symbol == records[1].symbol != _UNNAMED:
            return
        if access.position != HOST_READS:
            self.views.check(access, other)
        difference = values_differ(*records)
        if not difference:
            return
        extent = self._pieces.extent(pieces[self._shadow.writers[pieces] == writer])
        found = self._findings
        text = f"{found.reads(access, extent)} with {difference}, as {found.who(other)} wrote them"
        found.add(Kind.MISMATCH, text, (access, other), extent)

    def _is_of_one_time(self, access: Access, writers: Sequence[int], pieces: Indices) -> None:
        """No writer of the bytes has been replaced in part by another one of them."""
        for writer in writers:
            later = self._replaced.get(writer, set()).intersection(writers)
            if not later:
                continue
            old, new = self._writes[writer], self._writes[max(later)]
            extent = self._pieces.extent(pieces[self._shadow.writers[pieces] == writer])
            found = self._findings
            text = (
                f"{found.reads(access, extent)} that {found.who(old)} left there, beside what "
                f"{found.who(new)} has written over other parts of it"
            )
            found.add(Kind.STALE, text, (access, old, new), extent)

    def _meets_others(self, access: Access, pieces: Indices) -> None:
        """Report bytes that hold nothing, or something else than the reader's tensor."""
        writers, names = self._shadow.writers[pieces], self._shadow.names[pieces]
        for writer, unset in sorted(set(zip(writers.tolist(), (names < 0).tolist(), strict=True))):
            mine = pieces[(writers == writer) & ((names < 0) == unset)]
            other = self._writes.get(writer)
            shown = [access] if other is None else [access, other]
            group = (self._findings.group_of(shown), unset)
            if self._findings.again(group):
                continue
            if other is None:
                self._nothing(access, mine, group)
            else:
                self._something(access, mine, other, group, unset=unset)

    def _nothing(self, access: Access, pieces: Indices, group: object) -> None:
        extent = self._pieces.extent(pieces)
        found = self._findings
        text = f"{found.reads(access, extent)}, which nobody has written"
        hint = self._who_should(access, int(pieces[0]))
        if hint is None:
            found.add(Kind.UNINITIALISED, text, (access,), extent, group=group)
            return
        when = "later" if hint.position > access.position else "elsewhere"
        text += f"; {found.who(hint)} writes {found.name(hint.tensor)} {when}"
        found.add(Kind.UNINITIALISED, text, (access, hint), extent, group=group)

    def _who_should(self, access: Access, piece: int) -> Access | None:
        """Return who writes the piece later under the reader's name, or who wrote the name last."""
        symbol = self._tensors[access.tensor].symbol
        alike = [w for w in self._writes.values() if self._tensors[w.tensor].symbol == symbol]
        for write in alike:
            if write.position > access.position and self._pieces.holds(write.tensor, piece):
                return write
        earlier = [write for write in alike if write.position < access.position]
        return earlier[-1] if earlier else None

    def _something(
        self, access: Access, pieces: Indices, other: Access, group: object, *, unset: bool
    ) -> None:
        mask, found = self._own_pieces(access.tensor), self._findings
        own = mask[pieces]
        if own.any():
            self._lost(access, pieces[own], other, group)
            return
        extent = self._pieces.extent(pieces)
        text, who = found.reads(access, extent), found.who(other)
        if unset:
            kind, text = Kind.UNINITIALISED, f"{text}: lanes that mean nothing in what {who} moved"
        elif not mask.any():
            kind, text = Kind.UNINITIALISED, f"{text}, which nobody writes; they hold "
            text += f"{found.name(other.tensor)}, written by {who}"
        else:
            kind, text = Kind.OUT_OF_BOUNDS, f"{text}, which never are its own; they hold "
            text += f"{found.name(other.tensor)}, written by {who}"
        found.add(kind, text, (access, other), extent, group=group)

    def _lost(self, access: Access, pieces: Indices, other: Access, group: object) -> None:
        """Report bytes that were, or will be, the reader's own and now are another's."""
        extent = self._pieces.extent(pieces)
        found = self._findings
        who, reads = found.who, found.reads(access, extent)
        own, taker, consumed = self._history(access, int(pieces[0]))
        if own is None or taker is None:
            text = f"{reads}, which so far hold {found.name(other.tensor)}, written by {who(other)}"
            found.add(Kind.UNINITIALISED, text, (access, other), extent, group=group)
            return
        taken = f"{who(taker)} wrote {found.name(taker.tensor)}"
        if consumed:
            text = f"{reads} again, after {taken} over what {who(own)} had written"
            found.add(Kind.USE_AFTER_FREE, text, (access, taker, own), extent, group=group)
            return
        text = f"{reads}, but {taken} over what {who(own)} had written for it"
        found.add(Kind.OVERWRITE, text, (access, taker, own), extent, group=group)

    def _history(self, access: Access, piece: int) -> tuple[Access | None, Access | None, bool]:
        """Return who last wrote the piece for the reader, who wrote over that, if it was read."""
        symbol = self._tensors[access.tensor].symbol
        own = taker = None
        consumed = False
        for position in range(min(self._writes), min(access.position, len(self._image.steps))):
            if own is not None and taker is None and not consumed and position >= 0:
                consumed = self._reads_piece(position, piece, symbol)
            write = self._writes.get(position)
            if write is None or not self._pieces.holds(write.tensor, piece):
                continue
            if self._tensors[write.tensor].symbol == symbol:
                own, taker, consumed = write, None, False
            elif own is not None and taker is None:
                taker = write
        return own, taker, consumed

    def _reads_piece(self, position: int, piece: int, symbol: int) -> bool:
        reads = self._image.steps[position].toa.tensors[:OUTPUT]
        return any(
            i != NO_TENSOR and self._tensors[i].symbol == symbol and self._pieces.holds(i, piece)
            for i in reads
        )

    def _own_pieces(self, tensor: int) -> NDArray[np.bool_]:
        """Return the mask of all that is ever written under the name of *tensor*."""
        symbol = self._tensors[tensor].symbol
        if symbol not in self._own:
            mask = np.zeros(self._pieces.count, np.bool_)
            for write in self._writes.values():
                if self._tensors[write.tensor].symbol == symbol:
                    mask[self._pieces.elements(write.tensor)] = True
            self._own[symbol] = mask
        return self._own[symbol]
