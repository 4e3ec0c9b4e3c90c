"""Refuse what the NPU cannot run, all of it in one error, and split outputs that share a buffer.

A graph may return an input, or one value twice: an ``identity`` gives each output its own buffer.
The host knows a returned input by its own name: its inputs and outputs are two name spaces.

Invariant: afterwards every op obeys its limits and every output is the result of another op.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from npuabi.checks import MAX_INTERFACES
from npuabi.enums import DType
from npuabi.target import Target
from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.const import Const
from npuc.ir.core import Graph, Op, Value
from npuc.ops.identity import Identity
from npuc.passes.context import PassContext
from npuc.passes.edit import Names
from npuc.passes.level import Level

__all__ = ["Legalise", "refuse_unsupported"]


@dataclass(frozen=True, kw_only=True)
class Legalise:
    """Check every limit of every op."""

    NAME: ClassVar[str] = "legalise"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Check *graph*; raises one CompileError with every broken limit."""
        refuse_unsupported(graph, context.target)
        _separate_outputs(graph, context)


def refuse_unsupported(graph: Graph, target: Target) -> None:
    """Raise one CompileError with every limit that *graph* breaks, float or quantised.

    Whoever runs the graph asks first: what no NPU can hold, the host must not try to compute.
    """
    problems = [*_output_problems(graph), *_interface_problems(graph)]
    problems += [p for op in graph.ops for p in _op_problems(op)]
    problems += _size_problems(graph, target)
    if problems:
        raise CompileError(problems)


def _op_problems(op: Op) -> Iterator[Diagnostic]:
    dynamic = [v for v in (*op.inputs, *op.results) if None in v.tensor.shape]
    for value in dynamic[:1]:
        text = f"%{value.name} has a dynamic dim, bind it with --shape NAME=DIMS"
        yield Diagnostic(op.location, f"{op.NAME}: {text}")
    if dynamic:
        return
    for limit in op.broken_limits():
        remedy = f": {limit.remedy}" if limit.remedy else ""
        yield Diagnostic(op.location, f"{op.NAME}: {limit.text}{remedy}")


def _output_problems(graph: Graph) -> Iterator[Diagnostic]:
    if not graph.outputs:
        yield Diagnostic(graph.location, f"graph @{graph.name} returns nothing: add return %value")
    for value in graph.outputs:
        if isinstance(value.owner, Const):
            text = f"output %{value.name} does not depend on any input: do not return it"
            yield Diagnostic(value.owner.location, text)


def _interface_problems(graph: Graph) -> Iterator[Diagnostic]:
    """Inputs that no op reads are checked here; others are checked with their readers."""
    count = len(graph.arguments) + len(graph.outputs)
    if count > MAX_INTERFACES:
        text = f"graph @{graph.name} has {count} inputs and outputs, a blob has {MAX_INTERFACES}"
        yield Diagnostic(graph.location, f"{text}: use concat and split")
    for value in graph.arguments:
        shape = value.tensor.shape
        if len(shape) > 4 or None in shape or 0 in shape:
            text = f"input %{value.name} is {value.tensor}, expected at most 4 dims, known, not 0"
            yield Diagnostic(graph.location, text)


def _size_problems(graph: Graph, target: Target) -> Iterator[Diagnostic]:
    """An element has at least one byte; a value that no op reads or returns is in the way too."""
    for value in (*graph.arguments, *(v for op in graph.ops for v in op.results)):
        dims = [d for d in value.tensor.shape if d is not None]
        size = math.prod(dims) * value.tensor.dtype.size
        if value.tensor.dtype is DType.F32:
            size //= DType.F32.size  # int8 once it is quantised
        if size > target.ddr_bytes:
            ddr = f"the DDR of {target.name} has {target.ddr_mib} MiB"
            text = f"%{value.name} is {value.tensor}, {ddr}"
            place = value.owner.location if value.owner else graph.location
            yield Diagnostic(place, f"{text}: use a target with more, or a smaller batch")


def _separate_outputs(graph: Graph, context: PassContext) -> None:
    names = Names(graph)
    seen = set(graph.arguments)
    for index, value in enumerate(graph.outputs):
        if value in seen:
            copy = _copy(graph, value, names)
            if value.owner is None and index < len(graph.returned):
                context.ports[copy.name] = value.name
            graph.outputs = [*graph.outputs[:index], copy, *graph.outputs[index + 1 :]]
        seen.add(value)


def _copy(graph: Graph, value: Value, names: Names) -> Value:
    made = Identity(
        [value],
        result_types=[value.type],
        names=[names.fresh(f"{value.name}_copy")],
        location=value.owner.location if value.owner else graph.location,
    )
    return graph.append(made).result
