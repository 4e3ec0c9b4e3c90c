"""Blobs: written once, read back the same, and any damage healed or refused with a code."""

from __future__ import annotations

import time
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.container import Loaded, Program, read_blob, symbol_at, write_blob
from npuabi.enums import Section, ToaFlag
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import FileHeader, SectionEntry, TableHeader
from npuabi.sections import SECTION_ALIGNMENT, split_sections
from npuabi.target import load_target
from npuabi.wire import seal

Build = Callable[[int, int, int], Program]
EDGE = load_target("edge")
TABLES = (Section.TABLE_A, Section.TABLE_B)


def read(raw: bytes) -> Loaded:
    return read_blob(raw, target=EDGE)


def refusal(raw: bytes) -> ErrorCode:
    with pytest.raises(AbiError) as caught:
        read(raw)
    return caught.value.code


def flipped(raw: bytes, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


HEAD_BYTES = 64 + 64 * len(SECTION_ALIGNMENT)


def place(raw: bytes, kind: Section) -> range:
    """Return the byte positions of a section's span."""
    row = 64 * (1 + list(SECTION_ALIGNMENT).index(kind))
    entry = SectionEntry.decode(raw[row : row + 64])
    return range(entry.offset, entry.offset + entry.span)


def resealed(raw: bytes) -> bytes:
    """Return *raw* with the section table's CRCs made right again."""
    head = b""
    for index in range(len(SECTION_ALIGNMENT)):
        start = 64 * (index + 1)
        entry = SectionEntry.decode(seal(raw[start : start + 64]))
        body = raw[entry.offset : entry.offset + entry.span]
        head += replace(entry, payload_crc=zlib.crc32(body)).encode()
    return raw[:64] + head + raw[64 + len(head) :]


def same(left: Program, right: Program) -> bool:
    """Whether two programs are equal but for the table CRC that writing fills in."""
    crc = right.header.table_crc
    return replace(left, header=replace(left.header, table_crc=crc)) == right


@pytest.mark.parametrize(
    "size", [(1, 1, 0), (3, 2, 1), (7, 5, 4096), (64, 9, 10_000), (1, 0, 4097)]
)
def test_reading_what_was_written_gives_the_program_back(
    build: Build, size: tuple[int, int, int]
) -> None:
    program = build(*size)
    raw = write_blob(program)
    loaded = read(raw)
    assert same(program, loaded.program)
    assert loaded.events == ()
    assert write_blob(loaded.program) == raw == write_blob(program)


def test_sections_tile_the_file_and_tables_fill_sectors(build: Build) -> None:
    raw = write_blob(build(70, 5, 5000))
    assert len(raw) % 4096 == 0
    parts = split_sections(raw)
    assert list(parts) == list(SECTION_ALIGNMENT)
    assert b"".join(part.span for part in parts.values()) == raw[HEAD_BYTES:]
    for kind in TABLES:
        assert place(raw, kind).start % 4096 == 0
        assert len(place(raw, kind)) % 4096 == 0
    assert parts[Section.TABLE_A].span == parts[Section.TABLE_B].span


def test_fifteen_thousand_records_are_written_and_read_in_a_second_each(build: Build) -> None:
    program = build(10_000, 5_000, 100_000)
    start = time.process_time()
    raw = write_blob(program)
    middle = time.process_time()
    read(raw)
    assert middle - start < 1.0
    assert time.process_time() - middle < 1.0


def test_names_come_back_from_their_offsets(build: Build) -> None:
    program = read(write_blob(build(2, 1, 0))).program
    names = [symbol_at(program.symbols, tensor.symbol) for tensor in program.tensors]
    assert names == ["image", "größe"]


# --- damage ----------------------------------------------------------------------------------


def test_a_blob_cut_at_any_length_is_refused(build: Build) -> None:
    raw = write_blob(build(2, 1, 100))
    for length in range(len(raw)):
        expected = ErrorCode.BAD_MAGIC if length < 8 else ErrorCode.BAD_LENGTH
        assert refusal(raw[:length]) is expected, length
    assert refusal(raw + b"\xff") is ErrorCode.BAD_LENGTH


def test_every_byte_outside_the_tables_is_guarded(build: Build) -> None:
    raw = write_blob(build(2, 1, 100))
    parts = split_sections(raw)
    guarded = [*range(HEAD_BYTES)]
    for kind in set(parts) - set(TABLES):
        start, length = place(raw, kind).start, parts[kind].length
        guarded += [*range(start, start + length), *place(raw, kind)[length::13]]
    for at in guarded:
        refusal(flipped(raw, 8 * at + at % 8))


def test_random_flips_anywhere_are_healed_or_refused(build: Build) -> None:
    program = build(5, 4, 5000)
    raw = write_blob(program)
    generator = np.random.default_rng(2024)
    healed = 0
    for count in generator.integers(1, 6, 1500):
        changed = raw
        for bit in generator.integers(0, 8 * len(raw), count):
            changed = flipped(changed, int(bit))
        loaded = attempt(changed)
        if loaded is not None:
            healed += 1
            assert same(program, loaded.program)
            assert loaded.events
    assert healed > 100


def attempt(raw: bytes) -> Loaded | None:
    try:
        return read(raw)
    except AbiError:
        return None


def test_a_flip_in_a_table_names_copy_record_and_tensor(build: Build) -> None:
    raw = write_blob(build(3, 2, 0))
    start = place(raw, Section.TABLE_B).start
    cases = {
        start + 5: (ErrorCode.RECORD_CRC, "TABLE_B: header is bad, taken from the twin"),
        start + 128 + 64: (ErrorCode.RECORD_CRC, "record 1 (tensor 1, größe) is bad"),
        start + 128 + 64 * 4 + 9: (ErrorCode.RECORD_CRC, "record 4 (TOA 1, conv of conv1) is bad"),
        start + 4095: (ErrorCode.BAD_PADDING, "TABLE_B: padding is bad"),
    }
    for at, (code, text) in cases.items():
        (event,) = read(flipped(raw, 8 * at)).events
        assert event.code is code
        assert text in event.text


def test_events_stay_few_when_a_whole_copy_is_erased(build: Build) -> None:
    program = build(200, 100, 0)
    raw = write_blob(program)
    span = place(raw, Section.TABLE_A)
    erased = raw[: span.start] + b"\xff" * len(span) + raw[span.stop :]
    loaded = read(erased)
    assert same(program, loaded.program)
    assert len(loaded.events) == 33
    assert loaded.events[-1].text == "and 269 more places healed"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=4000), st.booleans())
