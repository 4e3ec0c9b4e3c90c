"""place: every SRAM buffer gets an offset, and with it its banks.

Buffers that one task streams together are put in different banks where there is room. Invariant:
buffers that are live at the same task never overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

from npuabi.enums import Space, Unit
from npuabi.geometry import LANES
from npuabi.target import Target
from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.core import Graph, Value
from npuc.ir.types import Place as At
from npuc.npu.allocate import Request, allocate
from npuc.npu.regions import geometry, root_of
from npuc.npu.stripes import SRAM_ALIGNMENT
from npuc.npu.tasks import Conv, Task, View, buffer_type
from npuc.passes.context import PassContext
from npuc.passes.level import Level

__all__ = ["Place", "SramOverflow", "settle"]


_DMA = (Unit.DMA_IN, Unit.DMA_OUT)
_BESIDE = 3
"""Tasks before and behind a transfer that it may run beside."""

_SOON = 4
"""Tasks behind the last use of a buffer within which its memory is better left alone."""


class SramOverflow(CompileError):
    """Buffers that are live together do not fit; a smaller tiling budget may help."""


@dataclass(frozen=True)
class Place:
    """Give SRAM buffers their offsets; ``banked`` keeps streams of one task in other banks."""

    NAME: ClassVar[str] = "place"
    LEVEL: ClassVar[Level] = Level.TASKS

    banked: bool = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite the types of SRAM buffers and their views in place."""
        tasks = [op for op in graph.ops if isinstance(op, Task)]
        roots, requests = live_ranges(tasks, Space.SRAM)
        bank = context.target.bank_bytes
        streams = _Streams(tasks, roots, requests, context.target)
        offsets = allocate(
            requests,
            alignment=SRAM_ALIGNMENT,
            capacity=context.sram_bytes,
            steps=bank if self.banked else None,
            cost=streams.cost if self.banked else None,
        )
        for index, (root, offset) in enumerate(zip(roots, offsets, strict=True)):
            if offset is None:
                raise _overflow(index, roots, requests, tasks, context.sram_bytes)
            settle(root, offset, bank)


def live_ranges(tasks: Sequence[Task], space: Space) -> tuple[list[Value], list[Request]]:
    """Return the root buffers of one space and the range of task indices each is live in."""
    found: dict[Value, list[int]] = {}
    for index, task in enumerate(tasks):
        for value in task.inputs:
            root = root_of(value)[0]
            if buffer_type(root).place.space is space:
                found.setdefault(root, [index, index])[1] = index
    sizes = [geometry(buffer_type(root)).extent for root in found]
    spans = zip(sizes, found.values(), strict=True)
    return list(found), [Request(size, first, last) for size, (first, last) in spans]


def settle(root: Value, offset: int, bank_bytes: int | None = None) -> None:
    """Put *root* at *offset* of its space, and its views with it."""
    for value in [root, *(v for user in root.users for v in user.results)]:
        buffer = buffer_type(value)
        inside = int(value.owner.offset) if isinstance(value.owner, View) else 0
        at = offset + inside
        bank = None if bank_bytes is None else at // bank_bytes
        value.type = replace(buffer, place=At(buffer.place.space, at), bank=bank)


