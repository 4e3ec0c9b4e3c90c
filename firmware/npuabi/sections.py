"""Sections of a blob: where each lies, and proof that every byte of the file is in one.

    0     FileHeader                              64 bytes
    64    SectionEntry x 10                       64 bytes each
    704   RING INTERFACE SYMBOLS SOURCE_MAP STATES KNOWN_ANSWER CHUNK_CRCS   at multiples of 64
          TABLE_A TABLE_B CONSTANTS                                   at multiples of 4096

A section's span is its content and 0xFF up to the next section (after the last: up to a multiple
of 4096). Order, alignment and spans follow from the lengths alone, so a blob has one form only.
Lengths are bounded by the file before they are used; nothing is copied here.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import FileHeader, SectionEntry

__all__ = [
    "BLOB_MAGIC",
    "CONTAINER_VERSION",
    "MAX_BLOB_BYTES",
    "SECTION_ALIGNMENT",
    "SECTOR_BYTES",
    "Part",
    "join_sections",
    "split_sections",
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
    Section.CHUNK_CRCS: 64,
    Section.TABLE_A: SECTOR_BYTES,
    Section.TABLE_B: SECTOR_BYTES,
    Section.CONSTANTS: SECTOR_BYTES,
}
"""Every section with its alignment, in file order."""

_HEAD_BYTES = FileHeader.SIZE + SectionEntry.SIZE * len(SECTION_ALIGNMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One section of a blob: its entry and its bytes, padding included."""

    kind: Section
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


def _spans(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return (offset, span) of each section, given its content's length."""
    offsets, cursor = [], _HEAD_BYTES
    for length, alignment in zip(lengths, SECTION_ALIGNMENT.values(), strict=True):
        offsets.append(_up(cursor, alignment))
        cursor = offsets[-1] + length
    ends = [*offsets[1:], _up(cursor, SECTOR_BYTES)]
    return [(start, end - start) for start, end in zip(offsets, ends, strict=True)]


def join_sections(contents: Mapping[Section, bytes]) -> bytes:
    """Return the blob of all sections' *contents*.

    Raises AbiError (BAD_LENGTH) above 1 GiB.
    """
    places = _spans([len(contents[kind]) for kind in SECTION_ALIGNMENT])
    total = sum(places[-1])
    if total > MAX_BLOB_BYTES:
        detail = f"the blob has {total} bytes, at most {MAX_BLOB_BYTES}"
        raise AbiError(ErrorCode.BAD_LENGTH, detail)
    bodies = [
        contents[kind].ljust(span, b"\xff")
        for kind, (_, span) in zip(SECTION_ALIGNMENT, places, strict=True)
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
            alignment=alignment,
            offset=offset,
            length=len(contents[kind]),
            span=span,
            payload_crc=zlib.crc32(body),
        )
        for (kind, alignment), (offset, span), body in zip(
            SECTION_ALIGNMENT.items(), places, bodies, strict=True
        )
    ]
    return b"".join((head.encode(), *(entry.encode() for entry in entries), *bodies))


def split_sections(raw: bytes) -> dict[Section, Part]:
    """Return the sections of blob *raw*, their CRCs not yet checked.

    Raises AbiError: BAD_MAGIC, BAD_LENGTH, BAD_CONTAINER_VERSION, BAD_SECTION_TABLE and the codes
    of records.
    """
    _check_file_header(raw)
    table = raw[FileHeader.SIZE : _HEAD_BYTES]
    size = SectionEntry.SIZE
    entries = [SectionEntry.decode(table[i : i + size]) for i in range(0, len(table), size)]
    _check_entries(entries, len(raw))
    view = memoryview(raw)
    return {
        entry.kind: Part(
            kind=entry.kind,
            span=view[entry.offset : entry.offset + entry.span],
            length=entry.length,
            crc=entry.payload_crc,
        )
        for entry in entries
    }


def _check_file_header(raw: bytes) -> None:
    if not raw.startswith(BLOB_MAGIC):
        detail = f"a blob begins with {BLOB_MAGIC!r}, got {raw[:8]!r}"
        raise AbiError(ErrorCode.BAD_MAGIC, detail)
    if not _HEAD_BYTES <= len(raw) <= MAX_BLOB_BYTES:
        detail = f"a blob has {_HEAD_BYTES} to {MAX_BLOB_BYTES} bytes, got {len(raw)}"
        raise AbiError(ErrorCode.BAD_LENGTH, detail)
    header = FileHeader.decode(raw[: FileHeader.SIZE])
    if header.container_version != CONTAINER_VERSION:
        detail = f"container version {header.container_version}, this reads {CONTAINER_VERSION}"
        raise AbiError(ErrorCode.BAD_CONTAINER_VERSION, detail)
    if header.length != len(raw):
        detail = f"the header says {header.length} bytes, the file has {len(raw)}"
        raise AbiError(ErrorCode.BAD_LENGTH, detail)
    if (header.header_bytes, header.section_count) != (FileHeader.SIZE, len(SECTION_ALIGNMENT)):
        detail = f"{header.section_count} sections after a header of {header.header_bytes} bytes"
        raise AbiError(ErrorCode.BAD_SECTION_TABLE, detail)


def _check_entries(entries: Sequence[SectionEntry], size: int) -> None:
    if any(entry.length > size for entry in entries):
        raise AbiError(
            ErrorCode.BAD_SECTION_TABLE, f"a section is longer than the {size}-byte file"
        )
    places = _spans([entry.length for entry in entries])
    rows = zip(entries, SECTION_ALIGNMENT.items(), places, strict=True)
    for entry, (kind, alignment), (offset, span) in rows:
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
