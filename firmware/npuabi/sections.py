"""Sections of a blob: where each lies, and proof that every byte of the file is in one.

    0     FileHeader                              64 bytes
    64    SectionEntry x 12                       64 bytes each
    832   RING INTERFACE SYMBOLS SOURCE_MAP STATES
          KNOWN_ANSWER BANDS SIGNATURE CHUNK_CRCS       at multiples of 64
          TABLE_A TABLE_B CONSTANTS                                   at multiples of 4096

A section's span is its content and 0xFF up to the next section (after the last: up to a multiple
of 4096). Order, alignment and spans follow from the lengths alone, so a blob has one form only.
Lengths are bounded by the file before they are used; nothing is copied here.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import FileHeader, SectionEntry
from npuabi.wire import sealed

__all__ = [
    "BLOB_MAGIC",
    "CONTAINER_VERSION",
    "MAX_BLOB_BYTES",
    "SECTION_ALIGNMENT",
    "SECTOR_BYTES",
    "Part",
    "join_sections",
    "split_sections",
    "stated_tables",
    "verify_section",
]

BLOB_MAGIC = b"NPUBLOB\n"
CONTAINER_VERSION = 1
SECTOR_BYTES = 4096
MAX_BLOB_BYTES = 1 << 30
"""Longer files are refused unread."""

SECTION_ALIGNMENT: dict[Section, int] = {
    Section.RING: 64,
    Section.INTERFACE: 64,
    Section.SYMBOLS: 64,
    Section.SOURCE_MAP: 64,
    Section.STATES: 64,
    Section.KNOWN_ANSWER: 64,
    Section.BANDS: 64,
    Section.SIGNATURE: 64,
    Section.CHUNK_CRCS: 64,
    Section.TABLE_A: SECTOR_BYTES,
    Section.TABLE_B: SECTOR_BYTES,
    Section.CONSTANTS: SECTOR_BYTES,
}
"""Every section with its alignment, in file order."""

_KINDS = tuple(SECTION_ALIGNMENT)
_MAX_SECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One section of a blob: its entry and its bytes, padding included."""

    kind: Section
    offset: int
    span: memoryview
    length: int
    crc: int

    @property
    def content(self) -> memoryview:
        """The section's bytes without the padding."""
        return self.span[: self.length]

    @property
    def padding_holds(self) -> bool:
        """Whether all bytes after the content are 0xFF."""
        rest = bytes(self.span[self.length :])
        return rest.count(0xFF) == len(rest)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _head_bytes(sections: int) -> int:
    return FileHeader.SIZE + SectionEntry.SIZE * sections


def _spans(lengths: Mapping[Section, int]) -> list[tuple[int, int]]:
    """Return (offset, span) of each section, given its content's length."""
    offsets, cursor = [], _head_bytes(len(lengths))
    for kind, length in lengths.items():
        offsets.append(_up(cursor, SECTION_ALIGNMENT[kind]))
        cursor = offsets[-1] + length
    ends = [*offsets[1:], _up(cursor, SECTOR_BYTES)]
    return [(start, end - start) for start, end in zip(offsets, ends, strict=True)]


def join_sections(contents: Mapping[Section, bytes], kinds: Sequence[Section] = _KINDS) -> bytes:
    """Return the blob of the sections *kinds* with their *contents*.

    Raises AbiError (BAD_LENGTH) above 1 GiB.
    """
    kinds = [kind for kind in SECTION_ALIGNMENT if kind in kinds]
    places = _spans({kind: len(contents[kind]) for kind in kinds})
    total = sum(places[-1])
    if total > MAX_BLOB_BYTES:
        detail = f"the blob has {total} bytes, at most {MAX_BLOB_BYTES}"
        raise AbiError(ErrorCode.BAD_LENGTH, detail)
    bodies = [
        contents[kind].ljust(span, b"\xff") for kind, (_, span) in zip(kinds, places, strict=True)
    ]
    head = FileHeader(
        magic=BLOB_MAGIC,
        container_version=CONTAINER_VERSION,
        section_count=len(places),
        header_bytes=FileHeader.SIZE,
        length=total,
    )
    entries = [
        SectionEntry(
            kind=kind,
            alignment=SECTION_ALIGNMENT[kind],
            offset=offset,
            length=len(contents[kind]),
            span=span,
            payload_crc=zlib.crc32(body),
        )
        for kind, (offset, span), body in zip(kinds, places, bodies, strict=True)
    ]
    return b"".join((head.encode(), *(entry.encode() for entry in entries), *bodies))


