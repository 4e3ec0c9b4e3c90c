"""depend: each task learns which earlier TOAs it must wait for.

The hazards are found byte by byte: a read waits for the last write, a write for the last write and
the last reads of any byte it touches. A unit runs in order, so one count a unit is exact and waits
within a unit are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuabi.enums import Space, Unit
from npuc.ir.core import Graph, Value
from npuc.npu.regions import geometry
from npuc.npu.tasks import Task, buffer_type
from npuc.passes.context import PassContext
from npuc.passes.level import Level

__all__ = ["Depend"]

_MOST_RUNS = 256
_UNITS = len(Unit)

_WRITABLE = frozenset({Space.SRAM, Space.ARENA})

Cut = tuple[int, int]
Span = tuple[int, int]


@dataclass(frozen=True)
class Depend:
    """Set the ``waits`` of every task."""

    NAME: ClassVar[str] = "depend"
    LEVEL: ClassVar[Level] = Level.TASKS

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite the tasks' attributes in place."""
        tasks = [op for op in graph.ops if isinstance(op, Task)]
        memory = _Memory(tasks)
        finished: Counter[Unit] = Counter()
        for task in tasks:
            reads = [cut for value in task.reads for cut in memory.cuts(value)]
            writes = memory.cuts(task.output)
            waits = memory.waits(reads, writes)
            finished[task.UNIT] += 1
            memory.note(reads, writes, task.UNIT, finished[task.UNIT])
            waits[task.UNIT - 1] = -1
            task.attributes["waits"] = tuple(w if w > 0 else -1 for w in waits)


class _Memory:
    """For each stretch between two access boundaries of a space: who touched it last.

    A cut is a range of stretches. Tables hold, for each unit, the count of its last TOA.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        found: set[tuple[Space, int]] = set()
        for task in tasks:
            for value in task.inputs:
                space = buffer_type(value).place.space
                if space in _WRITABLE:
                    found.update((space, bound) for span in spans_of(value) for bound in span)
        self._numbers = {bound: number for number, bound in enumerate(sorted(found))}
        self._written = np.zeros((_UNITS, len(found)), np.int64)
        self._touched = np.zeros((_UNITS, len(found)), np.int64)

    def cuts(self, value: Value) -> list[Cut]:
        """Return the stretches of a buffer; none for constants, which nobody writes."""
        space = buffer_type(value).place.space
        if space not in _WRITABLE:
            return []
        return [(self._numbers[space, a], self._numbers[space, b]) for a, b in spans_of(value)]

    def waits(self, reads: Sequence[Cut], writes: Sequence[Cut]) -> list[int]:
        """Return, for each unit, the count that such a task waits for; 0 for none."""
        latest = np.zeros(_UNITS, np.int64)
        for table, cuts in ((self._written, reads), (self._touched, writes)):
            for a, b in cuts:
                np.maximum(latest, table[:, a:b].max(axis=1), out=latest)
        counts: list[int] = latest.tolist()
        return counts

    def note(self, reads: Sequence[Cut], writes: Sequence[Cut], unit: Unit, count: int) -> None:
        """Record that TOA number *count* of *unit* touched these stretches."""
        for a, b in (*reads, *writes):
            self._touched[unit - 1, a:b] = count
        for a, b in writes:
            self._written[unit - 1, a:b] = count


def spans_of(value: Value) -> list[Span]:
    """Return the byte ranges of a placed buffer, all of it when they are very many."""
    buffer = buffer_type(value)
    base = buffer.place.offset or 0
    found = geometry(buffer)
    offsets, length = found.runs()
    if len(offsets) > _MOST_RUNS:
        return [(base, base + found.extent)]
    return [(base + int(o), base + int(o) + length) for o in offsets]
