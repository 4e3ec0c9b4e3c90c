"""C17: no length, count or offset of a blob is believed before it is held against the file."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from npuabi.container import Program, read_blob, write_blob
from npuabi.errors import AbiError
from npuabi.records import FileHeader, SectionEntry, TableHeader
from npuabi.sections import SECTION_ALIGNMENT
from npuabi.target import load_target
from npuabi.wire import Record
from tools.campaigns.fuzz_blob import resealed

Build = Callable[[int, int, int], Program]
EDGE = load_target("edge")
WORDS = ("count", "bytes", "length", "offset", "span", "alignment")


def places(raw: bytes) -> list[tuple[str, int, int]]:
    """Return (name, offset, bytes) of every field that says how much or where, of the container."""
    starts: list[tuple[type[Record], int]] = [(FileHeader, 0)]
    starts += [(SectionEntry, FileHeader.SIZE * (1 + i)) for i in range(len(SECTION_ALIGNMENT))]
    starts += [(TableHeader, at) for at in range(0, len(raw), 4096) if raw[at:].startswith(b"NPUT")]
    return [
        (f"{kind.__name__}.{name} at {start}", start + offset, wire.size)
        for kind, start in starts
        for offset, name, wire in kind.rows()
        if wire.role == "value" and name.endswith(WORDS)
    ]


@pytest.mark.parametrize("both", [False, True])
def test_c17_every_bit_of_every_length_is_bounded_before_it_is_used(
    build: Build, both: bool
) -> None:
    raw = write_blob(build(3, 2, 5000))
    assert read_blob(resealed(bytearray(raw)), target=EDGE).events == ()
    fields = places(raw)
    assert len(fields) > 50
    refused = 0
    for name, at, size in fields:
        for bit in range(8 * size):
            changed = bytearray(raw)
            changed[at + bit // 8] ^= 1 << bit % 8
            start = time.perf_counter()
            try:
                read_blob(resealed(changed, both=both), target=EDGE)
            except AbiError:
                refused += 1
            assert time.perf_counter() - start < 5, f"{name}, bit {bit}"
    assert refused > 1000


def test_a_huge_length_asks_for_no_memory(build: Build) -> None:
    raw = write_blob(build(3, 2, 5000))
    tracemalloc.start()
    for name, at, size in places(raw):
        changed = bytearray(raw)
        changed[at + size - 1] ^= 0x40
        with suppress(AbiError):
            read_blob(resealed(changed), target=EDGE)
        assert tracemalloc.get_traced_memory()[1] < 64 * len(raw), name
    tracemalloc.stop()
