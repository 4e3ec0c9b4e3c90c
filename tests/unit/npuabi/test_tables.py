"""The redundant pair of descriptor tables: every single flip heals, every doubt is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from npuabi.container import Program
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import TableHeader, TensorDescriptor, Toa
from npuabi.tables import Copy, heal, newest_header, table_crc
from npuabi.wire import seal, sealed

Build = Callable[[int, int, int], Program]
A, B = Section.TABLE_A, Section.TABLE_B
HEAD, SECTOR = 128, 4096


def table(program: Program, *, generation: int = 1, **changes: Any) -> bytes:
    """Return one copy's span."""
    records = TensorDescriptor.encode_many(program.tensors) + Toa.encode_many(program.toas)
    header = replace(
        program.header, table_crc=table_crc(records, (0, 2)), generation=generation, **changes
    )
    raw = header.encode() + records
    return raw.ljust(-(-len(raw) // SECTOR) * SECTOR, b"\xff")


def copy(kind: Section, span: bytes, whole: bytes, program: Program) -> Copy:
    """Return a copy that holds *span* where *whole* was written."""
    length = HEAD + 64 * (len(program.tensors) + len(program.toas))
    return Copy(kind=kind, span=span, length=length, crc=zlib.crc32(whole))


def flip(span: bytes, *bits: int) -> bytes:
    changed = bytearray(span)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(first: Copy, second: Copy) -> ErrorCode:
    with pytest.raises(AbiError) as caught:
        heal(first, second)
    return caught.value.code


def test_every_single_bit_of_64_descriptors_heals_from_the_twin(build: Build) -> None:
    program = build(60, 4, 0)
    span = table(program)
    twin = copy(B, span, span, program)
    assert twin.length * 8 == 33_792
    for bit in range(8 * len(span)):
        bad = copy(A, flip(span, bit), span, program)
        taken, (damage,) = heal(bad, twin)
        assert taken == span
        assert (damage.copy, damage.part, damage.index) == (
            A,
            *expected_place(bit // 8, bad.length),
        )


def expected_place(at: int, length: int) -> tuple[str, int]:
    if at < HEAD:
        return "header", 0
    return ("record", (at - HEAD) // 64) if at < length else ("padding", 0)


def test_the_first_copy_heals_the_second_as_well(build: Build) -> None:
    program = build(3, 2, 0)
    span = table(program)
    first = copy(A, span, span, program)
    for bit in range(0, 8 * len(span), 7):
        taken, (damage,) = heal(first, copy(B, flip(span, bit), span, program))
        assert taken == span
        assert damage.copy is B


def test_equal_whole_copies_give_no_event(build: Build) -> None:
    program = build(3, 2, 0)
    span = table(program)
    assert heal(copy(A, span, span, program), copy(B, span, span, program)) == (span, [])


def test_damage_in_different_places_of_both_copies_heals(build: Build) -> None:
    program = build(6, 2, 0)
    span = table(program)
    places = [0, *(8 * (HEAD + 64 * i) for i in range(8)), 8 * (len(span) - 1)]
    for one in places:
        for two in places:
            bad = [copy(k, flip(span, bit), span, program) for k, bit in ((A, one), (B, two))]
            if one == two and one < places[-1]:
                assert refused(*bad) is ErrorCode.BOTH_COPIES_BAD
                continue
            taken, damages = heal(*bad)
            assert taken == span
            assert [d.copy for d in damages] == [A, B]


def test_the_five_bit_pattern_passes_its_record_crc_but_not_the_tables(build: Build) -> None:
    # It is a multiple of the polynomial, so record and section CRC miss it; one of its bits lies in
    # the record's CRC, which the table CRC leaves out.
    program = build(3, 2, 0)
    span = table(program)
    at = 8 * (HEAD + 64)
    pattern = [at + 8 * b + i for b, i in ((26, 3), (44, 4), (49, 2), (52, 6), (63, 7))]
    bad = copy(A, flip(span, *pattern), span, program)
    assert sealed(bad.record(1))
    assert zlib.crc32(bad.span) == bad.crc
    assert not bad.whole
    taken, (damage,) = heal(bad, copy(B, span, span, program))
    assert taken == span
    assert damage.index == 1


def test_the_newer_of_two_whole_generations_is_taken(build: Build) -> None:
    program = build(3, 2, 0)
    for old, new in ((1, 2), ((1 << 32) - 1, 0), (5, 1 << 31)):
        spans = table(program, generation=old), table(program, generation=new)
        older, newer = (copy(k, s, s, program) for k, s in zip((A, B), spans, strict=True))
        for pair in ((older, newer), (newer, older)):
            taken, (damage,) = heal(*pair)
            assert taken == newer.span
            assert damage.part == "older copy"
            assert newest_header(pair) is newer


def test_a_broken_newer_generation_falls_back_to_the_whole_older_one(build: Build) -> None:
    program = build(3, 2, 0)
    old, new = table(program, generation=1), table(program, generation=2)
    taken, _ = heal(copy(A, old, old, program), copy(B, flip(new, 8 * 300), new, program))
    assert taken == old


def test_generations_are_never_mixed(build: Build) -> None:
    program = build(3, 2, 0)
    old, new = table(program, generation=1), table(program, generation=2)
    padding = 8 * (len(old) - 1)
    for bits, expected in (((8 * 300, padding), new), ((padding, 8 * 300), old)):
        first = copy(A, flip(old, bits[0]), old, program)
        second = copy(B, flip(new, bits[1]), new, program)
        assert heal(first, second)[0] == expected
    both = [copy(k, flip(s, 8 * 300), s, program) for k, s in ((A, old), (B, new))]
    assert refused(*both) is ErrorCode.BOTH_COPIES_BAD


def test_two_intact_but_different_copies_of_one_generation_are_refused(build: Build) -> None:
    program = build(3, 2, 0)
    spans = table(program), table(program, arena_bytes=7)
    pair = [copy(k, s, s, program) for k, s in zip((A, B), spans, strict=True)]
    assert refused(*pair) is ErrorCode.COPIES_DISAGREE


def test_a_record_intact_in_both_copies_but_different_is_refused(build: Build) -> None:
    program = build(3, 2, 0)
    span = table(program)
    record = seal(bytes([9]) + span[HEAD + 1 : HEAD + 64])
    other = span[:HEAD] + record + span[HEAD + 64 :]
    pair = copy(A, flip(other, 8 * 300), span, program), copy(B, flip(span, 8 * 200), span, program)
    assert refused(*pair) is ErrorCode.COPIES_DISAGREE


def test_a_table_never_marked_complete_is_refused(build: Build) -> None:
    program = build(3, 2, 0)
    span = table(program, valid=0xFFFFFFFF)
    pair = copy(A, span, span, program), copy(B, span, span, program)
    assert refused(*pair) is ErrorCode.NOT_VALID


@pytest.mark.parametrize("fill", [0, 0xFF])
def test_blank_and_erased_tables_are_refused(build: Build, fill: int) -> None:
    program = build(3, 2, 0)
    span = bytes([fill]) * SECTOR
    pair = copy(A, span, span, program), copy(B, span, span, program)
    assert refused(*pair) is ErrorCode.BOTH_COPIES_BAD


def test_counts_that_do_not_fit_the_section_are_refused(build: Build) -> None:
    program = build(3, 2, 0)
    span = table(program, tensor_count=4)
    pair = copy(A, span, span, program), copy(B, span, span, program)
    assert refused(*pair) is ErrorCode.BAD_COUNT


def test_a_wrong_table_crc_is_refused(build: Build) -> None:
    program = build(3, 2, 0)
    span = table(program)
    header = TableHeader.decode(span[:HEAD])
    span = replace(header, table_crc=header.table_crc ^ 1).encode() + span[HEAD:]
    pair = copy(A, span, span, program), copy(B, span, span, program)
    assert refused(*pair) is ErrorCode.TABLE_CRC


@pytest.mark.parametrize("version", [(0, 1), (0, 2)])
def test_a_record_in_the_place_of_another_is_refused_since_0_2(
    build: Build, version: tuple[int, int]
) -> None:
    program = build(3, 2, 0)
    made = table(program)
    records = made[HEAD : HEAD + 64 * 5]
    swapped = records[64:128] + records[:64] + records[128:]
    assert zlib.crc32(swapped) == zlib.crc32(records), "sealed records all add the same"
    minor, crc = version[1], table_crc(records, version)
    head = replace(TableHeader.decode(made[:HEAD]), abi_minor=minor, table_crc=crc).encode()
    span = head + swapped + made[HEAD + 64 * 5 :]
    pair = copy(A, span, span, program), copy(B, span, span, program)
    if version == (0, 1):
        assert heal(*pair)[0] == span
    else:
        assert refused(*pair) is ErrorCode.TABLE_CRC


def test_a_wrong_crc_in_the_section_entry_is_an_event_when_the_twin_is_whole(build: Build) -> None:
    program = build(3, 2, 0)
    span = table(program)
    taken, (damage,) = heal(copy(A, span, span, program), copy(B, span, b"other", program))
    assert taken == span
    assert (damage.copy, damage.part) == (B, "section entry")
    pair = copy(A, span, b"other", program), copy(B, span, b"other", program)
    assert refused(*pair) is ErrorCode.SECTION_CRC
