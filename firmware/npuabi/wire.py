"""Wire records: one frozen dataclass states a binary record completely.

A class decorated with :func:`record` is the only statement of that record's layout. The construct
Struct, encoder, decoder, numpy dtype, hex dump, docs table and C header are all derived from its
fields. All records are little-endian, without padding, of fixed size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum, IntFlag
from functools import cache
from itertools import islice
from operator import attrgetter
from struct import Struct
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

import construct as c
import numpy as np

from npuabi.errors import AbiError, ErrorCode

__all__ = [
    "Field",
    "Points",
    "Record",
    "chars",
    "crc32",
    "enum8",
    "f32",
    "flags16",
    "i8",
    "i16",
    "i16s",
    "i32",
    "record",
    "reserved",
    "u8",
    "u8s",
    "u16",
    "u16s",
    "u32",
    "u32s",
    "u64",
]

R = TypeVar("R", bound="Record")


Points = Literal["", "sources", "symbols", "tensors"]
"""The part of a program that a field counts in: an index, or for symbols an offset in bytes."""


@dataclass(frozen=True, slots=True)
class Field:
    """How one field sits on the wire, and what it means."""

    codec: Any
    ctype: str
    numpy: str
    doc: str
    count: int = 1
    enum: type[IntEnum] | type[IntFlag] | None = None
    role: str = "value"
    points: Points = ""

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return int(self.codec.sizeof())


_SCALARS: dict[str, tuple[Any, str, str]] = {
    "u8": (c.Int8ul, "uint8_t", "<u1"),
    "u16": (c.Int16ul, "uint16_t", "<u2"),
    "u32": (c.Int32ul, "uint32_t", "<u4"),
    "u64": (c.Int64ul, "uint64_t", "<u8"),
    "i8": (c.Int8sl, "int8_t", "<i1"),
    "i16": (c.Int16sl, "int16_t", "<i2"),
    "i32": (c.Int32sl, "int32_t", "<i4"),
    "f32": (c.Float32l, "float", "<f4"),
}


def _scalar(kind: str, doc: str, **more: Any) -> Any:
    codec, ctype, dtype = _SCALARS[kind]
    return field(metadata={"wire": Field(codec, ctype, dtype, doc, **more)})


def _array(kind: str, count: int, doc: str, **more: Any) -> Any:
    codec, ctype, dtype = _SCALARS[kind]
    return field(metadata={"wire": Field(codec[count], ctype, dtype, doc, count=count, **more)})


def u8(doc: str) -> Any:
    """Declare an unsigned 8-bit field."""
    return _scalar("u8", doc)


def u16(doc: str, *, points: Points = "") -> Any:
    """Declare an unsigned 16-bit field."""
    return _scalar("u16", doc, points=points)


def u32(doc: str, *, points: Points = "") -> Any:
    """Declare an unsigned 32-bit field."""
    return _scalar("u32", doc, points=points)


def u64(doc: str) -> Any:
    """Declare an unsigned 64-bit field."""
    return _scalar("u64", doc)


def i8(doc: str) -> Any:
    """Declare a signed 8-bit field."""
    return _scalar("i8", doc)


def i16(doc: str) -> Any:
    """Declare a signed 16-bit field."""
    return _scalar("i16", doc)


def i32(doc: str) -> Any:
    """Declare a signed 32-bit field."""
    return _scalar("i32", doc)


def f32(doc: str) -> Any:
    """Declare an IEEE 754 binary32 field."""
    return _scalar("f32", doc)


def enum8(enum: type[IntEnum], doc: str) -> Any:
    """Declare an 8-bit field that holds a member of *enum*."""
    return _scalar("u8", doc, enum=enum)


def flags16(enum: type[IntFlag], doc: str) -> Any:
    """Declare a 16-bit field of flags."""
    return _scalar("u16", doc, enum=enum)


def u8s(count: int, doc: str) -> Any:
    """Declare *count* unsigned bytes."""
    return _array("u8", count, doc)


def u16s(count: int, doc: str) -> Any:
    """Declare *count* unsigned 16-bit numbers."""
    return _array("u16", count, doc)


def u32s(count: int, doc: str, *, points: Points = "") -> Any:
    """Declare *count* unsigned 32-bit numbers."""
    return _array("u32", count, doc, points=points)


def i16s(count: int, doc: str) -> Any:
    """Declare *count* signed 16-bit numbers."""
    return _array("i16", count, doc)


def chars(count: int, doc: str) -> Any:
    """Declare *count* bytes of UTF-8 text or magic, padded with zeros; a ``bytes`` in Python."""
    wire = Field(c.Bytes(count), "char", f"S{count}", doc, count=count, role="chars")
    return field(metadata={"wire": wire})


def reserved(count: int, *, init: Literal[False] = False) -> Any:
    """Declare *count* bytes that are zero and refused when they are not.

    ``init`` tells type checkers that a caller does not give the field.
    """
    wire = Field(c.Bytes(count), "uint8_t", f"V{count}", "zero", count=count, role="reserved")
    return field(default=bytes(count), metadata={"wire": wire})


def crc32(doc: str, *, init: Literal[False] = False) -> Any:
    """Declare the closing CRC-32 (zlib polynomial) of all bytes before it.

    ``init`` tells type checkers that a caller does not give the field.
    """
    codec, ctype, dtype = _SCALARS["u32"]
    wire = Field(codec, ctype, dtype, doc, role="crc")
    return field(default=0, compare=False, metadata={"wire": wire})


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(
        u8, u16, u32, u64, i8, i16, i32, f32, enum8, flags16, u8s, u16s, u32s, i16s, chars,
        reserved, crc32,
    ),
)  # fmt: skip
def record(*, size: int) -> Callable[[type[R]], type[R]]:
    """Turn an annotated class into a wire record of exactly *size* bytes."""

    def decorate(cls: type[R]) -> type[R]:
        made = dataclass(frozen=True, kw_only=True)(cls)
        made.FIELDS = {f.name: f.metadata["wire"] for f in fields(made)}
        made.LAYOUT = c.Struct(*(name / wire.codec for name, wire in made.FIELDS.items()))
        made.SIZE = int(made.LAYOUT.sizeof())
        if size != made.SIZE:
            raise TypeError(f"{cls.__name__} is {made.SIZE} bytes, the ABI says {size}")
        made._PLACED = tuple(_placed(made.FIELDS))
        made._PACKED = Struct("<" + "".join(map(_packed, made.FIELDS.values())))
        made.DTYPE = np.dtype([(n, w.numpy, *_shape(w)) for n, w in made.FIELDS.items()])
        return made

    return decorate


def _placed(fields: dict[str, Field]) -> Iterator[tuple[int, str, Field]]:
    offset = 0
    for name, wire in fields.items():
        yield offset, name, wire
        offset += wire.size


def _packed(wire: Field) -> str:
    """Return the field in the language of Python's struct, for decoding one record at a time."""
    if wire.role in ("chars", "reserved"):
        return f"{wire.count}s"
    kind = np.dtype(wire.numpy)
    return f"{wire.count}{'f' if kind.kind == 'f' else _INTEGERS[kind.kind][kind.itemsize]}"


