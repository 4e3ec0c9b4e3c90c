"""What a program does for each op of its source, in terms that two compilations share.

Invariant: facts name ops, operands and values; table indices, record order and counts of waits,
which any change shifts, are resolved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from npuabi.container import Program, symbol_at
from npuabi.enums import Opcode, Space, ToaFlag, Unit
from npuabi.records import NO_TENSOR, TensorDescriptor, Toa
from npuabi.report import DATAFLOWS
from npuabi.target import Target
from npufw.asm_form import WAIT_FLAGS, WAITS, fields_of
from npufw.asm_lines import Label
from npufw.asm_show import Names, shown
from npufw.disasm_constants import parameter_head, parameter_places
from npufw.kernels.base import OPERANDS

__all__ = ["PLACEMENT", "OpFacts", "ops_of", "tensor_fields"]

PLACEMENT = ("base", "strides", "alignment_log2", "bank", "symbol", "extent")
"""Fields of a tensor that say where it lies and not what it is."""

_OWN = ("opcode", "precision", "mode", "op", "tensors", "waits", "cycles")
"""Fields of a TOA that are facts of their own, or no facts."""

_DMA = (Unit.DMA_IN, Unit.DMA_OUT)
_OUTPUT = OPERANDS.index("output")
_WAIT_MODULUS = 1 << 16

Dims = tuple[int, ...]
Wait = tuple[str, Label, int]


@dataclass(slots=True, kw_only=True)
class OpFacts:
    """One op of the source, and all that its TOAs do, in ring order.

    ``constants`` are the ranges of ``memory`` that it loads. By opcode: ``cuts`` are the dims of
    each output, ``values`` those of each other field, by its name. ``places`` are the addresses
    of each operand, ``waits`` the TOAs that each TOA waits for.
    """

    label: Label
    kind: str
    file: str
    line: int
    column: int
    memory: bytes = field(repr=False)
    first: int = -1
    modes: dict[str, None] = field(default_factory=dict)
    precisions: dict[str, None] = field(default_factory=dict)
    stripes: list[Dims] = field(default_factory=list)
    partial_sums: int = 0
    loads: int = 0
    stores: int = 0
    banks: dict[str, set[int]] = field(default_factory=dict)
    cuts: dict[str, list[Dims]] = field(default_factory=dict)
    values: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    waits: list[tuple[Wait, ...]] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    constants: set[tuple[int, int]] = field(default_factory=set)
    parameters: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        """How its TOAs run: on the arrays where some do, as reports say it."""
        arrays = [mode for mode in self.modes if mode in DATAFLOWS.values()]
        return "+".join(arrays or self.modes)

    def constant_bytes(self) -> bytes:
        """Return the constants that it loads, each byte once, by address."""
        parts, reached = [], 0
        for start, end in sorted(self.constants):
            parts.append(self.memory[max(reached, start) : end])
            reached = max(reached, end)
        return b"".join(parts)


def ops_of(program: Program, target: Target) -> dict[Label, OpFacts]:
    """Return the facts of every op of the source map, by label, in its order."""
    return _Walk(program, target).run()


def tensor_fields(tensor: TensorDescriptor) -> dict[str, Any]:
    """Return what a tensor is, apart from its place."""
    return {n: getattr(tensor, n) for n in fields_of(TensorDescriptor) if n not in PLACEMENT}


class _Walk:
    """Walks the ring once, adding each TOA to its op."""

    def __init__(self, program: Program, target: Target) -> None:
        self._program = program
        self._target = target
        self._ops = self._sources()
        self._finished: dict[Unit, list[tuple[Label, int]]] = {unit: [] for unit in Unit}
        self._runs: dict[tuple[Unit, int], int] = {}
        self._parameters = parameter_places(program)

    def run(self) -> dict[Label, OpFacts]:
        """Return the facts by label."""
        for position, index in enumerate(self._program.ring):
            toa = self._program.toas[index]
            facts = self._ops[toa.op]
            self._count(facts, toa, position)
            self._waits(facts, toa)
            self._operands(facts, toa)
            number = self._runs[toa.unit, toa.op] = self._runs.get((toa.unit, toa.op), -1) + 1
            self._finished[toa.unit].append((facts.label, number))
        return {facts.label: self._settled(facts) for facts in self._ops}

    def _sources(self) -> list[OpFacts]:
        names, symbols = Names(self._program), self._program.symbols
        return [
            OpFacts(
                label=names.label("sources", index),
                kind=symbol_at(symbols, source.kind),
                file=symbol_at(symbols, source.file),
                line=source.line,
                column=source.column,
                memory=self._program.constants,
            )
            for index, source in enumerate(self._program.sources)
        ]

    def _count(self, facts: OpFacts, toa: Toa, position: int) -> None:
        opcode = toa.opcode.name.lower()
        values = facts.values.setdefault(opcode, {})
        for name, wire in fields_of(Toa).items():
            if name not in _OWN:
                value = getattr(toa, name)
                value = value & ~WAITS if name == "flags" else value
                values.setdefault(name, []).append(shown(name, wire, value))
        facts.cycles.append(toa.cycles)
        if toa.unit in _DMA:
            facts.loads += toa.unit is Unit.DMA_IN
            facts.stores += toa.unit is Unit.DMA_OUT
            return
        facts.first = position if facts.first < 0 else facts.first
        facts.modes[DATAFLOWS.get(toa.mode, "vector")] = None
        facts.precisions[toa.precision.name.lower()] = None
        if toa.unit is Unit.MAC and not toa.flags & ToaFlag.WRITE:
            facts.partial_sums += 1
        elif toa.tensors[_OUTPUT] != NO_TENSOR:
            facts.stripes.append(self._program.tensors[toa.tensors[_OUTPUT]].dims)

    def _operands(self, facts: OpFacts, toa: Toa) -> None:
        opcode = toa.opcode.name.lower()
        for word, index in zip(OPERANDS, toa.tensors, strict=True):
            if index == NO_TENSOR:
                continue
            tensor = self._program.tensors[index]
            if word == "output":
                facts.cuts.setdefault(opcode, []).append(tensor.dims)
            for name, wire in fields_of(TensorDescriptor).items():
                if name not in PLACEMENT:
                    value = shown(name, wire, getattr(tensor, name))
                    facts.values[opcode].setdefault(f"{word} {name}", []).append(value)
            place = f"{tensor.space.name.lower()} {tensor.base:#x}"
            facts.places.setdefault(f"{opcode} {word}", []).append(place)
            if tensor.space is Space.SRAM:
                role = word if toa.unit not in _DMA else opcode
                facts.banks.setdefault(role, set()).update(self._banks(tensor))
            elif tensor.space is Space.CONSTANTS and toa.opcode is Opcode.DMA_IN:
                self._constant(facts, tensor)

    def _banks(self, tensor: TensorDescriptor) -> range:
        size = self._target.bank_bytes
        last = min(tensor.base + max(tensor.extent, 1) - 1, self._target.sram_bytes - 1)
        return range(tensor.base // size, last // size + 1)

    def _constant(self, facts: OpFacts, tensor: TensorDescriptor) -> None:
        start, end = tensor.base, tensor.base + tensor.extent
        if (start, end) in facts.constants:
            return
        facts.constants.add((start, end))
        place = self._parameters.get(start)
        head = parameter_head(self._program.constants[start:end], place) if place else None
        if head is None:
            return
        for name, wire in fields_of(type(head)).items():
            value = shown(name, wire, getattr(head, name))
            facts.parameters.setdefault(name, []).append(value)

    def _waits(self, facts: OpFacts, toa: Toa) -> None:
        waits = []
        for (unit, flag), count in zip(WAIT_FLAGS.items(), toa.waits, strict=True):
            finished = self._finished[unit]
            number = len(finished) - (len(finished) - count) % _WAIT_MODULUS
            if toa.flags & flag and number > 0:
                waits.append((unit.name.lower(), *finished[number - 1]))
        facts.waits.append(tuple(waits))

    def _settled(self, facts: OpFacts) -> OpFacts:
        """Give an op that only moves data its transfers as stripes."""
        if not facts.modes:
            facts.modes["dma"] = None
            facts.stripes = [dims for cut in facts.cuts.values() for dims in cut]
        return facts
