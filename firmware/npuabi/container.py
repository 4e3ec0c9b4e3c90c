"""Blobs: a program to bytes and back, bounded, checked and healed.

``read_blob`` takes any bytes and gives a Loaded or an AbiError, nothing else, with memory bounded
by a small multiple of the input. Order: file header, the version that the table states, section
table, ABI policy on the table header, then CRCs of every byte, then records, then the rules of
checks.py. Records of an older version are put into our layouts before they are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from npuabi.bands import BANDS
from npuabi.checks import (
    MAX_INTERFACES,
    MAX_SIGNATURES,
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
from npuabi.policy import Abi, check, check_version, own_abi
from npuabi.program import (
    Event,
    Loaded,
    Program,
    pack_symbols,
    symbol_at,
    table_header,
)
from npuabi.records import (
    BandSet,
    Interface,
    KnownAnswer,
    Signature,
    SourceEntry,
    StateEntry,
    TableHeader,
    TensorDescriptor,
    Toa,
)
from npuabi.schemas import Schema, own_schema, translated
from npuabi.sections import Part, join_sections, split_sections, stated_tables, verify_section
from npuabi.tables import Copy, Damage, heal, newest_header, stated_header, table_crc
from npuabi.target import Target
from npuabi.wire import Record, sealed

__all__ = [
    "Event",
    "Loaded",
    "Program",
    "Verified",
    "pack_symbols",
    "parts_of",
    "read_blob",
    "symbol_at",
    "table_header",
    "verify_blob",
    "write_blob",
    "write_blob_as",
]

R = TypeVar("R", bound=Record)

_MAX_EVENTS = 32
_TABLES = (Section.TABLE_A, Section.TABLE_B)


def write_blob(program: Program) -> bytes:
    """Return the bytes of *program*, in the layouts of the ABI version that its header states.

    The same program gives the same bytes. Raises AbiError when the program breaks a rule of
    checks.py, a value does not fit its field, or the version cannot say what the program needs.
    """
    check_program(program)
    version = (program.header.abi_major, program.header.abi_minor)
    return write_blob_as(program, own_abi().schemas.get(version, own_schema()))


def write_blob_as(program: Program, schema: Schema) -> bytes:
    """Return the bytes of *program* in the layouts of *schema*, whatever its header states."""
    table = _table(program, schema)

    def put(records: bytes, kind: type[Record]) -> bytes:
        # What that version lacks is refused below, unless there is nothing of it.
        known = kind.__name__ in schema.records
        return translated(records, kind.__name__, own_schema(), schema) if known else records

    contents = {
        Section.RING: np.array(program.ring, "<u4").tobytes(),
        Section.INTERFACE: put(Interface.encode_many(program.interface), Interface),
        Section.SYMBOLS: program.symbols,
        Section.SOURCE_MAP: put(SourceEntry.encode_many(program.sources), SourceEntry),
        Section.STATES: put(StateEntry.encode_many(program.states), StateEntry),
        Section.KNOWN_ANSWER: put(program.known_answer.encode(), KnownAnswer),
        Section.BANDS: put(BandSet.encode_many(program.bands), BandSet),
        Section.SIGNATURE: put(Signature.encode_many(program.signatures), Signature),
        Section.CHUNK_CRCS: chunk_crcs(program.constants).tobytes(),
        Section.TABLE_A: table,
        Section.TABLE_B: table,
        Section.CONSTANTS: program.constants,
    }
    lost = [kind.name for kind, raw in contents.items() if raw and kind not in schema.sections]
    if lost:
        detail = f"that version has no section {', '.join(lost)}"
        raise AbiError(ErrorCode.BAD_SECTION_TABLE, detail)
    return join_sections(contents, schema.sections)


def _table(program: Program, schema: Schema) -> bytes:
    own = own_schema()
    records = translated(
        TensorDescriptor.encode_many(program.tensors), TensorDescriptor.__name__, own, schema
    ) + translated(Toa.encode_many(program.toas), Toa.__name__, own, schema)
    version = (program.header.abi_major, program.header.abi_minor)
    crc = table_crc(records, version)
    return replace(program.header, table_crc=crc).encode() + records


def read_blob(raw: bytes, *, target: Target, abi: Abi | None = None) -> Loaded:
    """Return the program in *raw*, healed in memory where one table copy is bad.

    *abi* is what the firmware knows; all that this code knows by default. Raises AbiError, whose
    code says what does not hold. *raw* is not changed.
    """
    found = verify_blob(raw, target=target, abi=abi)
    program = _program(found.header, found.table, _Contents(found.parts, found.schema))
    check_program(program)
    return Loaded(program=program, events=_events(found.damages, program))


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A blob whose every CRC holds, once healed, and whose version and target are taken.

    ``table`` is what both copies should hold; ``copies`` are as they were found.
    """

    header: TableHeader
    table: bytes
    copies: tuple[Copy, Copy]
    damages: list[Damage]
    parts: Mapping[Section, Part]
    schema: Schema


def verify_blob(raw: bytes, *, target: Target, abi: Abi | None = None) -> Verified:
    """Return what ``read_blob`` goes by before it decodes any record. Raises AbiError as it does.

    What npuc wrote and nothing has changed since is a program for that firmware, too.
    """
    raw, abi = bytes(raw), abi or own_abi()
    schema = _schema(raw, abi)
    parts = split_sections(raw, schema.sections)
    first, second = (Copy.of(parts[kind]) for kind in _TABLES)
    _admit(newest_header((first, second)).header, target, abi)
    for kind, part in parts.items():
        if kind not in _TABLES:
            verify_section(part)
    table, damages = heal(first, second)
    header = _admit(table[: TableHeader.SIZE], target, abi)
    return Verified(
        header=header,
        table=table,
        copies=(first, second),
        damages=damages,
        parts=parts,
        schema=schema,
    )


