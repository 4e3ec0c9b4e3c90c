"""Blobs: a program to bytes and back, bounded, checked and healed.

``read_blob`` takes any bytes and gives a Loaded or an AbiError, nothing else, with memory bounded
by a small multiple of the input. Order: file header, section table, ABI policy on the table
header, then CRCs of every byte, then records, then the rules of checks.py.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TypeVar

import numpy as np

from npuabi.checks import (
    MAX_INTERFACES,
    MAX_SOURCES,
    MAX_SYMBOL_BYTES,
    MAX_TENSORS,
    MAX_TOAS,
    check_chunks,
    check_limits,
    check_program,
    chunk_crcs,
)
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.policy import check, check_version
from npuabi.program import (
    Event,
    Loaded,
    Program,
    pack_symbols,
    symbol_at,
    table_header,
)
from npuabi.records import (
    Interface,
    KnownAnswer,
    SourceEntry,
    StateEntry,
    TableHeader,
    TensorDescriptor,
    Toa,
)
from npuabi.sections import Part, join_sections, split_sections, verify_section
from npuabi.tables import Copy, Damage, heal, newest_header
from npuabi.target import Target
from npuabi.wire import Record

__all__ = [
    "Event",
    "Loaded",
    "Program",
    "pack_symbols",
    "read_blob",
    "symbol_at",
    "table_header",
    "write_blob",
]

R = TypeVar("R", bound=Record)

_MAX_EVENTS = 32
_TABLES = (Section.TABLE_A, Section.TABLE_B)


def write_blob(program: Program) -> bytes:
    """Return the bytes of *program*; the same program gives the same bytes.

    Raises AbiError when the program breaks a rule of checks.py or a value does not fit its field.
    """
    check_program(program)
    table = _table(program)
    return join_sections(
        {
            Section.RING: np.array(program.ring, "<u4").tobytes(),
            Section.INTERFACE: Interface.encode_many(program.interface),
            Section.SYMBOLS: program.symbols,
            Section.SOURCE_MAP: SourceEntry.encode_many(program.sources),
            Section.STATES: StateEntry.encode_many(program.states),
            Section.KNOWN_ANSWER: program.known_answer.encode(),
            Section.CHUNK_CRCS: chunk_crcs(program.constants).tobytes(),
            Section.TABLE_A: table,
            Section.TABLE_B: table,
            Section.CONSTANTS: program.constants,
        }
    )


def _table(program: Program) -> bytes:
    tensors = TensorDescriptor.encode_many(program.tensors)
    records = tensors + Toa.encode_many(program.toas)
    return replace(program.header, table_crc=zlib.crc32(records)).encode() + records


def read_blob(raw: bytes, *, target: Target) -> Loaded:
    """Return the program in *raw*, healed in memory where one table copy is bad.

    Raises AbiError, whose code says what does not hold. *raw* is not changed.
    """
    raw = bytes(raw)
    parts = split_sections(raw)
    first, second = (Copy.of(parts[kind]) for kind in _TABLES)
    _admit(newest_header((first, second)).header, target)
    for kind, part in parts.items():
        if kind not in _TABLES:
            verify_section(part)
    table, damages = heal(first, second)
    header = _admit(table[: TableHeader.SIZE], target)
    program = _program(header, table, parts)
    check_program(program)
    return Loaded(program=program, events=_events(damages, program))


def target_of(raw: bytes) -> str:
    """Return the name of the target that a blob says it is for, before anything is believed.

    Raises AbiError when no table header can be found.
    """
    parts = split_sections(bytes(raw))
    header = newest_header([Copy.of(parts[kind]) for kind in _TABLES]).header
    return bytes(np.frombuffer(header, TableHeader.DTYPE)[0]["target"]).decode("utf-8", "replace")


def _admit(header: bytes, target: Target) -> TableHeader:
    """Decode a table header whose CRC holds, once its version says that it can be decoded."""
    version = np.frombuffer(header, TableHeader.DTYPE)[0]
    check_version(int(version["abi_major"]), int(version["abi_minor"]))
    decoded = TableHeader.decode(header)
    check(decoded, target)
    return decoded


def _program(header: TableHeader, table: bytes, parts: dict[Section, Part]) -> Program:
    tensors, toas, ring = header.tensor_count, header.toa_count, parts[Section.RING].content
    check_limits((("tensors", tensors, MAX_TENSORS), ("TOAs", toas, MAX_TOAS)))
    if len(ring) != 4 * toas:
        detail = f"{len(ring)} bytes of ring for {toas} TOAs of 4 bytes"
        raise AbiError(ErrorCode.BAD_RING, detail)
    constants = bytes(parts[Section.CONSTANTS].content)
    check_chunks(constants, bytes(parts[Section.CHUNK_CRCS].content))
    middle = TableHeader.SIZE + tensors * TensorDescriptor.SIZE
    symbols = bytes(_bounded(parts[Section.SYMBOLS], 1, MAX_SYMBOL_BYTES))
    return Program(
        header=header,
        tensors=tuple(TensorDescriptor.decode_many(table[TableHeader.SIZE : middle])),
        toas=tuple(Toa.decode_many(table[middle : middle + toas * Toa.SIZE])),
        ring=tuple(np.frombuffer(ring, "<u4").tolist()),
        constants=constants,
        interface=_records(Interface, parts[Section.INTERFACE], MAX_INTERFACES),
        sources=_records(SourceEntry, parts[Section.SOURCE_MAP], MAX_SOURCES),
        symbols=symbols,
        known_answer=KnownAnswer.decode(parts[Section.KNOWN_ANSWER].content),
        states=_records(StateEntry, parts[Section.STATES], MAX_INTERFACES),
    )


def _records(kind: type[R], part: Part, limit: int) -> tuple[R, ...]:
    return tuple(kind.decode_many(_bounded(part, kind.SIZE, limit)))


def _bounded(part: Part, size: int, limit: int) -> memoryview:
    check_limits(((f"entries of {part.kind.name}", part.length // size, limit),))
    return part.content


def _events(damages: list[Damage], program: Program) -> tuple[Event, ...]:
    events = [Event(d.code, _story(d, program)) for d in damages[:_MAX_EVENTS]]
    if len(damages) > _MAX_EVENTS:
        text = f"and {len(damages) - _MAX_EVENTS} more places healed"
        events.append(Event(damages[_MAX_EVENTS].code, text))
    return tuple(events)


def _story(damage: Damage, program: Program) -> str:
    copy = damage.copy.name
    if damage.part == "older copy":
        return f"{copy}: an older generation, not used"
    if damage.part == "section entry":
        return f"{copy}: the section's CRC is wrong, its bytes equal the twin's"
    if damage.part != "record":
        return f"{copy}: {damage.part} is bad, taken from the twin"
    return f"{copy}: {_record_name(damage.index, program)} is bad, taken from the twin"


def _record_name(index: int, program: Program) -> str:
    if index < len(program.tensors):
        name = symbol_at(program.symbols, program.tensors[index].symbol)
        return f"record {index} (tensor {index}, {name})"
    number = index - len(program.tensors)
    toa = program.toas[number]
    name = symbol_at(program.symbols, program.sources[toa.op].symbol)
    return f"record {index} (TOA {number}, {toa.opcode.name.lower()} of {name})"
