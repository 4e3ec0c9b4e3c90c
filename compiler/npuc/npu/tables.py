"""The tables of REMAP and RESIZE tasks: where along each dim an output element comes from.

A table lies behind the head of the parameters. Invariant: a stripe's parameters hold its part of
each table, with positions counted from the box of the input that the stripe reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.geometry import LANES
from npuc.ir.const import Const
from npuc.ir.core import Value
from npuc.npu.box import Box, whole
from npuc.npu.pack import HEAD_BYTES
from npuc.npu.tasks import Constant, Remap, Task, buffer_type

__all__ = [
    "NOWHERE",
    "Table",
    "constant_bytes",
    "largest_source",
    "pack_tables",
    "params_bytes",
    "source_of",
    "stripe_params",
]

NOWHERE = -1
"""The position of an element that comes from nowhere: it is the fill value."""

_WORD = 4
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Positions along *dim* of the input, and the words of their weights: (taps, extent) each."""

    dim: int
    positions: NDArray[np.int32]
    weights: NDArray[np.int32] | None = None

    def part(self, start: int, size: int, origin: int) -> Table:
        """Return the table of a range of the output, with positions counted from *origin*."""
        cut = self.positions[:, start : start + size]
        moved = np.where(cut == NOWHERE, NOWHERE, cut - origin).astype(np.int32)
        weights = None if self.weights is None else self.weights[:, start : start + size]
        return Table(self.dim, moved, weights)

    def spans(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (first, past the last) position of each range of *size* outputs; 0, 1 for none."""
        starts = np.arange(0, self.positions.shape[1], size)
        absent = self.positions == NOWHERE
        low = np.where(absent, np.iinfo(np.int32).max, self.positions).min(axis=0)
        first = np.minimum.reduceat(low, starts).astype(np.int64)
        last = np.maximum.reduceat(self.positions.max(axis=0), starts).astype(np.int64)
        return np.where(last < 0, 0, first), np.where(last < 0, 0, last) + 1


def pack_tables(tables: Sequence[Table]) -> Bytes:
    """Return the bytes of *tables*: of each the positions, then the weights if there are any."""
    parts = [a for t in tables for a in (t.positions, t.weights) if a is not None]
    return np.concatenate([np.ascontiguousarray(a, "<i4").view(np.uint8).ravel() for a in parts])


def source_of(task: Task, box: Box) -> Box:
    """Return the part of the input that *box* of the output takes elements from."""
    source = box
    for table in _tables(task):
        part = table.part(box.start[table.dim], box.size[table.dim], 0)
        first, past = (int(a[0]) for a in part.spans(box.size[table.dim]))
        source = source.along(table.dim, first, past - first)
    return source


def largest_source(task: Task, size: tuple[int, int, int, int]) -> Box:
    """Return a box that is as large as any that an output box of *size* takes elements from."""
    source = Box((0, 0, 0, 0), size)
    lane = buffer_type(task.inputs[0]).lane
    for table in _tables(task):
        first, past = table.spans(size[table.dim])
        if table.dim == 1:
            # Bricks are loaded whole.
            first = np.maximum((first + lane) // LANES * LANES - lane, 0)
        source = source.along(table.dim, 0, int((past - first).max()))
    return source


def stripe_params(task: Task, box: Box, source: Box) -> Bytes:
    """Return the parameters of the stripe that computes *box* from *source*."""
    head = constant_bytes(_params(task))[:HEAD_BYTES]
    parts = [
        table.part(box.start[table.dim], box.size[table.dim], source.start[table.dim])
        for table in _tables(task)
    ]
    return np.concatenate([head, pack_tables(parts)])


def params_bytes(task: Task, size: tuple[int, int, int, int]) -> int:
    """Return the bytes of the parameters of a stripe of *size*."""
    words = sum(taps * size[dim] * (2 if weighted else 1) for dim, taps, weighted in _forms(task))
    return HEAD_BYTES + words * _WORD


def constant_bytes(value: Value) -> Bytes:
    """Return the bytes of a constant."""
    owner = value.owner
    if not isinstance(owner, Constant) or not isinstance(owner.data.owner, Const):
        raise TypeError(f"%{value.name} is no constant")
    data: Bytes = owner.data.owner.value().ravel()
    return data


def _forms(task: Task) -> list[tuple[int, int, bool]]:
    """Return (dim, taps, whether there are weights) of the tables of a task, in order."""
    if isinstance(task, Remap):
        return [(dim, 1, False) for dim in range(4)]
    rows, columns = task.attributes["kernel"]
    return [(2, rows, True), (3, columns, True)]


def _tables(task: Task) -> Iterator[Table]:
    words = constant_bytes(_params(task))[HEAD_BYTES:].view("<i4")
    size, at = whole(task.output).size, 0
    for dim, taps, weighted in _forms(task):
        count = taps * size[dim]
        arrays = [words[at : at + count].reshape(taps, -1)]
        at += count
        if weighted:
            arrays.append(words[at : at + count].reshape(taps, -1))
            at += count
        yield Table(dim, *arrays)


def _params(task: Task) -> Value:
    found = task.named("params")
    if found is None:
        raise TypeError(f"{task.NAME} has no parameters")
    return found
