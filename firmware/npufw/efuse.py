"""eFuse: what a die keeps for ever, in bits that are blown from 0 to 1 and never back.

    0     FuseHeader    64   whose die, which layout
    64    KeySlot       64   hash of the key that signs this die's programs; zeros: none
    128   CoreTrim      64   for each core: gain and offset codes of its 16 columns

Every record begins with a magic word or its core's number plus one and ends in a CRC-32 of all
before it, so neither blank nor fully blown fuses verify. Each is blown once, as a whole.

| state of the array | run |
| --- | --- |
| blank: never calibrated | unity gain, and an event says so |
| sound, this die's | its table |
| a record that does not verify, fuses blown beyond them | refused: fuse_crc |
| sound, of a newer layout | refused: fuse_version |
| sound, another die's | refused: wrong_die |
| sound, for another number of cores | refused: fuse_columns |

Invariant: a table is used only when all records verify; a single fuse that is blown late or is not
read changes a record that has a CRC, or one that must be zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import AbiError, ErrorCode
from npuabi.schemas import ABI_MAJOR, ABI_MINOR
from npuabi.wire import Record, chars, crc32, record, reserved, u8, u8s, u16, u64
from npufw.errors import FirmwareError
from npufw.pattern import COLUMNS

__all__ = [
    "GAIN_STEP",
    "ROW_BYTES",
    "CoreTrim",
    "Efuse",
    "FuseHeader",
    "FuseState",
    "KeySlot",
    "ReadRow",
    "Table",
    "blown",
    "key_hash",
    "read_efuse",
    "rows_of",
    "size_for",
    "with_key",
    "with_table",
]

GAIN_STEP = 2.0**-12
"""One code of gain: 0.024 %. A code says by how much more than one a column is multiplied."""

R = TypeVar("R", bound=Record)

FUSE_LAYOUT = 1
ROW_BYTES = 64
_MAGIC = b"NPUFUSE"
_KEY_MAGIC = b"NPUKEY"
_CODES = (-2048, 2047)
_PACKED = COLUMNS * 12 // 8
_TRIES = 3
_MOST_CORES = 64


@record(size=64)
class FuseHeader(Record):
    """First record: whose die this is, and which layout the others have."""

    magic: bytes = chars(8, "NPUFUSE")
    layout: int = u16("of these records; 1")
    abi_major: int = u16("ABI major version of the firmware that blew them")
    abi_minor: int = u16("ABI minor version of it")
    cores: int = u8("records of columns that follow")
    columns: int = u8("columns of a core's array: 16")
    die: int = u64("the die's id")
    pad: bytes = reserved(36)
    crc: int = crc32("CRC-32 of bytes 0..59")


@record(size=64)
class KeySlot(Record):
    """The key that programs must be signed with; blown later than the rest, or never."""

    magic: bytes = chars(8, "NPUKEY")
    sha256: tuple[int, ...] = u8s(32, "SHA-256 of the public key")
    pad: bytes = reserved(20)
    crc: int = crc32("CRC-32 of bytes 0..59")


@record(size=64)
class CoreTrim(Record):
    """Codes of one core's columns, 12 bits each, two's complement, lowest bits first."""

    number: int = u8("the core's number plus one")
    pad0: bytes = reserved(3)
    gains: tuple[int, ...] = u8s(_PACKED, "column's gain: what is added to one, in 2^-12")
    offsets: tuple[int, ...] = u8s(_PACKED, "column's offset, in units of the accumulators")
    pad1: bytes = reserved(8)
    crc: int = crc32("CRC-32 of bytes 0..59")


_HEADER_ROWS = 2


class FuseState(Enum):
    """What an array that may be used is; the module's table has the others."""

    BLANK = auto()
    SOUND = auto()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Codes of all cores, of shape (cores, 16), for the die of that id."""

    die: int
    gains: NDArray[np.int64]
    offsets: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Efuse:
    """An array that was read: blank, or a table and perhaps a key's hash.

    ``again`` are the rows that were read more than once.
    """

    state: FuseState
    table: Table | None = None
    key: bytes | None = None
    again: tuple[int, ...] = ()


# --- blowing ------------------------------------------------------------------------------------


def blown(fuses: bytes, at: int, record: bytes) -> bytes:
    """Return *fuses* with *record* blown at byte *at*; FUSE_BLOWN when a 1 would become 0."""
    place = np.frombuffer(fuses[at : at + len(record)], np.uint8)
    wanted = np.frombuffer(record, np.uint8)
    if len(place) != len(wanted) or (place & ~wanted).any():
        text = f"bytes {at} to {at + len(record)} are blown already"
        raise FirmwareError(ErrorCode.FUSE_BLOWN, text)
    return fuses[:at] + record + fuses[at + len(record) :]


def size_for(cores: int) -> int:
    """Return the bytes of an array for *cores* cores."""
    return ROW_BYTES * (_HEADER_ROWS + cores)


def with_table(fuses: bytes, table: Table) -> bytes:
    """Return *fuses*, which are blank but for a key, with *table* blown.

    The header is blown last: fuses that were cut off before that are no table.
    """
    cores = len(table.gains)
    for core in range(cores):
        trim = CoreTrim(
            number=core + 1, gains=_packed(table.gains[core]), offsets=_packed(table.offsets[core])
        )
        fuses = blown(fuses, ROW_BYTES * (_HEADER_ROWS + core), trim.encode())
    header = FuseHeader(
        magic=_MAGIC,
        layout=FUSE_LAYOUT,
        abi_major=ABI_MAJOR,
        abi_minor=ABI_MINOR,
        cores=cores,
        columns=COLUMNS,
        die=table.die,
    )
    return blown(fuses, 0, header.encode())


def with_key(fuses: bytes, sha256: bytes) -> bytes:
    """Return *fuses* with the hash of a public key blown; once and for ever."""
    slot = KeySlot(magic=_KEY_MAGIC, sha256=tuple(sha256))
    return blown(fuses, ROW_BYTES, slot.encode())


def _packed(codes: NDArray[np.int64]) -> tuple[int, ...]:
    low, high = _CODES
    if codes.min() < low or codes.max() > high:
        worst = int(codes[np.abs(codes).argmax()])
        text = f"a column needs the code {worst}, codes go from {low} to {high}"
        raise FirmwareError(ErrorCode.NOT_CALIBRATED, text)
    bits = (codes[:, None] >> np.arange(12)) & 1
    return tuple(np.packbits(bits.reshape(-1).astype(np.uint8), bitorder="little").tolist())


def _unpacked(octets: tuple[int, ...]) -> NDArray[np.int64]:
    bits = np.unpackbits(np.array(octets, np.uint8), bitorder="little").reshape(COLUMNS, 12)
    values = bits.astype(np.int64) @ (1 << np.arange(12))
    return np.asarray(values - ((values >> 11) << 12), np.int64)


# --- reading ------------------------------------------------------------------------------------

ReadRow = Callable[[int], bytes | None]
"""Gives the 64 bytes of a row, or None when the sense amplifiers did not settle."""


def rows_of(fuses: bytes) -> ReadRow:
    """Return a reader of *fuses* that never fails."""
    return lambda row: fuses[row * ROW_BYTES : (row + 1) * ROW_BYTES]


def read_efuse(read: ReadRow, size: int, cores: int) -> Efuse:
    """Return what an array of *size* bytes holds for a die of *cores* cores.

    A row that cannot be read is tried three times. Raises FirmwareError FUSE_CRC, FUSE_VERSION,
    FUSE_COLUMNS.
    """
    _check_size(size)
    counted = [_row(read, row) for row in range(size // ROW_BYTES)]
    rows = [row for row, _ in counted]
    again = tuple(number for number, (_, tries) in enumerate(counted) if tries > 1)
    key = _key(rows[1])
    if not any(rows[0]) and not any(map(any, rows[_HEADER_ROWS:])):
        _check_rows(size, cores)
        return Efuse(state=FuseState.BLANK, key=key, again=again)
    header = _header(rows[0], cores)
    _check_rows(size, header.cores)
    trims = [_trim(core, row) for core, row in enumerate(rows[_HEADER_ROWS:])]
    table = Table(
        die=header.die,
        gains=np.array([_unpacked(trim.gains) for trim in trims]),
        offsets=np.array([_unpacked(trim.offsets) for trim in trims]),
    )
    return Efuse(state=FuseState.SOUND, table=table, key=key, again=again)


def key_hash(fuses: bytes) -> bytes | None:
    """Return the SHA-256 of the key that programs must be signed with, None when there is none.

    Only its own row counts, so that a damaged table opens no door; nor does a file that was cut
    before it. Raises FirmwareError FUSE_CRC.
    """
    _check_size(len(fuses))
    return _key(fuses[ROW_BYTES : 2 * ROW_BYTES])


def _check_size(size: int) -> None:
    if size % ROW_BYTES or not 3 * ROW_BYTES <= size <= size_for(_MOST_CORES):
        text = f"{size} bytes are no rows of {ROW_BYTES}, one for each core behind a header"
        raise FirmwareError(ErrorCode.FUSE_CRC, text)


def _check_rows(size: int, cores: int) -> None:
    if size != size_for(cores):
        text = f"{size} bytes of fuses, {cores} cores have {size_for(cores)}"
        raise FirmwareError(ErrorCode.FUSE_COLUMNS, text)


def _row(read: ReadRow, row: int) -> tuple[bytes, int]:
    """Return a row's bytes, and how many reads it took."""
    for tries in range(1, _TRIES + 1):
        found = read(row)
        if found is not None:
            return found, tries
    raise FirmwareError(ErrorCode.FUSE_CRC, f"row {row} cannot be read, {_TRIES} times")


