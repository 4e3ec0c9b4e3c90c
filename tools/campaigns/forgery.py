"""Mutated blobs on a device that trusts one key: none but the signed program is taken.

An id is the seed of one mutation: bytes flipped, overwritten or copied, half of the time in a
section that holds something; of every second, all CRCs are then made anew, as a forger would.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from npuabi.checks import chunk_crcs
from npuabi.container import read_blob, write_blob
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.program import Program
from npuabi.progress import Progress
from npuabi.records import FileHeader, SectionEntry, TableHeader
from npuabi.schemas import ABI_MAJOR, ABI_MINOR
from npuabi.sections import split_sections
from npuabi.signature import key_hash, sign, verify_signature
from npuabi.tables import table_crc
from npuabi.target import load_target
from npuabi.wire import seal
from tools.campaigns.base import Campaign, Tally
from tools.campaigns.ota_harness import small_program, tally

__all__ = ["FORGERY"]

TARGET = load_target("edge")
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_TRUSTED = key_hash(_KEY.public_key().public_bytes_raw())
_DESCRIPTORS = 10
_RECORD = SectionEntry.SIZE
_PAYLOAD_CRC = next(at for at, name, _ in SectionEntry.rows() if name == "payload_crc")
_CAUGHT = (ErrorCode.UNSIGNED, ErrorCode.FOREIGN_KEY, ErrorCode.BAD_SIGNATURE)


@cache
def _signed() -> bytes:
    return write_blob(sign(small_program(_DESCRIPTORS, 1), _KEY, version=5))


@cache
def _spans() -> tuple[tuple[int, int], ...]:
    """Return the places of what the sections hold."""
    parts = split_sections(_signed()).values()
    return tuple((p.offset, p.offset + p.length) for p in parts if p.length)


def _mutate(raw: bytearray, source: random.Random) -> None:
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        low, high = source.choice(_spans()) if source.random() < 0.5 else (0, len(raw))
        at = source.randrange(low, high)
        kind = source.randrange(3)
        if kind == 0:
            raw[at] ^= 1 << source.randrange(8)
        elif kind == 1:
            raw[at] = source.randrange(256)
        else:
            size, other = source.randrange(1, 129), source.randrange(len(raw))
            piece = raw[other : other + size]
            raw[at : at + len(piece)] = piece[: len(raw) - at]


def _mend(raw: bytearray) -> None:
    """Make every CRC anew, in the place where it belongs, and the second table the first's twin."""
    parts = split_sections(_signed())
    first, second = parts[Section.TABLE_A], parts[Section.TABLE_B]
    start, end = first.offset + TableHeader.SIZE, first.offset + first.length
    for at in range(start, end, _RECORD):
        raw[at : at + _RECORD] = seal(bytes(raw[at : at + _RECORD]))
    crc = table_crc(bytes(raw[start:end]), (ABI_MAJOR, ABI_MINOR))
    raw[start - 8 : start - 4] = crc.to_bytes(4, "little")
    raw[first.offset : start] = seal(bytes(raw[first.offset : start]))
    size = len(second.span)
    raw[second.offset : second.offset + size] = raw[first.offset : first.offset + size]
    constants, chunks = parts[Section.CONSTANTS], parts[Section.CHUNK_CRCS]
    crcs = chunk_crcs(bytes(raw[constants.offset : constants.offset + constants.length])).tobytes()
    raw[chunks.offset : chunks.offset + len(crcs)] = crcs
    for index, part in enumerate(parts.values()):
        entry = FileHeader.SIZE + index * SectionEntry.SIZE
        crc = zlib.crc32(raw[part.offset : part.offset + len(part.span)])
        at = entry + _PAYLOAD_CRC
        raw[at : at + 4] = crc.to_bytes(4, "little")
        raw[entry : entry + _RECORD] = seal(bytes(raw[entry : entry + _RECORD]))
    raw[: FileHeader.SIZE] = seal(bytes(raw[: FileHeader.SIZE]))


def run(ids: Sequence[int], progress: Progress) -> Tally:
    """Mutate, read, verify; what is taken must be the signed program."""
    expected = read_blob(_signed(), target=TARGET).program
    taken = caught = 0

    def trial(identity: int) -> str:
        nonlocal taken, caught
        raw, source = bytearray(_signed()), random.Random(identity)
        _mutate(raw, source)
        if identity % 2:
            _mend(raw)
        try:
            program = read_blob(bytes(raw), target=TARGET).program
            verify_signature(program, _TRUSTED)
        except AbiError as error:
            caught += error.code in _CAUGHT
            return ""
        taken += 1
        return "" if _same_but_age(program, expected) else "another program was taken"

    found = tally(ids, trial, progress, FORGERY.name)
    found.figures = {
        "refused by the signature alone": caught,
        "taken, as the signed program": taken,
    }
    return found


def _same_but_age(program: Program, expected: Program) -> bool:
    """Return whether nothing but the generation differs, which is not signed."""
    header = replace(program.header, generation=expected.header.generation)
    return replace(program, header=header) == expected


FORGERY = Campaign(
    name="forgery",
    title="mutated signed blobs, every second with its CRCs mended: no forgery is taken",
    short=400,
    long=10_000,
    run=run,
    group="fuzz",
)
