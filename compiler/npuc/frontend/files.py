"""The files beside a graph text that it names, so that no output takes the place of one.

Invariant: naming them reads none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from npuc.ir.const import Const, File
from npuc.ir.core import Graph
from npuc.ir.state import initial_of

__all__ = ["files_of"]


def files_of(graph: Graph, folder: Path) -> Iterator[Path]:
    """Yield the weight files of *graph*, as it was parsed, and its calibration data in *folder*."""
    constants = [op for op in graph.ops if isinstance(op, Const)]
    for op in (*(initial_of(state) for state in graph.states), *constants):
        if isinstance(op.data, File):
            yield op.data.folder / op.data.name
    name = graph.attributes.get("calibration")
    if name is not None:
        yield folder / str(name)
