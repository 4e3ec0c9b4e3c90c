"""What a read may meet: bytes written under its name, with its element type, all of one time.

Invariant: findings are about ring order, the order in which a program means its TOAs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from npufw.boot import Image
from npufw.sanitize_blame import Blame
from npufw.sanitize_findings import HOST_READS, HOST_WRITES, Access, Findings, Kind
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
        self._tensors = image.program.tensors
        self._pieces, self._shadow, self._findings = pieces, shadow, findings
        self._writes = writes
        self._blame = Blame(image, pieces, shadow, findings, writes)
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
            self._blame.report(access, pieces[wrong])
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
