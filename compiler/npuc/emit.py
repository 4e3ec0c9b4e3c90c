"""emit: the scheduled, placed and planned L3 graph as ABI records.

Invariant: what a record says comes from the task's attributes and its buffers' types alone, in
ring order; equal tensors share one descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from npuabi.bands import BASE_BAND, limits, sample_taps, setup_cycles
from npuabi.cycles import Work, works_of
from npuabi.enums import Direction, DType, Space, ToaFlag, Unit
from npuabi.precision import register_of
from npuabi.program import pack_symbols
from npuabi.records import (
    NO_TENSOR,
    Interface,
    SourceEntry,
    StateEntry,
    TensorDescriptor,
    Toa,
)
from npuabi.target import Target
from npuabi.text import UNPRINTABLE
from npuc.diagnostics import CompileError
from npuc.ir.core import Graph, Value
from npuc.ir.types import TensorType
from npuc.npu.regions import geometry, root_of
from npuc.npu.tasks import (
    HOST_ROLES,
    BufferOp,
    Conv,
    Depthwise,
    MatMul,
    StateOp,
    Task,
    buffer_type,
)

__all__ = ["Emitted", "emit"]

_BASE_C = limits(BASE_BAND)[1]
"""The upper limit of the band whose timing the TOAs themselves state."""

_DMA_GRANULE_LOG2 = 4
_MOST_SOURCES = 1 << 16
_FIELDS = attrgetter(*TensorDescriptor.FIELDS)
_OPERANDS = ("input", "weights", "params", "residual", "output")
_WAITS = (ToaFlag.WAIT_DMA_IN, ToaFlag.WAIT_DMA_OUT, ToaFlag.WAIT_MAC, ToaFlag.WAIT_VECTOR)


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """The records of one program, in ring order, and its TOAs as the timing model takes them."""

    tensors: tuple[TensorDescriptor, ...]
    toas: tuple[Toa, ...]
    works: list[Work]
    interface: tuple[Interface, ...]
    sources: tuple[SourceEntry, ...]
    states: tuple[StateEntry, ...]
    symbols: bytes


def emit(
    graph: Graph,
    arguments: list[Value],
    outputs: list[Value],
    target: Target,
    ports: Mapping[str, str],
) -> Emitted:
    """Return the records of an L3 graph; *arguments* and *outputs* are those of its L2 graph.

    *ports* gives the host's names of outputs whose own names are others.
    """
    return _Emitter(graph, target, ports).run(arguments, outputs)


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    kind: str
    file: str
    line: int
    column: int


class _Emitter:
    def __init__(self, graph: Graph, target: Target, ports: Mapping[str, str]) -> None:
        self._graph = graph
        self._target = target
        self._ports = ports
        self._tasks = [op for op in graph.ops if isinstance(op, Task)]
        self._sources: dict[_Source, int] = {}
        self._numbers: dict[Value, int] = {}
        self._tensors: dict[tuple[object, ...], int] = {}
        self._records: list[TensorDescriptor] = []

    def run(self, arguments: list[Value], outputs: list[Value]) -> Emitted:
        toas_of = [(task, self._source(task)) for task in self._tasks]
        names = [root_of(v)[0].name for task in self._tasks for v in task.inputs]
        words = [w for s in self._sources for w in (s.name, s.kind, s.file)]
        values = [*(v.name for v in (*arguments, *outputs)), *self._ports.values()]
        states = [op for op in self._graph.ops if isinstance(op, StateOp)]
        kept = [n for op in states for n in (op.state, op.kept.name, op.initial.name)]
        symbols, self._offsets = pack_symbols([*values, *words, *names, *kept])
        inputs = [op.result for op in self._graph.ops if isinstance(op, BufferOp)
                  and op.role == "input"]  # fmt: skip
        interface = [
            self._interface(Direction.INPUT, value, buffer)
            for value, buffer in zip(arguments, inputs, strict=True)
        ] + [
            self._interface(Direction.OUTPUT, value, buffer)
            for value, buffer in zip(outputs, self._graph.outputs, strict=True)
        ]
        entries = tuple(self._state(op) for op in states)
        untimed = [self._toa(task, source) for task, source in toas_of]
        works = works_of(self._records, untimed, self._target)
        timed = zip(untimed, works, strict=True)
        return Emitted(
            tensors=tuple(self._records),
            toas=tuple(replace(toa, cycles=work.alone_cycles) for toa, work in timed),
            works=works,
            interface=tuple(interface),
            sources=self._source_entries(works),
            states=entries,
            symbols=symbols,
        )

    def _source(self, task: Task) -> int:
        place = task.location
        # The base name only: a blob must not change with the folder it was compiled in.
        file = UNPRINTABLE.sub("\ufffd", place.file.replace("\\", "/").rsplit("/", 1)[-1])
        name, kind = task.attributes["name"], task.attributes["kind"]
        source = _Source(name, kind, file, place.line, place.column)
        number = self._sources.setdefault(source, len(self._sources))
        if number >= _MOST_SOURCES:
            raise CompileError.at(
                place, f"a blob maps at most {_MOST_SOURCES} ops: split the graph in two"
            )
        return number

    def _interface(self, direction: Direction, value: Value, buffer: Value) -> Interface:
        shape = value.tensor.dims
        return Interface(
            direction=direction,
            rank=len(shape),
            dtype=value.tensor.dtype,
            tensor=self._tensor(buffer),
            symbol=self._offsets[self._ports.get(value.name, value.name)],
            shape=(*shape, 1, 1, 1, 1)[:4],
        )

    def _state(self, op: StateOp) -> StateEntry:
        return StateEntry(
            symbol=self._offsets[op.state],
            tensor=self._tensor(op.kept),
            initial=self._tensor(op.initial),
        )

    def _tensor(self, value: Value) -> int:
        if value not in self._numbers:
            self._numbers[value] = self._number(self._descriptor(value))
        return self._numbers[value]

    def _number(self, record: TensorDescriptor) -> int:
        key = _FIELDS(record)
        if key not in self._tensors:
            self._tensors[key] = len(self._records)
            self._records.append(record)
        return self._tensors[key]

    def _descriptor(self, value: Value) -> TensorDescriptor:
        buffer = buffer_type(value)
        found = geometry(buffer)
        base = buffer.place.offset
        if base is None:
            raise ValueError(f"%{value.name} has no place")
        root = root_of(value)[0]
        host = isinstance(root.owner, BufferOp) and root.owner.role in HOST_ROLES
        whole = host and root is value
        scale, zero_point = _quantisation(buffer.tensor)
        return TensorDescriptor(
            base=base,
            dims=found.dims,
            strides=found.strides,
            space=buffer.place.space,
            dtype=found.dtype,
            layout=found.layout,
            alignment_log2=_log2(self._target.dma_alignment) if whole else _DMA_GRANULE_LOG2,
            bank=base // self._target.bank_bytes if buffer.place.space is Space.SRAM else 0,
            lane=found.lane,
            zero_point=zero_point,
            scale=scale,
            symbol=self._offsets[root.name],
            extent=found.extent,
        )

    def _toa(self, task: Task, source: int) -> Toa:
        tensors = [NO_TENSOR if v is None else self._tensor(v) for v in map(task.named, _OPERANDS)]
        dtypes = [None if v is None else v.tensor.dtype for v in map(task.named, _OPERANDS)]
        read = task.attributes
        flags = ToaFlag(0)
        for name, flag in (("clear", ToaFlag.CLEAR), ("write", ToaFlag.WRITE),
                           ("wide", ToaFlag.WIDE), ("real", ToaFlag.REAL)):  # fmt: skip
            if isinstance(task, Conv | Depthwise | MatMul) and read[name]:
                flags |= flag
        if isinstance(task, Conv | Depthwise) and task.named("residual") is not None:
            flags |= ToaFlag.RESIDUAL
        for wait, flag in zip(read["waits"], _WAITS, strict=True):
            flags |= flag if wait >= 0 else ToaFlag(0)
        return Toa(
            opcode=task.OPCODE,
            unit=task.UNIT,
            precision=register_of(task.UNIT, dtypes),
            mode=task.mode_value,
            flags=flags,
            op=source,
            tensors=tuple(tensors),
            waits=tuple(max(w, 0) % (1 << 16) for w in read["waits"]),
            kernel=tuple(read["kernel"]),
            stride=tuple(read["strides"]),
            dilation=tuple(read["dilations"]),
            pads=tuple(read["pads"]),
            groups=read["groups"] % (1 << 16),
            clamp=tuple(read["clamp"]),
            setup_cycles=setup_cycles(_BASE_C, self._target),
            sample_taps=sample_taps(_BASE_C) if task.UNIT is Unit.MAC else 0,
            cycles=0,
        )

    def _source_entries(self, works: list[Work]) -> tuple[SourceEntry, ...]:
        macs = [0] * len(self._sources)
        for work in works:
            macs[work.op] += work.macs
        return tuple(
            SourceEntry(
                symbol=self._offsets[s.name],
                kind=self._offsets[s.kind],
                file=self._offsets[s.file],
                line=s.line,
                column=s.column,
                macs=macs[number],
            )
            for s, number in self._sources.items()
        )


def _quantisation(tensor: TensorType) -> tuple[float, int]:
    quant = tensor.quant
    if quant is None or quant.axis is not None or tensor.dtype in (DType.F16, DType.F32):
        return 0.0, 0
    return quant.scale, quant.zero_point


def _log2(value: int) -> int:
    return value.bit_length() - 1
