"""Why a read meets bytes that are not its own: who wrote them, who should have, who took them away.

Invariant: told by the first piece of what one writer left; a search of the ring, made only when
something was found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npufw.boot import Image
from npufw.sanitize_findings import OUTPUT, Access, Findings, Kind
from npufw.sanitize_pieces import Indices, Pieces
from npufw.sanitize_shadow import Shadow

__all__ = ["Blame"]

_MOST_SHOWN = 2
"""TOAs that are named as those that should have written what is missing."""


class Blame:
    """Explains bad reads; *writes* are all writing accesses, by ring position."""

    def __init__(
        self,
        image: Image,
        pieces: Pieces,
        shadow: Shadow,
        findings: Findings,
        writes: dict[int, Access],
    ) -> None:
        self._steps, self._tensors = image.steps, image.program.tensors
        self._pieces, self._shadow, self._findings = pieces, shadow, findings
        self._writes = writes
        self._own: dict[int, NDArray[np.bool_]] = {}

    def report(self, access: Access, pieces: Indices) -> None:
        """Report *pieces* that hold nothing, or something else than the reader's tensor."""
        writers, unset = self._shadow.writers[pieces], self._shadow.names[pieces] < 0
        for writer, empty in sorted(set(zip(writers.tolist(), unset.tolist(), strict=True))):
            mine = pieces[(writers == writer) & (unset == empty)]
            other = self._writes.get(writer)
            shown = [access] if other is None else [access, other]
            group = (self._findings.group_of(shown), empty)
            if not self._findings.again(group):
                self._explain(access, mine, other, group, empty=empty)

    def _explain(
        self, access: Access, pieces: Indices, other: Access | None, group: object, *, empty: bool
    ) -> None:
        own = self._own_pieces(access.tensor)
        kind = Kind.UNINITIALISED
        if other is None:
            why = "which nobody has written"
        elif own[pieces].any():
            pieces = pieces[own[pieces]]
            if self._taken_away(access, pieces, group):
                return
            why = f"which so far hold {self._wrote(other)}"
        elif empty:
            why = f"lanes that mean nothing in what {self._findings.who(other)} moved"
        elif not own.any():
            why = f"which nobody writes; they hold {self._wrote(other)}"
        else:
            kind, why = (
                Kind.OUT_OF_BOUNDS,
                f"which never are its own; they hold {self._wrote(other)}",
            )
        extent = self._pieces.extent(pieces)
        should, said = self._who_should(access, int(pieces[0]))
        text = f"{self._findings.reads(access, extent)}, {why}{said}"
        accesses = [access, *([] if other is None else [other]), *should]
        self._findings.add(kind, text, accesses, extent, group=group)

    def _wrote(self, other: Access) -> str:
        return f"{self._name(other)}, written by {self._findings.who(other)}"

    def _who_should(self, access: Access, piece: int) -> tuple[list[Access], str]:
        """Return who wrote nearest the piece under the reader's name, else who writes it later."""
        alike = self._alike(access.tensor)
        earlier = [w for w in alike if w.position < access.position]
        if earlier:
            distances = [self._pieces.distance(w.tensor, piece) for w in earlier]
            near = [w for w, d in zip(earlier, distances, strict=True) if d == min(distances)]
            names = " and ".join(self._findings.who(w) for w in near[-_MOST_SHOWN:])
            return near[-_MOST_SHOWN:], f"; {names} wrote others of {self._name(access)}"
        later = [w for w in alike if self._pieces.holds(w.tensor, piece)][:1]
        return later, "".join(f"; {self._findings.who(w)} writes them later" for w in later)

    def _name(self, access: Access) -> str:
        return self._findings.name(access.tensor)

    def _taken_away(self, access: Access, pieces: Indices, group: object) -> bool:
        """Report bytes that were the reader's own and now are another's; False if they are not."""
        own, taker, consumed = self._history(access, int(pieces[0]))
        if own is None or taker is None:
            return False
        found, extent = self._findings, self._pieces.extent(pieces)
        taken = f"{found.who(taker)} wrote {self._name(taker)} over"
        if consumed:
            kind, why = (
                Kind.USE_AFTER_FREE,
                f"again, after {taken} what {found.who(own)} had written",
            )
        else:
            kind, why = Kind.OVERWRITE, f"but {taken} what {found.who(own)} had written for it"
        text = f"{found.reads(access, extent)}{' ' if consumed else ', '}{why}"
        found.add(kind, text, (access, taker, own), extent, group=group)
        return True

    def _history(self, access: Access, piece: int) -> tuple[Access | None, Access | None, bool]:
        """Return who last wrote the piece for the reader, who wrote over that, if it was read."""
        symbol = self._tensors[access.tensor].symbol
        own = taker = None
        consumed = False
        for position in range(min(self._writes), min(access.position, len(self._steps))):
            if own is not None and taker is None and not consumed:
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
        reads = self._steps[position].toa.tensors[:OUTPUT] if position >= 0 else ()
        return any(
            i in self._pieces and self._tensors[i].symbol == symbol and self._pieces.holds(i, piece)
            for i in reads
        )

    def _alike(self, tensor: int) -> list[Access]:
        symbol = self._tensors[tensor].symbol
        return [w for w in self._writes.values() if self._tensors[w.tensor].symbol == symbol]

    def _own_pieces(self, tensor: int) -> NDArray[np.bool_]:
        """Return the mask of all that is ever written under the name of *tensor*."""
        symbol = self._tensors[tensor].symbol
        if symbol not in self._own:
            mask = self._own[symbol] = np.zeros(self._pieces.count, np.bool_)
            for write in self._alike(tensor):
                mask[self._pieces.elements(write.tensor)] = True
        return self._own[symbol]
