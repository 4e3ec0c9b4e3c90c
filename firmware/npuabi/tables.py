"""The redundant sector pair: one descriptor table from two copies, healed record by record.

A copy is TableHeader (128 bytes), TensorDescriptors, Toas (64 bytes each), then 0xFF up to whole
sectors. It is whole when its section CRC, header, every record and the table CRC hold.

| copies | result |
| --- | --- |
| both whole, equal | taken, no event |
| both whole, other generation | the newer one, event |
| both whole, same generation, different | refused |
| one whole | that one; an event for each place where the other differs |
| none whole, one generation | each record from the copy where it holds; both bad: refused |
| none whole, two generations | the newer copy alone if its records hold, else the older |

Whatever is healed must give the section CRC of one of the copies.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.program import TABLE_MAGIC, TABLE_VALID
from npuabi.records import TableHeader, TensorDescriptor
from npuabi.schemas import Version
from npuabi.sections import Part
from npuabi.wire import sealed

__all__ = ["Copy", "Damage", "heal", "newest_header", "stated_header", "table_crc"]

_HEAD = TableHeader.SIZE
_RECORD = TensorDescriptor.SIZE
_HALF_RANGE = 1 << 31
_BODIES_SINCE: Version = (0, 2)


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where a copy differed from what was taken; index counts records, tensors first."""

    copy: Section
    part: str
    index: int
    code: ErrorCode


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One copy of the table, and what of it verifies."""

    kind: Section
    span: bytes
    length: int
    crc: int

    @classmethod
    def of(cls, part: Part) -> Copy:
        """Return the copy that a TABLE section holds. Raises AbiError (BAD_COUNT)."""
        if part.length < _HEAD or (part.length - _HEAD) % _RECORD:
            detail = f"{part.kind.name}: {part.length} bytes are no header and whole records"
            raise AbiError(ErrorCode.BAD_COUNT, detail)
        return cls(kind=part.kind, span=bytes(part.span), length=part.length, crc=part.crc)

    @property
    def header(self) -> bytes:
        """The bytes of the metadata header."""
        return self.span[:_HEAD]

    @property
    def count(self) -> int:
        """Records after the header, by the section's length."""
        return (self.length - _HEAD) // _RECORD

    def record(self, index: int) -> bytes:
        """Return the bytes of record *index*, tensors first."""
        start = _HEAD + index * _RECORD
        return self.span[start : start + _RECORD]

    @property
    def version(self) -> Version:
        """The ABI version that the header states."""
        return self.field("abi_major"), self.field("abi_minor")

    def field(self, name: str) -> int:
        """Return a number of the header without decoding the rest."""
        return int(np.frombuffer(self.header, TableHeader.DTYPE)[0][name])

    @cached_property
    def header_holds(self) -> bool:
        """Whether magic, CRC and valid flag of the header hold."""
        return (
            self.header.startswith(TABLE_MAGIC)
            and sealed(self.header)
            and self.field("valid") == TABLE_VALID
        )

    @cached_property
    def records_hold(self) -> bool:
        """Whether the count fits and each record and all together have their CRC."""
        return (
            self.field("tensor_count") + self.field("toa_count") == self.count
            and table_crc(self.span[_HEAD : self.length], self.version) == self.field("table_crc")
            and all(sealed(self.record(i)) for i in range(self.count))
        )

    @cached_property
    def whole(self) -> bool:
        """Whether everything holds, padding included."""
        padding = self.span[self.length :]
        return (
            zlib.crc32(self.span) == self.crc
            and self.header_holds
            and self.records_hold
            and padding.count(0xFF) == len(padding)
        )


def table_crc(records: bytes, version: Version) -> int:
    """Return the CRC-32 over all *records* of a table, by the rule of its ABI *version*.

    Bytes that end in their own CRC-32 add the same to a further CRC-32, whatever they are: so a sum
    over whole records, as in 0.1, does not see one that stands for another. Since 0.2 each record
    counts without its CRC.
    """
    if version < _BODIES_SINCE:
        return zlib.crc32(records)
    return zlib.crc32(np.frombuffer(records, np.uint8).reshape(-1, _RECORD)[:, :-4].tobytes())


def stated_header(heads: Sequence[bytes]) -> bytes | None:
    """Return the newest of the table headers *heads* that verifies, None without one."""
    kinds = (Section.TABLE_A, Section.TABLE_B)
    copies = [
        Copy(kind=kind, span=head, length=_HEAD, crc=0)
        for kind, head in zip(kinds, heads[:2], strict=False)
    ]
    good = [copy for copy in copies if copy.header_holds]
    return _by_age(good)[0].header if good else None