def parts_of(raw: bytes) -> dict[Section, Part]:
    """Return the sections of a blob of any version that this code knows.

    Raises AbiError when they cannot be told apart.
    """
    return split_sections(raw, _schema(raw, own_abi()).sections)


def _schema(raw: bytes, abi: Abi) -> Schema:
    """Return the schema of the blob's version, which *abi* must take, before the rest is read."""
    header = stated_header(stated_tables(raw, TableHeader.SIZE))
    if header is None:
        return own_schema()  # whose section table then says where the tables should be
    version = _version(header)
    check_version(version, abi)
    return abi.schemas.get(version, own_schema())


def _version(header: bytes) -> tuple[int, int]:
    stated = np.frombuffer(header, TableHeader.DTYPE)[0]
    return int(stated["abi_major"]), int(stated["abi_minor"])


def target_of(raw: bytes) -> str:
    """Return the name of the target that a blob says it is for, before anything is believed.

    Raises AbiError when no table header can be found.
    """
    raw = bytes(raw)
    header = stated_header(stated_tables(raw, TableHeader.SIZE))
    if header is None:
        parts = split_sections(raw)
        header = newest_header([Copy.of(parts[kind]) for kind in _TABLES]).header
    return bytes(np.frombuffer(header, TableHeader.DTYPE)[0]["target"]).decode("utf-8", "replace")


def _admit(header: bytes, target: Target, abi: Abi) -> TableHeader:
    """Decode a table header whose CRC holds, once its version says that it can be decoded."""
    version = _version(header)
    check_version(version, abi)
    decoded = TableHeader.decode(header)
    check(decoded, target, abi)
    _check_frame(header, abi.schemas[version])
    return decoded


def _check_frame(header: bytes, schema: Schema) -> None:
    """Refuse a table header that states what its version does not have: AbiError BAD_FIELD."""
    octets = np.frombuffer(header, np.uint8)
    for place in schema.records[TableHeader.__name__]:
        if place.role == "reserved" and octets[place.offset : place.offset + place.count].any():
            raise AbiError(ErrorCode.BAD_FIELD, f"TableHeader.{place.name} is not zero")


@dataclass(frozen=True, slots=True)
class _Contents:
    """The sections of a blob, records in our layouts; one that its version lacks is empty."""

    parts: Mapping[Section, Part]
    schema: Schema

    def of(self, kind: Section) -> bytes:
        part = self.parts.get(kind)
        return b"" if part is None else bytes(part.content)

    def records(self, section: Section, kind: type[R], limit: int) -> tuple[R, ...]:
        raw = self.of(section)
        check_limits(((f"entries of {section.name}", len(raw) // kind.SIZE, limit),))
        return tuple(kind.decode_many(self.ours(raw, kind)))

    def sealed(self, section: Section, kind: type[R], limit: int) -> tuple[R, ...]:
        """Return records that end in a CRC of their own, which must hold."""
        raw, size = self.of(section), self.schema.sizes.get(kind.__name__, kind.SIZE)
        for start in range(0, len(raw), size):
            if not sealed(raw[start : start + size]):
                detail = f"{section.name}: the CRC of record {start // size} does not match"
                raise AbiError(ErrorCode.RECORD_CRC, detail)
        return self.records(section, kind, limit)

    def ours(self, raw: bytes, kind: type[Record]) -> bytes:
        known = kind.__name__ in self.schema.records
        return translated(raw, kind.__name__, self.schema, own_schema()) if known else raw


def _program(header: TableHeader, table: bytes, contents: _Contents) -> Program:
    tensors, toas, ring = header.tensor_count, header.toa_count, contents.of(Section.RING)
    check_limits((("tensors", tensors, MAX_TENSORS), ("TOAs", toas, MAX_TOAS)))
    if len(ring) != 4 * toas:
        detail = f"{len(ring)} bytes of ring for {toas} TOAs of 4 bytes"
        raise AbiError(ErrorCode.BAD_RING, detail)
    constants = contents.of(Section.CONSTANTS)
    check_chunks(constants, contents.of(Section.CHUNK_CRCS))
    middle = TableHeader.SIZE + tensors * TensorDescriptor.SIZE
    end = middle + toas * Toa.SIZE
    symbols = contents.of(Section.SYMBOLS)
    check_limits((("entries of SYMBOLS", len(symbols), MAX_SYMBOL_BYTES),))
    tensor_records = contents.ours(table[TableHeader.SIZE : middle], TensorDescriptor)
    answer = contents.ours(contents.of(Section.KNOWN_ANSWER), KnownAnswer)
    return Program(
        header=header,
        tensors=tuple(TensorDescriptor.decode_many(tensor_records)),
        toas=tuple(Toa.decode_many(contents.ours(table[middle:end], Toa))),
        ring=tuple(np.frombuffer(ring, "<u4").tolist()),
        constants=constants,
        interface=contents.records(Section.INTERFACE, Interface, MAX_INTERFACES),
        sources=contents.records(Section.SOURCE_MAP, SourceEntry, MAX_SOURCES),
        symbols=symbols,
        known_answer=KnownAnswer.decode(answer),
        states=contents.records(Section.STATES, StateEntry, MAX_INTERFACES),
        bands=contents.sealed(Section.BANDS, BandSet, BANDS),
        signatures=contents.records(Section.SIGNATURE, Signature, MAX_SIGNATURES),
    )


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
