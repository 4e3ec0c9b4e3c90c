"""Schemas: the record layouts of ABI versions as data, and records put from one into another.

The text of a schema is all that its hash covers: records with offsets, types and roles, and enums
with their members. Ours is derived from records.py; those of older versions are kept as files in
versions/, whose hashes prove that nobody has edited them.

Within a major version fields may move and be added, enum members be added. What leads to the
version has to lie still: file header, section entries, the head of the table, and the heads of
parameters tensors, which lie among constants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag
from functools import cache, cached_property
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi import enums
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import (
    RECORDS,
    FileHeader,
    FloatParams,
    OpParams,
    SectionEntry,
    TableHeader,
)
from npuabi.wire import Record, seal

__all__ = [
    "ABI_MAJOR",
    "ABI_MINOR",
    "FRAME",
    "Place",
    "Schema",
    "Version",
    "own_schema",
    "parse_schema",
    "released",
    "schema_hash",
    "schema_text",
    "translated",
]

Version = tuple[int, int]
"""Major and minor."""

ABI_MAJOR, ABI_MINOR = 0, 2
"""The version that this code writes. Major 0: the layout may still change freely."""

FRAME: tuple[type[Record], ...] = (FileHeader, SectionEntry, TableHeader, OpParams, FloatParams)
"""Records whose fields never move; new ones take reserved bytes. A test holds schemas to it."""

_NUMPY = {
    "uint8_t": "<u1",
    "uint16_t": "<u2",
    "uint32_t": "<u4",
    "uint64_t": "<u8",
    "int8_t": "<i1",
    "int16_t": "<i2",
    "int32_t": "<i4",
    "float": "<f4",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a schema has a field, and as what."""

    offset: int
    name: str
    ctype: str
    count: int
    role: str
    enum: str

    @property
    def numpy(self) -> Any:
        """The numpy dtype of the field."""
        if self.role == "chars":
            return f"S{self.count}"
        if self.role == "reserved":
            return np.dtype(("u1", (self.count,)))
        scalar = np.dtype(_NUMPY[self.ctype])
        return np.dtype((scalar, (self.count,))) if self.count > 1 else scalar