def newest_header(copies: Sequence[Copy]) -> Copy:
    """Return the copy with the newest header that verifies.

    Raises AbiError: NOT_VALID when a header is intact but was never marked complete, else
    BOTH_COPIES_BAD.
    """
    good = [copy for copy in copies if copy.header_holds]
    if good:
        return _by_age(good)[0]
    if any(copy.header.startswith(TABLE_MAGIC) and sealed(copy.header) for copy in copies):
        raise AbiError(ErrorCode.NOT_VALID, "neither copy of the table is marked complete")
    raise AbiError(ErrorCode.BOTH_COPIES_BAD, "table header: neither copy verifies")


def _by_age(copies: Sequence[Copy]) -> list[Copy]:
    """Return copies newest first; generations wrap at 2^32."""
    if len(copies) < 2:
        return list(copies)
    first, second = copies
    ahead = (second.field("generation") - first.field("generation")) % (2 * _HALF_RANGE)
    return [second, first] if 0 < ahead < _HALF_RANGE else [first, second]


def heal(first: Copy, second: Copy) -> tuple[bytes, list[Damage]]:
    """Return the bytes of one whole table and what was wrong with the copies.

    Raises AbiError: COPIES_DISAGREE, BOTH_COPIES_BAD, NOT_VALID, TABLE_CRC, SECTION_CRC, BAD_COUNT.
    """
    copies = (first, second)
    if len(first.span) != len(second.span) or first.length != second.length:
        raise AbiError(ErrorCode.BAD_SECTION_TABLE, "the two table copies have different lengths")
    taken = _take(copies)
    damages = [d for copy in copies if not copy.whole for d in _differences(taken, copy)]
    damages += [
        Damage(copy.kind, "older copy", 0, ErrorCode.COPIES_DISAGREE)
        for copy in copies
        if copy.whole and copy.span != taken
    ]
    return taken, damages


def _take(copies: Sequence[Copy]) -> bytes:
    whole = [copy for copy in copies if copy.whole]
    if len(whole) == 1 or (whole and whole[0].span == whole[1].span):
        return whole[0].span
    if whole:
        _refuse_same_generation(whole)
        return _by_age(whole)[0].span
    return _salvage(copies)


def _refuse_same_generation(copies: Sequence[Copy]) -> None:
    if len({copy.field("generation") for copy in copies}) == 1:
        detail = "both table copies are intact, of one generation, and differ"
        raise AbiError(ErrorCode.COPIES_DISAGREE, detail)


def _salvage(copies: Sequence[Copy]) -> bytes:
    lead = newest_header(copies)
    good = [copy for copy in copies if copy.header_holds]
    if len({copy.header for copy in good}) > 1:
        _refuse_same_generation(good)
        lead = next((copy for copy in _by_age(good) if copy.records_hold), lead)
        copies = [lead]
    if lead.field("tensor_count") + lead.field("toa_count") != lead.count:
        raise AbiError(ErrorCode.BAD_COUNT, f"the table header's counts do not give {lead.count}")
    records = b"".join(_intact(copies, index) for index in range(lead.count))
    if table_crc(records, lead.version) != lead.field("table_crc"):
        raise AbiError(ErrorCode.TABLE_CRC, "the healed table does not have its CRC")
    taken = (lead.header + records).ljust(len(lead.span), b"\xff")
    if zlib.crc32(taken) not in [copy.crc for copy in copies]:
        raise AbiError(ErrorCode.SECTION_CRC, "the healed table has neither copy's section CRC")
    return taken


def _intact(copies: Iterable[Copy], index: int) -> bytes:
    found = {record for copy in copies if sealed(record := copy.record(index))}
    if not found:
        detail = f"record {index} of the table is bad in every copy"
        raise AbiError(ErrorCode.BOTH_COPIES_BAD, detail)
    if len(found) > 1:
        detail = f"record {index} of the table is intact in both copies and differs"
        raise AbiError(ErrorCode.COPIES_DISAGREE, detail)
    return found.pop()


def _differences(taken: bytes, copy: Copy) -> Iterator[Damage]:
    if copy.span == taken:
        yield Damage(copy.kind, "section entry", 0, ErrorCode.SECTION_CRC)
        return
    if copy.header != taken[:_HEAD]:
        yield Damage(copy.kind, "header", 0, ErrorCode.RECORD_CRC)
    ours, theirs = (
        np.frombuffer(raw[_HEAD : copy.length], np.uint8).reshape(-1, _RECORD)
        for raw in (taken, copy.span)
    )
    for index in np.flatnonzero((ours != theirs).any(axis=1)):
        yield Damage(copy.kind, "record", int(index), ErrorCode.RECORD_CRC)
    if copy.span[copy.length :] != taken[copy.length :]:
        yield Damage(copy.kind, "padding", 0, ErrorCode.BAD_PADDING)
