"""Tasks that take rows in one piece, as each result needs all of one: norms, softmax, reductions.

Invariant: a stripe of such a task holds whole rows, however little SRAM there is.
"""

from __future__ import annotations

import math

from npuc.npu.tasks import ArgMax, GlobalAvgPool, LogSoftmax, Norm, Reduce, Softmax, Task

__all__ = ["row_elements"]


def row_elements(task: Task) -> int:
    """Return the elements of a row that is never cut; 1 for a task that has none."""
    dims, kernel = task.inputs[0].tensor.dims, task.attributes["kernel"]
    if isinstance(task, Softmax | LogSoftmax | ArgMax):
        return int(dims[kernel[0]])
    if isinstance(task, Norm):
        whole = math.prod(n for axis, n in enumerate(dims) if kernel[0] >> axis & 1)
        return whole // int(task.attributes["groups"])
    if isinstance(task, Reduce | GlobalAvgPool):
        pairs = zip(dims, task.output.tensor.dims, strict=True)
        return math.prod(n for n, kept in pairs if kept == 1)
    return 1
