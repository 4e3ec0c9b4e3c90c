"""A blob made readable: overview, annotated records, ring.

Invariant: what is shown are the records that the firmware would use, healed, at the addresses of
the first table copy in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuabi.container import Program, parts_of, symbol_at
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import (
    NO_TENSOR,
    FileHeader,
    SectionEntry,
    TableHeader,
    TensorDescriptor,
)
from npuabi.render import hexdump
from npuabi.signature import key_hash
from npuabi.wire import Record
from npufw.boot import Image, Port, StateTensor
from npufw.errors import FirmwareError
from npufw.kernels.base import OPERANDS

__all__ = ["Inspector", "as_json", "shape_text"]

_WAIT_UNITS = ("dma_in", "dma_out", "mac", "vector")


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as graph text writes it: ``1x3x32x32``."""
    return "x".join(map(str, shape)) or "scalar"


@dataclass(frozen=True)
class Inspector:
    """The blob *raw* and the image that boot made of it."""

    raw: bytes
    image: Image

    def overview(self) -> Iterator[str]:
        """Yield the lines that say what the blob is, its ports, and its ops."""
        program, header = self.image.program, self.image.program.header
        yield (
            f"blob     {len(self.raw):,} bytes, ABI {header.abi_major}.{header.abi_minor}, "
            f"schema {header.schema_hash:#018x}, generation {header.generation}"
        )
        yield (
            f"target   {header.target.decode()}, {header.precision.name.lower()}, "
            f"rounding {header.rounding.name.lower()}"
        )
        yield (
            f"program  {len(program.toas)} TOAs, {len(program.tensors)} tensors, "
            f"{len(program.constants):,} bytes of constants, arena {header.arena_bytes:,}"
        )
        yield f"cost     {header.macs:,} MACs, {header.cycles:,} cycles"
        yield from _signature_lines(program)
        for word, ports in (("input", self.image.inputs), ("output", self.image.outputs)):
            for port in ports:
                yield f"{word:<8} {_port_text(port)}"
        for state in self.image.states:
            yield f"state    {_state_text(state)}"
        yield ""
        yield from self._ops()

    def _ops(self) -> Iterator[str]:
        width = max([len(name) for name, _ in self._op_names()], default=2)
        yield f"{'op':>4}  {'name':<{width}}  {'kind':<16} {'line':>5}  TOAs"
        for index, (name, kind) in enumerate(self._op_names()):
            own = [i for i, toa in enumerate(self.image.program.toas) if toa.op == index]
            line = self.image.program.sources[index].line
            yield f"{index:>4}  {name:<{width}}  {kind:<16} {line:>5}  {_ranges(own)}"

    def _op_names(self) -> list[tuple[str, str]]:
        program = self.image.program
        return [
            (symbol_at(program.symbols, s.symbol), symbol_at(program.symbols, s.kind))
            for s in program.sources
        ]

    def headers(self) -> Iterator[str]:
        """Yield the file header, section table and table header, byte by byte."""
        offset = 0
        yield hexdump(FileHeader.decode(self.raw[: FileHeader.SIZE]), 0)
        for offset, entry in self._sections():
            yield hexdump(entry, offset)
        yield hexdump(self.image.program.header, self._table_offset())

    def _sections(self) -> Iterator[tuple[int, SectionEntry]]:
        count = len(parts_of(self.raw))
        for index in range(count):
            start = FileHeader.SIZE + index * SectionEntry.SIZE
            yield start, SectionEntry.decode(self.raw[start : start + SectionEntry.SIZE])

    def _table_offset(self) -> int:
        entries = [entry for _, entry in self._sections()]
        return next(e.offset for e in entries if e.kind is Section.TABLE_A)

    def select(self, *, entry: int | None, op: str | None, line: int | None) -> list[int]:
        """Return the TOAs that the options name, in table order.

        Raises FirmwareError BAD_INDEX, BAD_SYMBOL when there are none.
        """
        toas, sources = self.image.program.toas, self.image.program.sources
        if entry is not None:
            if not 0 <= entry < len(toas):
                text = f"there is no TOA {entry}: the program has 0 to {len(toas) - 1}"
                raise FirmwareError(ErrorCode.BAD_INDEX, text, remedy="choose one of these")
            return [entry]
        names = [name for name, _ in self._op_names()]
        wanted = {
            i
            for i, source in enumerate(sources)
            if (op is not None and names[i] == op.removeprefix("%"))
            or (line is not None and source.line == line)
        }
        found = [i for i, toa in enumerate(toas) if toa.op in wanted]
        if not found:
            what = f"op {op!r}" if op is not None else f"line {line}"
            known = dict.fromkeys(names if op is not None else (str(s.line) for s in sources))
            kind = "ops are" if op is not None else "lines are"
            text = f"no TOA comes from {what}, it may be fused; the {kind} {', '.join(known)}"
            raise FirmwareError(ErrorCode.BAD_SYMBOL, text, remedy="choose one of these")
        return found

    def entry(self, index: int) -> Iterator[str]:
        """Yield TOA *index* and its tensor descriptors, byte by byte."""
        program = self.image.program
        toa = program.toas[index]
        name, kind = self._op_names()[toa.op]
        source = program.sources[toa.op]
        file = symbol_at(program.symbols, source.file)
        place = f" at {file}:{source.line}:{source.column}" if file else ""
        yield f"TOA {index}: {toa.opcode.name.lower()} for {kind or 'op'} %{name}{place}"
        first = self._table_offset() + TableHeader.SIZE
        toas = first + len(program.tensors) * TensorDescriptor.SIZE
        yield hexdump(toa, toas + index * toa.SIZE)
        for word, number in zip(OPERANDS, toa.tensors, strict=True):
            if number == NO_TENSOR:
                continue
            tensor = program.tensors[number]
            label = symbol_at(program.symbols, tensor.symbol)
            yield f"{word}: tensor {number} ({label})"
            yield hexdump(tensor, first + number * TensorDescriptor.SIZE)

    def ring(self) -> Iterator[str]:
        """Yield the ring: a TOA a line, with its time and what it waits for."""
        head = f"{'ring':>5} {'TOA':>5}  {'unit':<8}{'opcode':<16}"
        yield f"{head}{'start':>11}{'end':>11}  waits, op"
        rows = zip(self.image.steps, self.image.works, self.image.timeline.slots, strict=True)
        for position, (step, work, slot) in enumerate(rows):
            waits = [
                f"{unit}>={count}"
                for unit, count in zip(_WAIT_UNITS, work.waits, strict=True)
                if count is not None
            ]
            name, _ = self._op_names()[step.toa.op]
            yield (
                f"{position:>5} {step.index:>5}  {step.toa.unit.name.lower():<8}"
                f"{step.toa.opcode.name.lower():<16}{slot.start:>11,}{slot.end:>11,}  "
                f"{' '.join([*waits, f'%{name}'])}"
            )