class _Streams:
    """How much any two buffers are streamed together, and what sharing banks would cost."""

    def __init__(
        self,
        tasks: Sequence[Task],
        roots: Sequence[Value],
        requests: Sequence[Request],
        target: Target,
    ) -> None:
        self._bank = target.bank_bytes
        self._requests = requests
        self._together: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        number = {root: index for index, root in enumerate(roots)}
        for index, task in enumerate(tasks):
            self._note(_rates(task), number)
            if task.UNIT in _DMA:
                self._note_beside(index, tasks, number)
        self._soon = _reused_soon(tasks, requests)

    def cost(self, index: int, offset: int, offsets: Sequence[int | None]) -> float:
        """Return words that would wait if buffer *index* lay at *offset*."""
        total = self._waiting(index, offset, offsets)
        mine = self._banks(offset, self._requests[index].size)
        for other, words in self._together[index].items():
            at = offsets[other]
            if at is None:
                continue
            theirs = self._banks(at, self._requests[other].size)
            shared = min(mine[1], theirs[1]) - max(mine[0], theirs[0])
            wider = max(mine[1] - mine[0], theirs[1] - theirs[0])
            total += words * max(shared, 0) / wider
        return total

    def _waiting(self, index: int, offset: int, offsets: Sequence[int | None]) -> float:
        """Return the words of buffers that could be filled only when another is given up."""
        size, total = self._requests[index].size, 0
        for other in self._soon[index]:
            at, extent = offsets[other], self._requests[other].size
            if at is not None and at < offset + size and offset < at + extent:
                total += min(size, extent)
        return total / LANES

    def _banks(self, offset: int, size: int) -> tuple[int, int]:
        return offset // self._bank, (offset + size - 1) // self._bank + 1

    def _note_beside(self, index: int, tasks: Sequence[Task], number: dict[Value, int]) -> None:
        """Note a transfer's buffer against those of the compute tasks that it may run beside."""
        moved = _rates(tasks[index])
        beside = tasks[max(index - _BESIDE, 0) : index + _BESIDE + 1]
        for task in beside:
            shared = any(root_of(v)[0] in moved for v in task.inputs)
            if task.UNIT not in _DMA and not shared:
                self._note({**_rates(task), **moved}, number, only=moved)

    def _note(
        self,
        rates: Mapping[Value, float],
        number: dict[Value, int],
        only: Collection[Value] | None = None,
    ) -> None:
        """Note each pair of buffers; with *only*, the pairs of one of those and another."""
        chosen = None if only is None else {number[r] for r in only if r in number}
        known = [(number[r], w) for r, w in rates.items() if r in number]
        for (a, words_a), (b, words_b) in combinations(known, 2):
            if chosen is not None and (a in chosen) == (b in chosen):
                continue
            self._together[a][b] += min(words_a, words_b)
            self._together[b][a] += min(words_a, words_b)


def _reused_soon(tasks: Sequence[Task], requests: Sequence[Request]) -> dict[int, list[int]]:
    """Return, for each buffer, those that it gives way to, or that give way to it, too soon.

    One unit is still busy with the first when another could fill the second already.
    """
    begins: dict[int, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        begins[request.first].append(index)
    soon: dict[int, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        for moment in range(request.last + 1, min(request.last + 1 + _SOON, len(tasks))):
            if tasks[moment].UNIT is not tasks[request.last].UNIT:
                for other in begins[moment]:
                    soon[index].append(other)
                    soon[other].append(index)
    return soon


def _rates(task: Task) -> dict[Value, float]:
    """Return the words of each buffer that a task moves, roughly: streams of a product repeat."""
    n, c, h, w = task.output.tensor.dims
    words = n * c * h * w / 16
    rates = {root_of(v)[0]: words for v in task.inputs}
    weights = task.named("weights")
    if isinstance(task, Conv) and weights is not None:
        taps = weights.tensor.dims[1] * weights.tensor.dims[2] * weights.tensor.dims[3]
        for value in (task.inputs[0], weights):
            rates[root_of(value)[0]] = words * taps / 16
    return rates


def _overflow(
    index: int,
    roots: Sequence[Value],
    requests: Sequence[Request],
    tasks: Sequence[Task],
    limit: int,
) -> SramOverflow:
    task = tasks[requests[index].first]
    held = [
        f"%{roots[i].name} {r.size} bytes"
        for i, r in enumerate(requests)
        if r.first <= requests[index].last and r.last >= requests[index].first
    ]
    text = (
        f"{task.attributes['kind']} %{task.attributes['name']}: no room for "
        f"{requests[index].size} bytes in {limit} bytes of SRAM; live there: "
        f"{', '.join(held)}: use a target with more SRAM or a higher --sram-limit"
    )
    return SramOverflow([Diagnostic(task.location, text)])
