"""Which of the two forms of a graph a pass takes: ops on tensors, or npu tasks on buffers."""

from __future__ import annotations

from enum import Enum

from npuc.ir.core import Graph
from npuc.npu.tasks import BufferOp, Task

__all__ = ["Level", "level_of"]


class Level(Enum):
    """What a graph consists of, in words for a message."""

    GRAPH = "ops on tensors, as in the source"
    TASKS = "npu tasks on buffers, as the pass lower makes them"


def level_of(graph: Graph) -> Level:
    """Return what *graph* consists of; its first task or buffer decides."""
    held = any(isinstance(op, Task | BufferOp) for op in graph.ops)
    return Level.TASKS if held else Level.GRAPH