_INTEGERS = {"u": {1: "B", 2: "H", 4: "I", 8: "Q"}, "i": {1: "b", 2: "h", 4: "i"}}


def _shape(wire: Field) -> tuple[tuple[int], ...]:
    return ((wire.count,),) if wire.count > 1 and wire.role == "value" else ()


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of every wire record: encode, decode and walk the fields."""

    SIZE: ClassVar[int]
    DTYPE: ClassVar[np.dtype[Any]]
    FIELDS: ClassVar[dict[str, Field]]
    LAYOUT: ClassVar[Any]
    _PACKED: ClassVar[Struct]
    _PLACED: ClassVar[tuple[tuple[int, str, Field], ...]]

    def encode(self) -> bytes:
        """Return the record's bytes, with its CRC computed."""
        values = {name: getattr(self, name) for name in self.FIELDS}
        for name, wire in self.FIELDS.items():
            if wire.role == "chars":
                values[name] = values[name].ljust(wire.count, b"\0")
        try:
            raw = bytes(self.LAYOUT.build(values))
        except c.ConstructError as error:
            raise AbiError(ErrorCode.BAD_FIELD, f"{type(self).__name__}: {error}") from error
        return seal(raw) if "crc" in self.FIELDS else raw

    @classmethod
    def decode(cls, raw: bytes | memoryview) -> Self:
        """Return the record that *raw* holds.

        Raises AbiError: SHORT_RECORD, RECORD_CRC, BAD_FIELD (an unknown enum value, a reserved
        byte that is not zero, a float that is NaN).
        """
        raw = bytes(raw)
        if len(raw) != cls.SIZE:
            text = f"{cls.__name__} is {cls.SIZE} bytes, got {len(raw)}"
            raise AbiError(ErrorCode.SHORT_RECORD, text)
        if "crc" in cls.FIELDS and not sealed(raw):
            raise AbiError(ErrorCode.RECORD_CRC, f"{cls.__name__}: CRC does not match")
        values = iter(cls._PACKED.unpack(raw))
        parsed = {
            name: tuple(islice(values, wire.count))
            if wire.count > 1 and wire.role == "value"
            else next(values)
            for name, wire in cls.FIELDS.items()
        }
        return cls(**{name: cls._lift(name, value) for name, value in parsed.items()})

    @classmethod
    def encode_many(cls, records: Sequence[Self]) -> bytes:
        """Return the bytes of many records at once, CRCs computed."""
        rows = list(map(attrgetter(*cls.FIELDS), records))
        try:
            raw = np.array(rows, dtype=cls.DTYPE).tobytes()
        except (OverflowError, TypeError, ValueError) as error:
            raise AbiError(ErrorCode.BAD_FIELD, f"{cls.__name__}: {error}") from error
        if "crc" not in cls.FIELDS:
            return raw
        return b"".join(seal(raw[i : i + cls.SIZE]) for i in range(0, len(raw), cls.SIZE))

    @classmethod
    def decode_many(cls, raw: bytes | memoryview) -> list[Self]:
        """Return the records that *raw* holds, whose CRCs the caller has checked.

        Raises AbiError: SHORT_RECORD, BAD_FIELD.
        """
        if len(raw) % cls.SIZE:
            text = f"{len(raw)} bytes are no whole number of {cls.SIZE}-byte {cls.__name__}s"
            raise AbiError(ErrorCode.SHORT_RECORD, text)
        if not raw:
            return []
        rows = np.frombuffer(raw, dtype=cls.DTYPE)
        cls._check_reserved(raw)
        names = [n for n, w in cls.FIELDS.items() if w.role != "reserved"]
        columns = [cls._lift_column(name, rows[name].tolist()) for name in names]
        return [cls(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]

    @classmethod
    def _check_reserved(cls, raw: bytes | memoryview) -> None:
        octets = np.frombuffer(raw, np.uint8).reshape(-1, cls.SIZE)
        for offset, name, wire in cls.rows():
            if wire.role == "reserved" and octets[:, offset : offset + wire.size].any():
                raise AbiError(ErrorCode.BAD_FIELD, f"{cls.__name__}.{name} is not zero")

    @classmethod
    def rows(cls) -> Iterator[tuple[int, str, Field]]:
        """Yield (offset, name, field) in wire order."""
        yield from cls._PLACED

    @classmethod
    def _lift_column(cls, name: str, values: list[Any]) -> list[Any]:
        """Return a field's values as ``_lift`` makes them; most kinds need nothing done."""
        wire = cls.FIELDS[name]
        if wire.enum is None and wire.role in ("value", "crc") and wire.ctype != "float":
            return list(map(tuple, values)) if wire.count > 1 else values
        if wire.enum is not None and not issubclass(wire.enum, IntFlag):
            members = _members(wire.enum)
            if all(value in members for value in values):
                return [members[value] for value in values]
        return [cls._lift(name, value) for value in values]

    @classmethod
    def _lift(cls, name: str, value: Any) -> Any:
        wire = cls.FIELDS[name]
        if wire.enum is not None:
            return cls._member(name, wire.enum, value)
        if wire.role == "chars":
            return bytes(value).rstrip(b"\0")
        if wire.ctype == "float" and value != value:
            raise AbiError(ErrorCode.BAD_FIELD, f"{cls.__name__}.{name} is not a number")
        if wire.role == "reserved" and any(value):
            raise AbiError(ErrorCode.BAD_FIELD, f"{cls.__name__}.{name} is not zero")
        return tuple(value) if wire.count > 1 and wire.role == "value" else value

    @classmethod
    def _member(cls, name: str, enum: Any, value: int) -> Any:
        known = not value & ~_mask(enum) if issubclass(enum, IntFlag) else value in _members(enum)
        if not known:
            text = f"{cls.__name__}.{name} is {value}, which is no {enum.__name__}"
            raise AbiError(ErrorCode.BAD_FIELD, text)
        return enum(value) if issubclass(enum, IntFlag) else _members(enum)[value]


def seal(raw: bytes) -> bytes:
    """Return *raw* with its last four bytes replaced by the CRC-32 of the rest."""
    body = raw[:-4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def sealed(raw: bytes) -> bool:
    """Return whether the last four bytes of *raw* are the CRC-32 of the rest."""
    return zlib.crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little")


@cache
def _members(enum: type[IntEnum]) -> dict[int, IntEnum]:
    return {member.value: member for member in enum}


@cache
def _mask(enum: type[IntFlag]) -> int:
    return sum(member.value for member in enum)
