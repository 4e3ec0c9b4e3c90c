"""schedule: loads move ahead of the compute tasks that would hide them.

Invariant: tasks of a unit keep their order, and no load passes a task that touches its slot or
writes its source; so every order this pass makes computes the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuabi.enums import Unit
from npuc.ir.core import Graph, Op, Value
from npuc.npu.regions import root_of
from npuc.npu.tasks import Task, View
from npuc.passes.context import PassContext
from npuc.passes.level import Level

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """Let each DMA-in pass up to ``lookahead`` compute tasks; 0 leaves the order as it is.

    A load that moves ahead holds its slot longer than the budget of tiling counts.
    """

    NAME: ClassVar[str] = "schedule"
    LEVEL: ClassVar[Level] = Level.TASKS

    lookahead: int = 1
    """More than one fills the DMA queue, and the fetcher reaches the compute task late."""

    def run(self, graph: Graph, context: PassContext) -> None:
        """Reorder *graph* in place: memory first, then tasks, each behind its views."""
        tasks = [op for op in graph.ops if isinstance(op, Task)]
        ordered: list[Task] = []
        for task in tasks:
            ordered.insert(self._position(task, ordered), task)
        _reorder(graph, ordered)

    def _position(self, task: Task, ordered: list[Task]) -> int:
        position = len(ordered)
        if task.UNIT is not Unit.DMA_IN or not self.lookahead:
            return position
        passed = 0
        while position and not _blocks(ordered[position - 1], task):
            passed += ordered[position - 1].UNIT in (Unit.MAC, Unit.VECTOR)
            if passed > self.lookahead:
                break
            position -= 1
        return position


def _blocks(earlier: Task, load: Task) -> bool:
    """Return whether *load* must stay behind *earlier*."""
    source, slot = root_of(load.inputs[0])[0], root_of(load.output)[0]
    touched = [root_of(v)[0] for v in earlier.inputs]
    return earlier.UNIT is Unit.DMA_IN or slot in touched or root_of(earlier.output)[0] is source


def _reorder(graph: Graph, tasks: list[Task]) -> None:
    memory = [op for op in graph.ops if not isinstance(op, Task | View)]
    order: dict[Op, None] = dict.fromkeys(memory)
    for task in tasks:
        for value in task.inputs:
            _declare(value, order)
        order[task] = None
    rest = [op for op in graph.ops if op not in order]
    for op in [*order, *rest]:
        graph.remove(op)
        graph.append(op)


def _declare(value: Value, order: dict[Op, None]) -> None:
    if isinstance(value.owner, View):
        order[value.owner] = None
