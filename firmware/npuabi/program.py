"""What a blob says, as Python values: a program, its names, and what a load reported.

A Program holds facts only; container.py gives it bytes and checks.py its inner rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from npuabi.enums import Precision, Rounding
from npuabi.errors import AbiError, ErrorCode
from npuabi.policy import GEOMETRY
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
from npuabi.schemas import ABI_MAJOR, ABI_MINOR, Version, schema_hash
from npuabi.target import Target
from npuabi.text import UNPRINTABLE

__all__ = [
    "TABLE_MAGIC",
    "TABLE_VALID",
    "Event",
    "Loaded",
    "Program",
    "pack_symbols",
    "symbol_at",
    "table_header",
]

TABLE_MAGIC = b"NPUTABLE"
TABLE_VALID = 0x600DF00D
"""The valid flag of a table copy that was written completely."""


class Event(NamedTuple):
    """Something that a load repaired: the error code it would have been, and what happened."""

    code: ErrorCode
    text: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """Everything in a blob. ``ring`` is the order in which the fetcher walks the TOAs.

    There is one signature at most.
    """

    header: TableHeader
    tensors: tuple[TensorDescriptor, ...]
    toas: tuple[Toa, ...]
    ring: tuple[int, ...]
    constants: bytes
    interface: tuple[Interface, ...]
    sources: tuple[SourceEntry, ...]
    symbols: bytes
    known_answer: KnownAnswer
    states: tuple[StateEntry, ...] = ()
    bands: tuple[BandSet, ...] = ()
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A program that was read, and what had to be repaired in memory to read it."""

    program: Program
    events: tuple[Event, ...]

    @property
    def version(self) -> Version:
        """The ABI version of the blob."""
        return self.program.header.abi_major, self.program.header.abi_minor


def table_header(
    *,
    target: Target,
    tensors: Sequence[TensorDescriptor],
    toas: Sequence[Toa],
    constants: bytes,
    arena_bytes: int,
    macs: int,
    cycles: int,
    rounding: Rounding,
    precision: Precision,
    generation: int = 1,
    features: int = 0,
) -> TableHeader:
    """Return the metadata header of a program for *target*, of this ABI version.

    The CRCs are filled in when the blob is written.
    """
    return TableHeader(
        magic=TABLE_MAGIC,
        abi_major=ABI_MAJOR,
        abi_minor=ABI_MINOR,
        valid=TABLE_VALID,
        schema_hash=schema_hash(),
        target_hash=target.hash,
        target=target.name.encode(),
        generation=generation,
        tensor_count=len(tensors),
        toa_count=len(toas),
        features=features,
        arena_bytes=arena_bytes,
        constant_bytes=len(constants),
        macs=macs,
        cycles=cycles,
        rounding=rounding,
        precision=precision,
        **{name: getattr(target, name) for name in GEOMETRY},
        table_crc=0,
    )


def pack_symbols(names: Iterable[str]) -> tuple[bytes, dict[str, int]]:
    """Return the symbols section of *names* and the offset of each; "" is always at 0.

    Raises ValueError for a name that holds an unprintable character, such as a NUL.
    """
    offsets: dict[str, int] = {}
    packed = bytearray()
    for name in ("", *names):
        if UNPRINTABLE.search(name):
            raise ValueError(f"a symbol holds no control characters, got {name!r}")
        if name not in offsets:
            offsets[name] = len(packed)
            packed += name.encode() + b"\0"
    return bytes(packed), offsets


def symbol_at(symbols: bytes, offset: int) -> str:
    """Return the name at *offset* of a symbols section. Raises AbiError (BAD_SYMBOL)."""
    end = symbols.find(b"\0", offset) if 0 <= offset < len(symbols) else -1
    if end < 0:
        detail = f"offset {offset} is beyond the {len(symbols)} bytes of symbols"
        raise AbiError(ErrorCode.BAD_SYMBOL, detail)
    try:
        return symbols[offset:end].decode()
    except UnicodeDecodeError as error:
        raise AbiError(ErrorCode.BAD_SYMBOL, f"symbol at {offset} is no UTF-8 text") from error