def _key(row: bytes) -> bytes | None:
    if not any(row):
        return None
    slot = _decoded(KeySlot, row, "the key's slot")
    if slot.magic != _KEY_MAGIC:
        raise FirmwareError(ErrorCode.FUSE_CRC, "the key's slot has another magic word")
    return bytes(slot.sha256)


def _header(row: bytes, cores: int) -> FuseHeader:
    header = _decoded(FuseHeader, row, "the header")
    if header.magic != _MAGIC:
        raise FirmwareError(ErrorCode.FUSE_CRC, "the header has another magic word")
    if header.layout != FUSE_LAYOUT:
        text = f"layout {header.layout}, this firmware knows {FUSE_LAYOUT}"
        raise FirmwareError(ErrorCode.FUSE_VERSION, text)
    if (header.cores, header.columns) != (cores, COLUMNS):
        text = (
            f"{header.cores} cores of {header.columns} columns, the target has {cores} of {COLUMNS}"
        )
        raise FirmwareError(ErrorCode.FUSE_COLUMNS, text)
    return header


def _trim(core: int, row: bytes) -> CoreTrim:
    trim = _decoded(CoreTrim, row, f"core {core}")
    if trim.number != core + 1:
        raise FirmwareError(
            ErrorCode.FUSE_CRC, f"core {core}: the record is core {trim.number - 1}'s"
        )
    return trim


def _decoded(kind: type[R], row: bytes, where: str) -> R:
    try:
        return kind.decode(row)
    except AbiError as error:
        raise FirmwareError(ErrorCode.FUSE_CRC, f"{where}: {error.detail}") from error
