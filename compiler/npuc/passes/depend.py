"""depend: each task learns which earlier TOAs it must wait for.

The hazards are found byte by byte: a read waits for the last write, a write for the last write and
the last reads of any byte it touches. A unit runs in order, so one count a unit is exact and waits
within a unit are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space, Unit
from npuc.ir.core import Graph, Value
from npuc.npu.regions import geometry
from npuc.npu.tasks import Task, buffer_type
from npuc.passes.context import PassContext

__all__ = ["Depend"]

_MOST_RUNS = 256
_UNITS = len(Unit)

Span = tuple[int, int]


@dataclass(frozen=True)
class Depend:
    """Set the ``waits`` of every task."""

    NAME: ClassVar[str] = "depend"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite the tasks' attributes in place."""
        tasks = [op for op in graph.ops if isinstance(op, Task)]
        memories = {space: _Memory(tasks, space) for space in (Space.SRAM, Space.ARENA)}
        finished: Counter[Unit] = Counter()
        for task in tasks:
            waits = np.full(_UNITS, -1, np.int64)
            for value in task.reads:
                _join(waits, memories, value, _Memory.last_writes)
            _join(waits, memories, task.output, _Memory.last_touches)
            finished[task.UNIT] += 1
            for value in task.reads:
                _note(memories, value, task.UNIT, finished[task.UNIT], write=False)
            _note(memories, task.output, task.UNIT, finished[task.UNIT], write=True)
            waits[task.UNIT - 1] = -1
            task.attributes["waits"] = tuple(int(w) if w > 0 else -1 for w in waits)


class _Memory:
    """For each stretch of one space between two access boundaries: who touched it last."""

    def __init__(self, tasks: Sequence[Task], space: Space) -> None:
        self.space = space
        bounds = {0}
        for task in tasks:
            for value in task.inputs:
                if buffer_type(value).place.space is space:
                    bounds.update(b for span in spans_of(value) for b in span)
        self._bounds = np.array(sorted(bounds), np.int64)
        self._written = np.zeros((_UNITS, len(bounds)), np.int64)
        self._read = np.zeros((_UNITS, len(bounds)), np.int64)

    def last_writes(self, spans: Sequence[Span]) -> NDArray[np.int64]:
        """Return, for each unit, the count of its last TOA that wrote any byte of *spans*."""
        return self._latest(self._written, spans)

    def last_touches(self, spans: Sequence[Span]) -> NDArray[np.int64]:
        """Return, for each unit, the count of its last TOA that touched any byte of *spans*."""
        return np.maximum(self.last_writes(spans), self._latest(self._read, spans))

    def _latest(self, table: NDArray[np.int64], spans: Sequence[Span]) -> NDArray[np.int64]:
        latest = np.zeros(_UNITS, np.int64)
        for a, b in self._cut(spans):
            np.maximum(latest, table[:, a:b].max(axis=1), out=latest)
        return latest

    def note(self, spans: Sequence[Span], unit: Unit, count: int, *, write: bool) -> None:
        """Record that TOA number *count* of *unit* touched *spans*."""
        table = self._written if write else self._read
        for a, b in self._cut(spans):
            table[unit - 1, a:b] = count

    def _cut(self, spans: Sequence[Span]) -> Iterator[tuple[int, int]]:
        for span in np.searchsorted(self._bounds, np.array(spans)).tolist():
            yield span[0], span[1]


def spans_of(value: Value) -> list[Span]:
    """Return the byte ranges of a placed buffer, all of it when they are very many."""
    buffer = buffer_type(value)
    base = buffer.place.offset or 0
    found = geometry(buffer)
    offsets, length = found.runs()
    if len(offsets) > _MOST_RUNS:
        return [(base, base + found.extent)]
    return [(base + int(o), base + int(o) + length) for o in offsets]


def _join(
    waits: NDArray[np.int64],
    memories: dict[Space, _Memory],
    value: Value,
    look: Callable[[_Memory, Sequence[Span]], NDArray[np.int64]],
) -> None:
    memory = memories.get(buffer_type(value).place.space)
    if memory is not None:
        np.maximum(waits, look(memory, spans_of(value)), out=waits)


def _note(
    memories: dict[Space, _Memory], value: Value, unit: Unit, count: int, *, write: bool
) -> None:
    memory = memories.get(buffer_type(value).place.space)
    if memory is not None:
        memory.note(spans_of(value), unit, count, write=write)