def _signature_lines(program: Program) -> Iterator[str]:
    for signature in program.signatures:
        digest = key_hash(bytes(signature.public_key)).hex()
        yield f"signed   security version {signature.security_version}, by the key of hash {digest}"


def _signature_json(program: Program) -> dict[str, Any] | None:
    """Return who says that he signed; nobody has checked it."""
    for signature in program.signatures:
        return {
            "scheme": signature.scheme.name.lower(),
            "security_version": signature.security_version,
            "key_hash": key_hash(bytes(signature.public_key)).hex(),
        }
    return None


def as_json(blob: str, raw: bytes, image: Image, selected: Sequence[int] = ()) -> dict[str, Any]:
    """Return what ``inspect --json`` prints of *raw*, the file *blob*, and the *selected* TOAs."""
    program, header = image.program, image.program.header
    return {
        "schema": 1,
        "blob": blob,
        "bytes": len(raw),
        "abi": f"{header.abi_major}.{header.abi_minor}",
        "target": header.target.decode(),
        "precision": header.precision.name.lower(),
        "rounding": header.rounding.name.lower(),
        "macs": header.macs,
        "cycles": header.cycles,
        "arena_bytes": header.arena_bytes,
        "constant_bytes": len(program.constants),
        "tensors": len(program.tensors),
        "toas": len(program.toas),
        "inputs": [_port_json(port) for port in image.inputs],
        "outputs": [_port_json(port) for port in image.outputs],
        "states": [_state_json(state) for state in image.states],
        "signature": _signature_json(program),
        "sections": {kind.name.lower(): part.length for kind, part in _parts(raw).items()},
        "ops": [
            {
                "name": symbol_at(program.symbols, source.symbol),
                "op": symbol_at(program.symbols, source.kind),
                "line": source.line,
                "column": source.column,
                "macs": source.macs,
                "toas": [i for i, toa in enumerate(program.toas) if toa.op == index],
            }
            for index, source in enumerate(program.sources)
        ],
        "entries": [_entry_json(image, index) for index in selected],
        "events": [f"{event.code.name.lower()}: {event.text}" for event in image.events],
    }


def _parts(raw: bytes) -> dict[Section, Any]:
    try:
        return parts_of(raw)
    except AbiError:
        # The section table itself was healed; boot has reported it.
        return {}


def _entry_json(image: Image, index: int) -> dict[str, Any]:
    toa = image.program.toas[index]
    operands = {
        name: _fields(image.program.tensors[number])
        for name, number in zip(OPERANDS, toa.tensors, strict=True)
        if number != NO_TENSOR
    }
    return {"toa": index, **_fields(toa), "operands": operands}


def _fields(record: Record) -> dict[str, Any]:
    return {
        name: _plain(getattr(record, name), wire.enum)
        for name, wire in record.FIELDS.items()
        if wire.role == "value"
    }


def _plain(value: Any, enum: Any) -> Any:
    if enum is not None:
        return (value.name or str(int(value))).lower()
    if isinstance(value, tuple):
        return list(value)
    return float(np.float32(value)) if isinstance(value, float) else value


def _port_text(port: Port) -> str:
    dtype = port.entry.dtype.text
    return f"{port.name} {shape_text(port.shape)} {dtype}, arena 0x{port.tensor.base:x}"


def _port_json(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.shape), "dtype": port.entry.dtype.text}


def _state_text(state: StateTensor) -> str:
    tensor = state.tensor
    return f"{state.name} {shape_text(tensor.dims)} {tensor.dtype.text}, arena 0x{tensor.base:x}"


def _state_json(state: StateTensor) -> dict[str, Any]:
    tensor = state.tensor
    return {"name": state.name, "shape": list(tensor.dims), "dtype": tensor.dtype.text}


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as ``0..3 7 9..10``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(a) if a == b else f"{a}..{b}" for a, b in runs) or "none"