@dataclass(frozen=True)
class Schema:
    """All layouts of one version. Records are lists of places; sizes stand beside them."""

    text: str
    sizes: Mapping[str, int]
    records: Mapping[str, tuple[Place, ...]]
    enums: Mapping[str, Mapping[str, int]]

    @cached_property
    def hash(self) -> int:
        """64-bit hash of the text: the first bytes of its SHA-256."""
        return int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:8], "little")

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections of a blob of that version, as far as this code knows them."""
        return tuple(kind for kind in Section if kind.name in self.enums["Section"])

    def dtype(self, record: str) -> np.dtype[Any]:
        """Return the numpy dtype of a record."""
        places = self.records[record]
        return np.dtype(
            {
                "names": [place.name for place in places],
                "formats": [place.numpy for place in places],
                "offsets": [place.offset for place in places],
                "itemsize": self.sizes[record],
            }
        )


def schema_text() -> str:
    """Return the text of the schema that this code has."""
    return "\n".join((*_record_lines(), *_enum_lines()))


def _record_lines() -> Iterator[str]:
    for kind in RECORDS:
        yield f"record {kind.__name__} {kind.SIZE}"
        for offset, name, wire in kind.rows():
            enum = wire.enum.__name__ if wire.enum else "-"
            yield f"{offset} {name} {wire.ctype} {wire.count} {wire.role} {enum}"


def _enum_lines() -> Iterator[str]:
    for name in sorted(enums.__all__):
        yield f"enum {name}"
        yield from (f"{member.name} {member.value}" for member in getattr(enums, name))


@cache
def own_schema() -> Schema:
    """Return the schema that this code has."""
    return parse_schema(schema_text())


@cache
def schema_hash() -> int:
    """Return the hash of the schema that this code has."""
    return int.from_bytes(hashlib.sha256(schema_text().encode()).digest()[:8], "little")


@cache
def released() -> Mapping[Version, Schema]:
    """Return the schemas of older versions that are kept."""
    found: dict[Version, Schema] = {}
    for file in (resources.files("npuabi") / "versions").iterdir():
        if file.name.endswith(".txt"):
            major, minor = file.name.removesuffix(".txt").split(".")
            found[int(major), int(minor)] = parse_schema(file.read_text("utf-8").rstrip("\n"))
    return dict(sorted(found.items()))


def parse_schema(text: str) -> Schema:
    """Return the schema that a text in the form of ``schema_text`` states."""
    sizes: dict[str, int] = {}
    records: dict[str, list[Place]] = {}
    members: dict[str, dict[str, int]] = {}
    current = ""
    for line in text.splitlines():
        words = line.split(" ")
        if words[0] in ("record", "enum"):
            current = words[1]
        if words[0] == "record":
            sizes[current], records[current] = int(words[2]), []
        elif words[0] == "enum":
            members[current] = {}
        elif current in members:
            members[current][words[0]] = int(words[1])
        else:
            offset, name, ctype, count, role, enum = words
            place = Place(int(offset), name, ctype, int(count), role, enum)
            records[current].append(place)
    return Schema(text, sizes, {name: tuple(places) for name, places in records.items()}, members)


# --- from one schema to another -----------------------------------------------------------------


def translated(raw: bytes, record: str, old: Schema, new: Schema) -> bytes:
    """Return records of the schema *old* as those of *new*, CRCs made anew.

    Fields that *old* lacks are zero. Raises AbiError BAD_FIELD for what *new* cannot say: a field
    that it lacks and that is not zero, an enum member that it lacks, a reserved byte that is not
    zero; SHORT_RECORD.
    """
    if _same(record, old, new):
        return raw
    if len(raw) % old.sizes[record]:
        detail = f"{len(raw)} bytes are no whole number of {record}s"
        raise AbiError(ErrorCode.SHORT_RECORD, detail)
    source = np.frombuffer(raw, old.dtype(record))
    made = np.zeros(len(source), new.dtype(record))
    known = {place.name: place for place in new.records[record]}
    for place in old.records[record]:
        values = source[place.name]
        if place.role in ("value", "chars") and place.name in known:
            made[place.name] = _renumbered(values, place, known[place.name], old, new, record)
        elif place.role != "crc" and np.any(values if place.role != "chars" else values != b""):
            raise AbiError(ErrorCode.BAD_FIELD, f"{record}.{place.name} is not zero")
    octets, size = made.tobytes(), new.sizes[record]
    if "crc" not in known:
        return octets
    return b"".join(seal(octets[i : i + size]) for i in range(0, len(octets), size))


def _same(record: str, old: Schema, new: Schema) -> bool:
    """Return whether a record's bytes mean the same in both."""
    if old.records[record] != new.records[record]:
        return False
    names = {place.enum for place in old.records[record]} - {"-"}
    return all(old.enums[name] == new.enums[name] for name in names)


def _renumbered(
    values: NDArray[Any], was: Place, now: Place, old: Schema, new: Schema, record: str
) -> NDArray[Any]:
    """Return a field's values with the members of its enum as *new* numbers them."""
    if was.enum == "-" or old.enums[was.enum] == new.enums[now.enum]:
        return values
    before, after = old.enums[was.enum], new.enums[now.enum]
    if issubclass(getattr(enums, was.enum), IntFlag):
        return _flags(values, before, after, f"{record}.{was.name}")
    numbers = {value: after.get(name) for name, value in before.items()}
    found = [numbers.get(int(value)) for value in values.tolist()]
    if None in found:
        bad = int(values[found.index(None)])
        detail = f"{record}.{was.name} is {bad}, which is no {was.enum} of both versions"
        raise AbiError(ErrorCode.BAD_FIELD, detail)
    return np.array(found, values.dtype)


def _flags(
    values: NDArray[Any], before: Mapping[str, int], after: Mapping[str, int], where: str
) -> NDArray[Any]:
    made, left = np.zeros_like(values), values.copy()
    for name, bit in before.items():
        if name in after:
            made |= np.where(values & bit, after[name], 0).astype(values.dtype)
            left &= ~np.array(bit, values.dtype)
    if left.any():
        raise AbiError(ErrorCode.BAD_FIELD, f"{where} has flags that one version lacks")
    return made
