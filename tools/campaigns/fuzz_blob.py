"""Mutated blobs through loader and engine: refused with a code, healed to the same program, or run.

A trial is a function of its id: the base, one to three mutations, and whether the CRCs are made
anew over them, which leads deeper. A blob whose CRCs were left alone must give the base's program
or none. One with new CRCs that boots must also run, or be refused.
"""

from __future__ import annotations

import random
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from npuabi.checks import chunk_crcs
from npuabi.container import Program, read_blob
from npuabi.enums import Section
from npuabi.records import FileHeader, SectionEntry, TableHeader, TensorDescriptor
from npuabi.tables import table_crc
from npuabi.target import load_target
from npuabi.wire import seal
from npuc.driver import compile
from npufw.boot import boot
from npufw.engine import Engine
from npufw.selftest import generated_inputs
from tools.campaigns.base import Campaign
from tools.campaigns.fuzzing import Verdict, counted, judged

__all__ = ["FUZZ_BLOB", "mutated", "resealed", "trial"]

ROOT = Path(__file__).parents[2]
EDGE = load_target("edge")

_TINY = """graph @tiny(%x: tensor<1x4x4x4xi8, q<scale = 0.5, zp = 1>>) {
  %y = max_pool2d(%x) {kernel_shape = [2, 2], strides = [2, 2]}
  return %y
}
"""
_RUN_BYTES = 4 << 20
_ODD = (0, 1, 2, 3, 7, 63, 64, 65, 127, 128, 255, 4095, 4096, 4097, 65_535, 65_536)
_POWERS = tuple(1 << bit for bit in range(64))
"""What lengths and counts are set to."""


