"""Mutated blobs on a device that trusts one key: none but the signed program is taken.

An id is the seed of one mutation: bytes flipped, overwritten or copied, half of the time in a
section that holds something; of every fourth, all CRCs are then made anew, as a forger would.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from npuabi.container import read_blob, write_blob
from npuabi.errors import AbiError
from npuabi.program import Program
from npuabi.progress import Progress
from npuabi.records import FileHeader, SectionEntry, TableHeader
from npuabi.sections import split_sections
from npuabi.signature import key_hash, sign, verify_signature
from npuabi.target import load_target
from npuabi.wire import seal
from tools.campaigns.base import Campaign, Tally
from tools.campaigns.ota_harness import small_program, tally

__all__ = ["FORGERY"]

TARGET = load_target("edge")
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_TRUSTED = key_hash(_KEY.public_key().public_bytes_raw())
_DESCRIPTORS = 10


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
    """Make the CRCs of records, tables and sections anew, in the places where they belong."""
    parts = split_sections(_signed())
    for kind, part in parts.items():
        start, end = part.offset, part.offset + len(part.span)
        if kind.name.startswith("TABLE"):
            first, last = start + TableHeader.SIZE, start + part.length
            for at in range(first, last, 64):
                raw[at : at + 64] = seal(bytes(raw[at : at + 64]))
            crc = zlib.crc32(raw[first:last]).to_bytes(4, "little")
            raw[first - 8 : first - 4] = crc
            raw[start:first] = seal(bytes(raw[start:first]))
        index = list(parts).index(kind)
        entry = FileHeader.SIZE + index * SectionEntry.SIZE
        at = next(o for o, name, _ in SectionEntry.rows() if name == "payload_crc")
        raw[entry + at : entry + at + 4] = zlib.crc32(raw[start:end]).to_bytes(4, "little")
        raw[entry : entry + 64] = seal(bytes(raw[entry : entry + 64]))


def run(ids: Sequence[int], progress: Progress) -> Tally:
    """Mutate, read, verify; what is taken must be the signed program."""
    expected = read_blob(_signed(), target=TARGET).program
    taken = 0

    def trial(identity: int) -> str:
        nonlocal taken
        raw, source = bytearray(_signed()), random.Random(identity)
        _mutate(raw, source)
        if identity % 4 == 0:
            _mend(raw)
        try:
            program = read_blob(bytes(raw), target=TARGET).program
            verify_signature(program, _TRUSTED)
        except AbiError:
            return ""
        taken += 1
        return "" if _same_but_age(program, expected) else "another program was taken"

    found = tally(ids, trial, progress, FORGERY.name)
    found.figures = {"taken, as the signed program": taken}
    return found


def _same_but_age(program: Program, expected: Program) -> bool:
    """Return whether nothing but the generation differs, which is not signed."""
    header = replace(program.header, generation=expected.header.generation)
    return replace(program, header=header) == expected


FORGERY = Campaign(
    name="forgery",
    title="mutated signed blobs, every fourth with its CRCs mended: no forgery is taken",
    short=400,
    long=10_000,
    run=run,
    group="fuzz",
)
