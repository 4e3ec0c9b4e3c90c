"""The shadow of SRAM and arena: for each piece, who wrote it under which name, and who touched it.

Invariant: it is brought forward in ring order, the order in which a program means its TOAs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Unit
from npufw.sanitize_pieces import Indices

__all__ = ["NEVER", "NOBODY", "SPARE", "Shadow"]

NEVER = -1
"""The name of pieces that nobody has written."""
SPARE = -2
"""The name of lanes beyond the channels that a DMA has moved along: they mean nothing."""
NOBODY = -(1 << 40)
"""The writer of a piece that nobody has written."""

Table = NDArray[np.int64]


@dataclass(slots=True)
class Shadow:
    """Arrays with an entry a piece; the tables have a row for each unit.

    ``names``: symbol of the last write. ``writers``: its ring position, below 0 for the host.
    ``consumed``: whether it was read since. ``written``, ``touched``: the unit's last TOA that
    wrote or read the piece, counted from 1; 0 for none.
    """

    names: Table
    writers: Table
    consumed: NDArray[np.bool_]
    written: Table
    touched: Table

    @classmethod
    def of(cls, pieces: int) -> Shadow:
        """Return the shadow of memory that nobody has written."""
        return cls(
            np.full(pieces, NEVER, np.int64),
            np.full(pieces, NOBODY, np.int64),
            np.zeros(pieces, np.bool_),
            np.zeros((len(Unit), pieces), np.int64),
            np.zeros((len(Unit), pieces), np.int64),
        )

    def write(self, pieces: Indices, name: int, writer: int) -> None:
        """Note a write of *pieces* under *name*."""
        self.names[pieces] = name
        self.writers[pieces] = writer
        self.consumed[pieces] = False