@cache
def bases() -> tuple[bytes, ...]:
    """Return the blobs that are mutated: a tiny one more often, then one of each ABI version."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.txt"
        path.write_text(_TINY, encoding="utf-8")
        tiny = compile(path).blob
    golden = sorted((ROOT / "tests" / "golden").glob("abi-*/conv_bn_relu.bin"))
    return (*[tiny] * 6, *(file.read_bytes() for file in golden))


@cache
def program(base: int) -> Program:
    """Return the program of a base."""
    return read_blob(bases()[base], target=EDGE).program


# --- mutations ----------------------------------------------------------------------------------

_Mutation = Callable[[random.Random, bytearray], None]


def _flip(rng: random.Random, raw: bytearray) -> None:
    bit = rng.randrange(8 * len(raw))
    raw[bit // 8] ^= 1 << bit % 8


def _flip_early(rng: random.Random, raw: bytearray) -> None:
    """Flip a bit before the tables, where most kinds of records are."""
    bit = rng.randrange(8 * min(len(raw), 2048))
    raw[bit // 8] ^= 1 << bit % 8


def _truncate(rng: random.Random, raw: bytearray) -> None:
    del raw[rng.randrange(1, len(raw)) :]


def _extend(rng: random.Random, raw: bytearray) -> None:
    size = rng.choice([1, 64, 4096, rng.randrange(1, 5000)])
    raw += rng.choice([b"\0", b"\xff", b"\x5a"]) * size


def _splice(rng: random.Random, raw: bytearray) -> None:
    """Put a piece of this or another blob somewhere else, over what is there or between."""
    other = bases()[rng.randrange(len(bases()))]
    size = rng.choice([1, 4, 32, 64, 128, 4096])
    start, at = rng.randrange(len(other)), rng.randrange(len(raw))
    if rng.random() < 0.5:
        start, at = start // 64 * 64, at // 64 * 64
    raw[at : at + rng.choice([size, size, 0])] = other[start : start + size]


def _length(rng: random.Random, raw: bytearray) -> None:
    """Set a length, count, offset or size of the container to an odd value."""
    at, size = rng.choice(_LENGTHS)
    value = rng.choice((*_ODD, *_POWERS, len(raw), len(raw) - 1, len(raw) + 1))
    if at + size <= len(raw):
        raw[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _word(rng: random.Random, raw: bytearray) -> None:
    """Set an aligned word of the tables or what follows to an odd value."""
    at = rng.randrange(0, len(raw), 4)
    raw[at : at + 4] = (rng.choice((*_ODD, *_POWERS)) & 0xFFFF_FFFF).to_bytes(4, "little")


def _lengths() -> list[tuple[int, int]]:
    """Return (offset, bytes) of every field that says how much there is of something."""
    found = [
        (offset, wire.size)
        for offset, name, wire in FileHeader.rows()
        if name in ("section_count", "header_bytes", "length", "container_version")
    ]
    for index in range(len(Section)):
        start = FileHeader.SIZE + index * SectionEntry.SIZE
        found += [
            (start + offset, wire.size)
            for offset, name, wire in SectionEntry.rows()
            if name in ("alignment", "offset", "length", "span", "kind")
        ]
    return found


_LENGTHS = _lengths()
_PLACES = {name: offset for offset, name, _ in TableHeader.rows()}
_LENGTH_AT = next(offset for offset, name, _ in FileHeader.rows() if name == "length")
_COUNTS = [
    (offset, wire.size)
    for offset, name, wire in TableHeader.rows()
    if name.endswith(("_count", "_bytes")) or name in ("abi_major", "abi_minor", "features")
]


def _count(rng: random.Random, raw: bytearray) -> None:
    """Set a count or version of a table header to an odd value, in one copy or both."""
    at, size = rng.choice(_COUNTS)
    value = rng.choice((*_ODD, *_POWERS)) & ((1 << 8 * size) - 1)
    tables = [start for _, start, _ in _entries(raw, (Section.TABLE_A, Section.TABLE_B))]
    for start in tables if rng.random() < 0.7 else tables[:1]:
        if start + TableHeader.SIZE <= len(raw):
            raw[start + at : start + at + size] = value.to_bytes(size, "little")


def _record(rng: random.Random, raw: bytearray) -> None:
    """Change one to four bytes of a record of the first table: a field of a descriptor."""
    tables = _entries(raw, (Section.TABLE_A,))
    for _, start, span in tables[:1]:
        size = rng.choice((1, 1, 2, 4))
        used = raw[start : start + span].rstrip(b"\xff")
        at = start + rng.randrange(max(len(used), 1)) // size * size
        held = int.from_bytes(raw[at : at + size], "little")
        value = rng.choice((*_ODD, *_POWERS, held ^ 1 << rng.randrange(8 * size), held + 1))
        if at + size <= len(raw):
            raw[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


_MUTATIONS: tuple[_Mutation, ...] = (
    _record,
    _record,
    _record,
    _flip,
    _flip_early,
    _truncate,
    _extend,
    _splice,
    _length,
    _word,
    _count,
)


def mutated(number: int) -> tuple[int, bytes, bool]:
    """Return (index of the base, blob, whether its CRCs were made anew) of trial *number*."""
    rng = random.Random(number)
    base = rng.randrange(len(bases()))
    raw = bytearray(bases()[base])
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(_MUTATIONS)(rng, raw)
        raw = raw or bytearray(1)
    anew = rng.random() < 0.5
    if not anew:
        return base, bytes(raw), False
    if rng.random() < 0.7:
        raw[_LENGTH_AT : _LENGTH_AT + 8] = len(raw).to_bytes(8, "little")
    return base, resealed(raw, both=rng.random() < 0.8), True


# --- CRCs made anew -----------------------------------------------------------------------------


def _entries(raw: bytearray, kinds: Sequence[Section]) -> list[tuple[int, int, int]]:
    """Return (place of the entry, offset, span) of the sections *kinds*, cut at the end."""
    found = []
    for index in range(len(Section)):
        place = FileHeader.SIZE + index * SectionEntry.SIZE
        entry = raw[place : place + SectionEntry.SIZE]
        offset, span = (int.from_bytes(entry[a : a + 8], "little") for a in (8, 24))
        if len(entry) == SectionEntry.SIZE and entry[0] in kinds and offset < len(raw):
            found.append((place, offset, min(span, len(raw) - offset)))
    return found


def resealed(raw: bytearray, *, both: bool = True) -> bytes:
    """Return *raw* with every CRC that can be found made anew; *both* tables become the first."""
    tables = _entries(raw, (Section.TABLE_A, Section.TABLE_B))
    for _, start, span in tables:
        _seal_table(raw, start, span)
    if both and len(tables) == 2:
        (_, first, span), (_, second, other) = tables
        raw[second : second + min(span, other)] = raw[first : first + min(span, other)]
    _seal_chunks(raw)
    for place, start, span in _entries(raw, tuple(Section)):
        crc = zlib.crc32(raw[start : start + span])
        raw[place + 32 : place + 36] = crc.to_bytes(4, "little")
        raw[place : place + SectionEntry.SIZE] = seal(bytes(raw[place : place + SectionEntry.SIZE]))
    if len(raw) >= FileHeader.SIZE:
        raw[: FileHeader.SIZE] = seal(bytes(raw[: FileHeader.SIZE]))
    return bytes(raw)


def _seal_table(raw: bytearray, start: int, span: int) -> None:
    head, size = start + TableHeader.SIZE, TensorDescriptor.SIZE
    places = [start + _PLACES[name] for name in ("tensor_count", "toa_count")]
    counts = [int.from_bytes(raw[at : at + 4], "little") for at in places]
    end = head + min(sum(counts), max(span - TableHeader.SIZE, 0) // size) * size
    for at in range(head, end, size):
        raw[at : at + size] = seal(bytes(raw[at : at + size]))
    if head <= len(raw):
        at = start + _PLACES["table_crc"]
        version = raw[start + _PLACES["abi_major"]], raw[start + _PLACES["abi_minor"]]
        crc = table_crc(bytes(raw[head:end]), version)
        raw[at : at + 4] = crc.to_bytes(4, "little")
        raw[start:head] = seal(bytes(raw[start:head]))


def _seal_chunks(raw: bytearray) -> None:
    constants, crcs = _entries(raw, (Section.CONSTANTS,)), _entries(raw, (Section.CHUNK_CRCS,))
    if len(constants) == len(crcs) == 1:
        (place, start, span), (_, at, room) = constants[0], crcs[0]
        length = min(int.from_bytes(raw[place + 16 : place + 24], "little"), span)
        made = chunk_crcs(bytes(raw[start : start + length])).tobytes()[:room]
        raw[at : at + len(made)] = made


# --- trials -------------------------------------------------------------------------------------


def trial(number: int) -> Verdict:
    """Return what became of blob *number*."""
    base, raw, anew = mutated(number)
    if raw == bases()[base]:
        return "unchanged", ""
    return judged(lambda: _verdict(base, raw, anew=anew))


def _verdict(base: int, raw: bytes, *, anew: bool) -> Verdict:
    if not anew:
        loaded = read_blob(raw, target=EDGE)
        if all(loaded.program != program(i) for i in range(len(bases()))):
            # The table CRC of ABI 0.1 does not see one intact record in another one's place.
            blind = loaded.version == (0, 1)
            return "accepted", "" if blind else "accepted with another program"
        return "healed", "" if loaded.events else "accepted without a word"
    image = boot(raw, EDGE)
    if image.program.header.arena_bytes > _RUN_BYTES:
        return "booted", ""
    Engine(image).run(generated_inputs(image))
    return "ran", ""


FUZZ_BLOB = Campaign(
    name="fuzz-blob",
    title="blobs with flipped bits, cuts, splices and odd lengths, half of them with new CRCs",
    short=10_000,
    long=1_000_000,
    run=lambda ids, progress: counted(ids, progress, "blobs", trial),
    group="fuzz",
)