def test_any_bytes_give_a_program_or_a_code(raw: bytes, blob_like: bool) -> None:
    assert attempt(b"NPUBLOB\n" + raw if blob_like else raw) is None


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_hostile_contents_with_right_crcs_give_a_program_or_a_code(
    build: Build, data: st.DataObject
) -> None:
    raw = bytearray(write_blob(build(3, 2, 20)))
    at = data.draw(st.integers(HEAD_BYTES, len(raw) - 5))
    raw[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    attempt(resealed(bytes(raw)))


def peak_bytes(raw: bytes) -> int:
    tracemalloc.start()
    try:
        attempt(raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_stays_within_a_small_multiple_of_the_input(build: Build) -> None:
    legal = write_blob(build(2000, 1000, 4_000_000))
    assert peak_bytes(legal) < 6 * len(legal)
    for count in ("tensor_count", "toa_count"):
        raw = bytearray(legal)
        for kind in TABLES:
            start = place(legal, kind).start
            change: dict[str, Any] = {count: (1 << 32) - 1}
            header = replace(TableHeader.decode(legal[start : start + 128]), **change)
            raw[start : start + 128] = header.encode()
        assert peak_bytes(resealed(bytes(raw))) < 3 * len(legal)
    assert peak_bytes(b"NPUBLOB\n" + bytes(8_000_000)) < 100_000


def test_a_section_table_with_any_number_changed_is_refused(build: Build) -> None:
    raw = write_blob(build(2, 1, 100))
    for row in range(1, 10):
        entry = SectionEntry.decode(raw[64 * row : 64 * row + 64])
        for name in ("offset", "length", "span", "alignment"):
            for value in (0, 1, getattr(entry, name) + 64, 1 << 31, (1 << 32) - 1):
                if value == getattr(entry, name):
                    continue
                change: dict[str, Any] = {name: value}
                bad = replace(entry, **change).encode()
                refusal(raw[: 64 * row] + bad + raw[64 * row + 64 :])


def test_another_container_version_is_refused_by_name(build: Build) -> None:
    raw = write_blob(build(1, 1, 0))
    header = FileHeader.decode(raw[:64])
    cases: tuple[tuple[dict[str, Any], ErrorCode], ...] = (
        ({"container_version": 2}, ErrorCode.BAD_CONTAINER_VERSION),
        ({"section_count": 8}, ErrorCode.BAD_SECTION_TABLE),
        ({"length": 1 << 60}, ErrorCode.BAD_LENGTH),
    )
    for change, code in cases:
        bad = replace(header, **change).encode()
        assert refusal(bad + raw[64:]) is code


def test_non_ff_padding_is_refused_even_under_a_right_crc(build: Build) -> None:
    raw = bytearray(write_blob(build(1, 1, 5)))
    raw[-1] = 0
    assert refusal(resealed(bytes(raw))) is ErrorCode.BAD_PADDING


def test_a_bad_chunk_of_constants_is_named_even_under_a_right_section_crc(build: Build) -> None:
    raw = write_blob(build(1, 1, 10_000))
    bad = resealed(flipped(raw, 8 * (place(raw, Section.CONSTANTS).start + 5000)))
    with pytest.raises(AbiError, match="constants at 4096: 1 chunks of 3 are bad") as caught:
        read(bad)
    assert caught.value.code is ErrorCode.CHUNK_CRC


def test_the_policy_comes_before_the_contents_are_looked_at(build: Build) -> None:
    raw = write_blob(build(1, 1, 100))
    changed = bytearray(raw)
    for kind in TABLES:
        start = place(raw, kind).start
        header = TableHeader.decode(raw[start : start + 128])
        changed[start : start + 128] = replace(header, abi_major=7).encode()
    changed[-5000] ^= 1
    assert refusal(bytes(changed)) is ErrorCode.ABI_MAJOR


# --- rules inside a program --------------------------------------------------------------------


def with_toa(program: Program, **changes: Any) -> Program:
    return replace(program, toas=(*program.toas[:-1], replace(program.toas[-1], **changes)))


def with_entry(program: Program, **changes: Any) -> Program:
    return replace(program, interface=(replace(program.interface[0], **changes),))


def with_tensor(program: Program, **changes: Any) -> Program:
    return replace(program, tensors=(replace(program.tensors[0], **changes), *program.tensors[1:]))


BROKEN: tuple[tuple[ErrorCode, Callable[[Program], Program]], ...] = (
    (ErrorCode.BAD_COUNT, lambda p: replace(p, tensors=p.tensors[:-1])),
    (ErrorCode.BAD_COUNT, lambda p: replace(p, constants=b"x")),
    (ErrorCode.BAD_COUNT, lambda p: with_entry(p, rank=5)),
    (ErrorCode.BAD_COUNT, lambda p: with_entry(p, rank=2, shape=(2, 2, 2, 1))),
    (ErrorCode.BAD_COUNT, lambda p: with_entry(p, shape=(0, 1, 1, 1))),
    (ErrorCode.BAD_INDEX, lambda p: with_toa(p, op=1)),
    (ErrorCode.BAD_INDEX, lambda p: with_toa(p, tensors=(0, 3, 0, 0, 0))),
    (ErrorCode.BAD_INDEX, lambda p: with_entry(p, tensor=3)),
    (ErrorCode.BAD_RING, lambda p: replace(p, ring=(0, 0))),
    (ErrorCode.BAD_RING, lambda p: replace(p, ring=(0,))),
    (ErrorCode.BAD_RING, lambda p: replace(p, ring=(0, 2))),
    (ErrorCode.BAD_SYMBOL, lambda p: replace(p, symbols=b"")),
    (ErrorCode.BAD_SYMBOL, lambda p: replace(p, symbols=p.symbols[:-1])),
    (ErrorCode.BAD_SYMBOL, lambda p: replace(p, symbols=p.symbols[1:])),
    (ErrorCode.BAD_SYMBOL, lambda p: replace(p, symbols=p.symbols + b"\xff\0")),
    (ErrorCode.BAD_SYMBOL, lambda p: replace(p, symbols=p.symbols + b"\x1b[2J\0")),
    (ErrorCode.BAD_SYMBOL, lambda p: with_tensor(p, symbol=2)),
    (ErrorCode.BAD_SYMBOL, lambda p: with_tensor(p, symbol=1 << 31)),
    (ErrorCode.BAD_SYMBOL, lambda p: with_entry(p, symbol=len(p.symbols))),
    (ErrorCode.BAD_WAIT, lambda p: with_toa(p, waits=(0, 0, 2, 0))),
    (ErrorCode.BAD_WAIT, lambda p: with_toa(p, flags=ToaFlag.WAIT_DMA_IN, waits=(1, 0, 0, 0))),
    (ErrorCode.BAD_WAIT, lambda p: replace(p, ring=(1, 0))),
)


@pytest.mark.parametrize(("code", "damage"), BROKEN)
def test_a_program_that_contradicts_itself_is_not_written(
    build: Build, code: ErrorCode, damage: Callable[[Program], Program]
) -> None:
    with pytest.raises(AbiError) as caught:
        write_blob(damage(build(3, 2, 0)))
    assert caught.value.code is code


@pytest.mark.parametrize(("code", "damage"), BROKEN)
def test_a_program_that_contradicts_itself_is_not_read_either(
    build: Build,
    code: ErrorCode,
    damage: Callable[[Program], Program],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("npuabi.container.check_program", lambda program: None)
        raw = write_blob(damage(build(3, 2, 0)))
    assert refusal(raw) in (code, ErrorCode.BAD_RING, ErrorCode.BAD_COUNT)
