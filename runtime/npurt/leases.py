"""Which outputs are out, and which of them nobody released.

Invariant: each lease ends once: by a release, by the destructor of outputs that were dropped, or
when the service closes; the last two are leaks, reported with the line that asked for the job.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from npurt.buffers import Block, BufferPool, Leak
from npurt.errors import UnreleasedOutputs

__all__ = ["Leases", "calling_line"]

_HERE = str(Path(__file__).parent)


def calling_line() -> str:
    """Return FILE:LINE of the nearest caller outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown:0"


@dataclass(slots=True)
class Leases:
    """The outputs that are out, by their job, with size and place."""

    pool: BufferPool
    leaks: list[Leak] = field(default_factory=list)
    _out: dict[int, tuple[int, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._out)

    def begin(self, job: int, size: int, place: str) -> None:
        """Outputs of *job* go out."""
        self._out[job] = (size, place)

    def give_back(self, job: int, blocks: Sequence[Block], released: bool) -> None:
        """Outputs come back; unless *released* by a destructor, which may run at any moment."""
        size, place = self._out.pop(job, (0, ""))
        if released:
            self.pool.take_back(blocks)
            return
        self.pool.drop(blocks)
        if place:
            self._report([Leak(job, size, place, at_close=False)])

    def close(self) -> None:
        """Report what is still out, and leave its memory to whoever holds it."""
        left = [(job, self._out.pop(job, None)) for job in list(self._out)]
        self._report([Leak(job, *lease, at_close=True) for job, lease in left if lease])

    def _report(self, leaks: Sequence[Leak]) -> None:
        self.leaks += leaks
        for leak in leaks:
            file, _, line = leak.place.rpartition(":")
            warnings.warn_explicit(str(leak), UnreleasedOutputs, file, int(line))
