"""plan_memory: arena buffers and constants get their DDR offsets.

Inputs, outputs and states keep their place for the whole run, so that the host may write and read
them at any time; spilled activations share memory by their live ranges. Constants lie one after
another, equal ones once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from npuabi.enums import Space
from npuc.diagnostics import CompileError
from npuc.ir.const import Const
from npuc.ir.core import Graph, Value
from npuc.npu.allocate import Request, allocate, lower_bound
from npuc.npu.regions import geometry
from npuc.npu.tasks import HOST_ROLES, BufferOp, Constant, Task, buffer_type
from npuc.passes.context import PassContext
from npuc.passes.level import Level
from npuc.passes.place import live_ranges, settle

__all__ = ["ArenaPlan", "PlanMemory", "arena_plan", "constant_data"]


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Bytes of the arena, and the least that any plan needs."""

    size: int
    bound: int


@dataclass(frozen=True)
class PlanMemory:
    """Give arena buffers and constants their offsets."""

    NAME: ClassVar[str] = "plan_memory"
    LEVEL: ClassVar[Level] = Level.TASKS

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite the types of DDR buffers and their views in place."""
        alignment = context.target.dma_alignment
        roots, requests = _arena(graph, alignment)
        offsets = allocate(requests, alignment=alignment)
        for root, offset in zip(roots, offsets, strict=True):
            settle(root, offset or 0)
        total = _place_constants(graph, alignment)
        plan = arena_plan(graph, alignment)
        if plan.size + total > context.target.ddr_bytes:
            raise CompileError.at(
                graph.location,
                f"the model needs {plan.size} bytes of arena and {total} of constants; target "
                f"{context.target.name} has {context.target.ddr_bytes} bytes of DDR: use a target "
                "with more",
            )


def arena_plan(graph: Graph, alignment: int) -> ArenaPlan:
    """Return the size of a planned graph's arena and its lower bound."""
    roots, requests = _arena(graph, alignment)
    ends = [
        (buffer_type(root).place.offset or 0) + request.size
        for root, request in zip(roots, requests, strict=True)
    ]
    return ArenaPlan(max(ends, default=0), lower_bound(requests))


def constant_data(graph: Graph) -> bytes:
    """Return the constants section of a planned graph; gaps are zero."""
    found = [(op, _bytes_of(op)) for op in graph.ops if isinstance(op, Constant)]
    ends = [(buffer_type(op.result).place.offset or 0) + len(data) for op, data in found]
    section = bytearray(max(ends, default=0))
    for op, data in found:
        at = buffer_type(op.result).place.offset or 0
        section[at : at + len(data)] = data
    return bytes(section)


def _arena(graph: Graph, alignment: int) -> tuple[list[Value], list[Request]]:
    tasks = [op for op in graph.ops if isinstance(op, Task)]
    roots, requests = live_ranges(tasks, Space.ARENA)
    known = set(roots)
    for op in graph.ops:
        idle = isinstance(op, BufferOp) and op.result not in known
        if idle and buffer_type(op.result).place.space is Space.ARENA:
            roots.append(op.result)
            requests.append(Request(geometry(buffer_type(op.result)).extent, 0, 0))
    made = [_request(root, request, len(tasks), alignment) for root, request in
            zip(roots, requests, strict=True)]  # fmt: skip
    return roots, made


def _request(root: Value, request: Request, moments: int, alignment: int) -> Request:
    size = -(-request.size // alignment) * alignment
    host = isinstance(root.owner, BufferOp) and root.owner.role in HOST_ROLES
    if host:
        return Request(size, 0, moments)
    return replace(request, size=size)


def _place_constants(graph: Graph, alignment: int) -> int:
    """Settle each constant; return the bytes of all."""
    offsets: dict[bytes, int] = {}
    size = 0
    for op in graph.ops:
        if not isinstance(op, Constant):
            continue
        data = _bytes_of(op)
        if data not in offsets:
            offsets[data] = size
            size += -(-len(data) // alignment) * alignment
        settle(op.result, offsets[data])
    return size


def _bytes_of(op: Constant) -> bytes:
    owner = op.data.owner
    if not isinstance(owner, Const):
        raise TypeError(f"%{op.data.name} is no const")
    return bytes(owner.value().tobytes())
