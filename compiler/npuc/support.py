"""What the NPU can do with each op: the declarations, and what compiling the examples shows.

Invariant: nothing is stated here. An op has a precision when one of its examples compiles in it,
and becomes the opcodes that its examples become; all of them are tried in the first precision.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import npuc.ops
from npuabi.enums import Opcode
from npuabi.progress import Progress, silent
from npuabi.target import Target, load_target
from npuc.diagnostics import CompileError
from npuc.driver import Options, context_of
from npuc.ir.core import REGISTRY, Limit, Op
from npuc.ir.interpreter import evaluate
from npuc.npu.tasks import Task
from npuc.ops.example import graph_of
from npuc.passes import GRAPH_PASSES
from npuc.passes.lower import lowered
from npuc.passes.manager import PassManager
from npuc.samples import generated

__all__ = ["COMMON_LIMITS", "PRECISIONS", "Support", "close_names", "support_of", "supported"]

PRECISIONS = ("int8", "int16", "fp16", "fp32")
"""Precisions that are tried, the fastest first."""

COMMON_LIMITS: tuple[Limit, ...] = tuple(npuc.ops.Identity.LIMITS)
"""What every op obeys."""

_EDGES = frozenset({Opcode.CAST, Opcode.QUANTIZE, Opcode.DEQUANTIZE})
"""Opcodes of the conversions at a graph's inputs and outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """One op: its declaration, and its opcodes in each precision that it has."""

    kind: type[Op]
    precisions: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """The op's name in graph text."""
        return self.kind.NAME

    @property
    def limits(self) -> list[Limit]:
        """The limits that not every op has."""
        return [limit for limit in self.kind.LIMITS if limit not in COMMON_LIMITS]

    @property
    def opcodes(self) -> list[str]:
        """The opcodes of all precisions."""
        return list(dict.fromkeys(o for found in self.precisions.values() for o in found))


def supported(progress: Progress = silent) -> list[Support]:
    """Return every op of graph text, by name."""
    names = sorted(n for n in REGISTRY if n != "const" and "." not in n)
    target = load_target("edge")
    found = []
    for number, name in enumerate(names):
        progress(name, number, len(names))
        found.append(support_of(REGISTRY[name], target))
    return found


def support_of(kind: type[Op], target: Target) -> Support:
    """Return what the examples of one op show; *target* bounds sizes only."""
    found = {precision: _opcodes(kind, precision, target) for precision in PRECISIONS}
    return Support(kind=kind, precisions={p: o for p, o in found.items() if o is not None})


def close_names(name: str, count: int = 3) -> list[str]:
    """Return the ops whose names are most like *name*, which may be spelt as ONNX does."""
    known = [n for n in REGISTRY if "." not in n and n != "const"]
    return difflib.get_close_matches(name.lower(), known, count)


def _opcodes(kind: type[Op], precision: str, target: Target) -> tuple[str, ...] | None:
    """Return the opcodes that the examples become in one precision; None when none compiles."""
    tasks: list[Task] = []
    compiled = False
    for example in kind.examples():
        try:
            tasks += _tasks(example, precision, target)
        except CompileError:
            continue
        compiled = True
        if precision != PRECISIONS[0]:
            break  # one is enough to know that it can be done
    # Beside them are conversions at the edges; an op that a pass rewrites has no tasks of its name.
    own = [t for t in tasks if t.attributes["kind"] == kind.NAME]
    found = own or [t for t in tasks if t.OPCODE not in _EDGES]
    return tuple(dict.fromkeys(t.OPCODE.name.lower() for t in found)) if compiled else None


def _tasks(example: Op, precision: str, target: Target) -> list[Task]:
    graph = graph_of(example)
    inputs = {v.name: generated(v.tensor.dtype, v.tensor.dims, 0) for v in graph.inputs}
    options = Options(target=target, precision=precision, calibrate=inputs)
    context = context_of(graph, options, Path())
    PassManager([step() for step in GRAPH_PASSES]).run(graph, context)
    evaluate(graph, inputs, context.rounding, stored=True)
    return [op for op in lowered(graph, context).ops if isinstance(op, Task)]