def split_sections(raw: bytes, kinds: Sequence[Section] = _KINDS) -> dict[Section, Part]:
    """Return the sections *kinds* of blob *raw*, their CRCs not yet checked.

    Raises AbiError: BAD_MAGIC, BAD_LENGTH, BAD_CONTAINER_VERSION, BAD_SECTION_TABLE and the codes
    of records.
    """
    kinds = [kind for kind in SECTION_ALIGNMENT if kind in kinds]
    stated = _file_header(raw)
    if stated.section_count != len(kinds):
        detail = f"{stated.section_count} sections, a blob of this version has {len(kinds)}"
        raise AbiError(ErrorCode.BAD_SECTION_TABLE, detail)
    table = raw[FileHeader.SIZE : _head_bytes(len(kinds))]
    entries = _entries(table)
    _check_entries(entries, kinds, len(raw))
    view = memoryview(raw)
    return {
        entry.kind: Part(
            kind=entry.kind,
            offset=entry.offset,
            span=view[entry.offset : entry.offset + entry.span],
            length=entry.length,
            crc=entry.payload_crc,
        )
        for entry in entries
    }


def stated_tables(raw: bytes, size: int) -> list[bytes]:
    """Return the first *size* bytes of each table copy, wherever the section table has them.

    For a blob of any version: what other sections there are, and how they lie, is not looked at.
    Raises AbiError: BAD_MAGIC, BAD_LENGTH, BAD_CONTAINER_VERSION, BAD_SECTION_TABLE.
    """
    end = _head_bytes(_file_header(raw).section_count)
    table = raw[FileHeader.SIZE : end]
    rows = np.frombuffer(table, SectionEntry.DTYPE)
    tables = (rows["kind"] == Section.TABLE_A) | (rows["kind"] == Section.TABLE_B)
    starts = [
        int(rows["offset"][i])
        for i in np.flatnonzero(tables)
        if sealed(table[i * SectionEntry.SIZE : (i + 1) * SectionEntry.SIZE])
    ]
    heads = [raw[start : start + size] for start in starts]
    return [head for head in heads if len(head) == size]


def _file_header(raw: bytes) -> FileHeader:
    if not raw.startswith(BLOB_MAGIC):
        detail = f"a blob begins with {BLOB_MAGIC!r}, got {raw[:8]!r}"
        raise AbiError(ErrorCode.BAD_MAGIC, detail)
    if not _head_bytes(1) <= len(raw) <= MAX_BLOB_BYTES:
        detail = f"a blob has {_head_bytes(1)} to {MAX_BLOB_BYTES} bytes, got {len(raw)}"
        raise AbiError(ErrorCode.BAD_LENGTH, detail)
    header = FileHeader.decode(raw[: FileHeader.SIZE])
    if header.container_version != CONTAINER_VERSION:
        detail = f"container version {header.container_version}, this reads {CONTAINER_VERSION}"
        raise AbiError(ErrorCode.BAD_CONTAINER_VERSION, detail)
    if header.length != len(raw):
        detail = f"the header says {header.length} bytes, the file has {len(raw)}"
        raise AbiError(ErrorCode.BAD_LENGTH, detail)
    count = header.section_count
    fits = 0 < count <= _MAX_SECTIONS and _head_bytes(count) <= len(raw)
    if header.header_bytes != FileHeader.SIZE or not fits:
        detail = f"{count} sections after a header of {header.header_bytes} bytes"
        raise AbiError(ErrorCode.BAD_SECTION_TABLE, detail)
    return header


def _entries(table: bytes) -> list[SectionEntry]:
    size = SectionEntry.SIZE
    for at in range(0, len(table), size):
        if not sealed(table[at : at + size]):
            detail = f"entry {at // size} of the section table: CRC does not match"
            raise AbiError(ErrorCode.RECORD_CRC, detail)
    return SectionEntry.decode_many(table)


def _check_entries(entries: Sequence[SectionEntry], kinds: Sequence[Section], size: int) -> None:
    if any(entry.length > size for entry in entries):
        raise AbiError(
            ErrorCode.BAD_SECTION_TABLE, f"a section is longer than the {size}-byte file"
        )
    places = _spans({kind: entry.length for kind, entry in zip(kinds, entries, strict=True)})
    for entry, kind, (offset, span) in zip(entries, kinds, places, strict=True):
        alignment = SECTION_ALIGNMENT[kind]
        got = (entry.kind, entry.alignment, entry.offset, entry.span)
        if got != (kind, alignment, offset, span):
            detail = (
                f"{entry.kind.name} at {entry.offset}, span {entry.span}, alignment"
                f" {entry.alignment}; expected {kind.name} at {offset}, {span}, {alignment}"
            )
            raise AbiError(ErrorCode.BAD_SECTION_TABLE, detail)
    if sum(places[-1]) != size:
        detail = f"the sections end at {sum(places[-1])}, the file at {size}"
        raise AbiError(ErrorCode.BAD_SECTION_TABLE, detail)


def verify_section(part: Part) -> None:
    """Refuse *part* unless its CRC and its padding hold: AbiError SECTION_CRC, BAD_PADDING."""
    if zlib.crc32(part.span) != part.crc:
        detail = f"{part.kind.name}: CRC of {len(part.span)} bytes is not {part.crc:08x}"
        raise AbiError(ErrorCode.SECTION_CRC, detail)
    if not part.padding_holds:
        detail = f"{part.kind.name}: padding after {part.length} bytes is not 0xff"
        raise AbiError(ErrorCode.BAD_PADDING, detail)
