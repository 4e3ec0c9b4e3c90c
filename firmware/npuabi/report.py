"""What a program costs on a target, from its records and timeline; compiler and profile share it.

Invariant: the cycles of the layers sum to the cycles of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.costs import RATES
from npuabi.cycles import Work, works_of
from npuabi.enums import DType, Mode, Space, Unit
from npuabi.geometry import Geometry
from npuabi.program import Program, symbol_at
from npuabi.records import NO_TENSOR, SourceEntry, TensorDescriptor, Toa
from npuabi.simulate import Slot, Timeline
from npuabi.target import Target

__all__ = ["BOUNDS", "DATAFLOWS", "LayerCost", "ProgramCost", "live_sram_bytes", "summarise"]

BOUNDS = ("compute", "memory", "issue")
"""What holds a layer back: the arrays and the vector unit, the DMA, or fetching descriptors."""

DATAFLOWS = {
    Mode.OUTPUT_STATIONARY: "os",
    Mode.WEIGHT_STATIONARY: "ws",
    Mode.DEPTHWISE: "dw",
}
"""What reports call the modes of the MAC array."""

_DMA = frozenset({Unit.DMA_IN, Unit.DMA_OUT})
_OUTPUT = 4
_WORDS = {1: DType.U8, 2: DType.I16, 4: DType.I32, 8: DType.I64}
"""Integer types by size: liveness marks bytes through views of the tensor's own element size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """One op of the source. ``dataflow`` is os, ws, dw (joined by +), vector or dma."""

    name: str
    op: str
    macs: int
    cycles: int
    mac_utilisation: float
    dataflow: str
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCost:
    """A program's costs; the fields are the JSON keys of the reports."""

    target: str
    precision: str
    rounding: str
    macs: int
    cycles: int
    time_ms: float
    mac_utilisation: float
    sram_peak_bytes: int
    ddr_bytes: int
    arena_bytes: int
    descriptors: int
    layers: tuple[LayerCost, ...]
    stalls: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the costs for JSON."""
        return {**asdict(self), "layers": [asdict(layer) for layer in self.layers]}


def summarise(program: Program, timeline: Timeline, target: Target) -> ProgramCost:
    """Return what *program* costs; *timeline* is that of its TOAs in ring order on *target*."""
    header = program.header
    toas = [program.toas[index] for index in program.ring]
    works = works_of(program.tensors, toas, target)
    macs = sum(source.macs for source in program.sources)
    return ProgramCost(
        target=target.name,
        precision=header.precision.name.lower(),
        rounding=header.rounding.name.lower(),
        macs=macs,
        cycles=timeline.cycles,
        time_ms=timeline.cycles / (target.clock_mhz * 1000),
        mac_utilisation=_utilisation(sum(map(_mac_cycles, works)), timeline.cycles, target),
        sram_peak_bytes=live_sram_bytes(toas, program.tensors, target),
        ddr_bytes=sum(work.ddr_bytes for work in works),
        arena_bytes=header.arena_bytes,
        descriptors=len(program.tensors) + len(program.toas),
        layers=_layers(program, toas, works, timeline, target),
        stalls=dict(timeline.stalls),
    )


def _mac_cycles(work: Work) -> int:
    """Return what the arrays would take for *work* at one product a cycle of int8."""
    return work.macs * RATES[work.precision]


def _utilisation(mac_cycles: int, cycles: int, target: Target) -> float:
    """Return products over those of the peak; each precision has a peak of its own."""
    return mac_cycles / (cycles * target.peak_macs_per_cycle) if cycles else 0.0


@dataclass(slots=True)
class _Tally:
    """What the TOAs of one op add up to, in cycles."""

    cycles: int = 0
    mac_cycles: int = 0
    compute: int = 0
    memory: int = 0
    issue: int = 0
    modes: dict[str, None] | None = None

    def bound(self) -> str:
        """Return the largest; the earlier of BOUNDS when two are equal."""
        return max(BOUNDS, key=lambda name: getattr(self, name))


def _layers(
    program: Program,
    toas: Sequence[Toa],
    works: Sequence[Work],
    timeline: Timeline,
    target: Target,
) -> tuple[LayerCost, ...]:
    tallies: dict[int, _Tally] = {}
    latest = 0
    last = None
    for toa, work, slot in zip(toas, works, timeline.slots, strict=True):
        tally = tallies.setdefault(toa.op, _Tally(modes={}))
        _count(tally, toa, work, slot, target)
        # A prefetch for a later layer runs in this one's shadow: only results move the time on.
        if toa.unit is not Unit.DMA_IN and slot.end > latest:
            tally.cycles += slot.end - latest
            latest = slot.end
        last = tally
    if last is not None:
        last.cycles += timeline.cycles - latest
    # In the order in which they begin to compute: constants are often loaded far ahead.
    begun = [toa.op for toa in toas if toa.unit is not Unit.DMA_IN]
    return tuple(
        _layer(program, program.sources[op], tallies[op], target)
        for op in dict.fromkeys([*begun, *tallies])
    )


def _count(tally: _Tally, toa: Toa, work: Work, slot: Slot, target: Target) -> None:
    tally.issue += target.fetch_cycles
    tally.mac_cycles += _mac_cycles(work)
    if toa.unit in _DMA:
        tally.memory += slot.end - slot.start
    else:
        # Cycles that a bank made longer count as memory, the rest as compute.
        tally.compute += slot.end - slot.start - slot.bank_conflict
        tally.memory += slot.bank_conflict
    if tally.modes is not None:
        word = DATAFLOWS.get(toa.mode, "dma" if toa.unit in _DMA else "vector")
        tally.modes[word] = None


def _layer(program: Program, source: SourceEntry, tally: _Tally, target: Target) -> LayerCost:
    return LayerCost(
        name=symbol_at(program.symbols, source.symbol),
        op=symbol_at(program.symbols, source.kind),
        macs=source.macs,
        cycles=tally.cycles,
        mac_utilisation=_utilisation(tally.mac_cycles, tally.cycles, target),
        dataflow=_dataflow(list(tally.modes or ())),
        bound=tally.bound(),
    )


def _dataflow(words: list[str]) -> str:
    arrays = [w for w in words if w in DATAFLOWS.values()]
    return "+".join(arrays) or ("vector" if "vector" in words else "dma")


# --- liveness ---------------------------------------------------------------------------------


def live_sram_bytes(
    toas: Sequence[Toa], tensors: Sequence[TensorDescriptor], target: Target
) -> int:
    """Return the most SRAM bytes in use at one TOA, *toas* in ring order.

    In use are the bytes that a TOA reads or writes and those that a later one reads before
    anything writes them; gaps and alignment do not count.
    """
    live = np.zeros(target.sram_bytes, np.uint8)
    views: dict[int, NDArray[Any]] = {}
    peak = 0
    for toa in reversed(toas):
        output = _views(live, tensors, toa.tensors[_OUTPUT:], views)
        inputs = _views(live, tensors, toa.tensors[:_OUTPUT], views)
        _mark(output + inputs, 1)
        peak = max(peak, int(np.count_nonzero(live.view(np.bool_))))
        _mark(output, 0)
        _mark(inputs, 1)
    return peak


def _views(
    live: NDArray[np.uint8],
    tensors: Sequence[TensorDescriptor],
    indices: Sequence[int],
    known: dict[int, NDArray[Any]],
) -> list[NDArray[Any]]:
    found = []
    for index in indices:
        if index == NO_TENSOR or tensors[index].space is not Space.SRAM:
            continue
        if index not in known:
            tensor = tensors[index]
            word = _WORDS[tensor.dtype.size]
            shape = Geometry(tensor.dims, tensor.strides, word, tensor.layout, tensor.lane)
            known[index] = shape.view(live, tensor.base)
        found.append(known[index])
    return found


def _mark(views: Sequence[NDArray[Any]], octet: int) -> None:
    for view in views:
        view[...] = int.from_bytes(bytes([octet]) * view.itemsize, "little")
