"""Which activations stay in SRAM and how each task is cut: decided together, task by task.

Everything starts resident. Where the live buffers and a task's smallest slots exceed the budget,
the largest live buffer, one that the task does not touch first, moves to the arena. Invariant: at
each task the resident bytes and the chosen cut's slots fit the budget.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npuabi.enums import DType, Layout, Space
from npuabi.geometry import LANES
from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.core import Value
from npuc.ir.types import Place
from npuc.npu.regions import geometry, root_of
from npuc.npu.row_tasks import row_elements
from npuc.npu.stripes import Cut, Cutter, aligned
from npuc.npu.tasks import Task, buffer_type

__all__ = ["Residency"]

_WORDS = {"const": "parameters", "in": "input", "residual": "gamma and beta", "out": "output"}
"""What the slots of a task that takes whole rows hold."""


class Residency:
    """Chooses spills and cuts for a list of whole-op tasks.

    ``needed`` is what the choice took of the budget. Any budget from there up to the given one
    leads to the same choice: step by step the same cuts fit, the cheapest among them.
    """

    def __init__(self, tasks: Sequence[Task], cutter: Cutter, *, budget: int) -> None:
        self._tasks = tasks
        self.needed = 0
        self._budget = budget
        self._cutter = cutter
        self._touches = _touches(tasks)
        self._pinned = _pinned(tasks)
        self._live = np.zeros(len(tasks) + 1, np.int64)
        self._residents: list[dict[Value, None]] = [{} for _ in tasks]
        for root, indices in self._touches.items():
            if buffer_type(root).place.space is Space.SRAM:
                self._add(root, indices)

    def choose(self) -> list[Cut]:
        """Return a cut for each task; spilled roots have become arena buffers.

        Raises CompileError when a task does not fit even with everything else spilled.
        """
        cuts: dict[int, Cut] = {}
        waiting = list(range(len(self._tasks)))
        while waiting:
            index = heapq.heappop(waiting)
            if index in cuts:
                continue
            cut = self._cutter.choose(self._tasks[index], self._free(index))
            if cut is not None:
                cuts[index] = cut
                taken = int(self._live[index]) + self._cutter.need(self._tasks[index], cut)
                self.needed = max(self.needed, taken)
                continue
            for touched in self._spill(index):
                if cuts.pop(touched, None) is not None:
                    heapq.heappush(waiting, touched)
            heapq.heappush(waiting, index)
        return [cuts[i] for i in range(len(self._tasks))]

    def _free(self, index: int) -> int:
        return self._budget - int(self._live[index])

    def _add(self, root: Value, indices: Sequence[int]) -> None:
        first, last = indices[0], indices[-1]
        self._live[first : last + 1] += _bytes(root)
        for index in range(first, last + 1):
            self._residents[index][root] = None

    def _spill(self, index: int) -> Sequence[int]:
        """Move one live buffer to the arena; return the tasks that touch it."""
        touched = {root_of(v)[0] for v in self._tasks[index].inputs}
        able = [r for r in self._residents[index] if r not in self._pinned]
        if not able:
            raise self._over_budget(index)
        worst = max(able, key=lambda r: (r not in touched, _bytes(r)))
        indices = self._touches[worst]
        self._live[indices[0] : indices[-1] + 1] -= _bytes(worst)
        for passed in range(indices[0], indices[-1] + 1):
            self._residents[passed].pop(worst)
        _move_to_arena(worst)
        return indices

    def _over_budget(self, index: int) -> CompileError:
        task = self._tasks[index]
        held = [
            f"%{r.name} {geometry(buffer_type(r)).extent} bytes" for r in self._residents[index]
        ]
        why, remedy = "", "a smaller batch or a smaller kernel"
        row = row_elements(task)
        if row > 1:
            pieces = ", ".join(f"{_WORDS[k]} {n}" for k, n in self._cutter.pieces(task).items())
            why = f", as its rows of {row:,} elements are never cut ({pieces}),"
            narrow = task.inputs[0].tensor.dtype is DType.I8
            remedy = "smaller rows" + ("" if narrow else " or a narrower precision")
        text = (
            f"{task.attributes['kind']} %{task.attributes['name']} needs at least "
            f"{self._cutter.least(task)} bytes of SRAM{why} beside {', '.join(held) or 'nothing'}; "
            f"the limit is {self._budget} bytes: use a target with more SRAM, a higher "
            f"--sram-limit, {remedy}"
        )
        return CompileError([Diagnostic(task.location, text)])


def _bytes(root: Value) -> int:
    """Return the bytes that a resident buffer takes, up to where the next one may start."""
    return aligned(geometry(buffer_type(root)).extent)


def _touches(tasks: Sequence[Task]) -> dict[Value, list[int]]:
    """Return, for each root buffer, the indices of the tasks that read or write it."""
    found: dict[Value, list[int]] = {}
    for index, task in enumerate(tasks):
        for root in dict.fromkeys(root_of(v)[0] for v in task.inputs):
            found.setdefault(root, []).append(index)
    return found


def _pinned(tasks: Sequence[Task]) -> set[Value]:
    """Return the roots that some task writes in part of a brick: DMA moves whole bricks."""
    return {root_of(t.output)[0] for t in tasks if _cuts_a_brick(t.output)}


def _cuts_a_brick(value: Value) -> bool:
    """Return whether channels of the root lie beside those of *value* in one brick."""
    buffer, (root, offset) = buffer_type(value), root_of(value)
    if buffer.tensor.layout is not Layout.NCHW16C:
        return False
    per_image, per_brick, *_ = buffer_type(root).strides
    first = offset % per_image // per_brick * LANES + buffer.lane
    end, last = first + buffer.tensor.dims[1], root.tensor.dims[1]
    return bool(first % LANES or (end % LANES and end < last))


def _move_to_arena(root: Value) -> None:
    for value in [root, *(v for user in root.users for v in user.results)]:
        buffer = buffer_type(value)
        value.type = replace(buffer, place=Place(Space.ARENA))
