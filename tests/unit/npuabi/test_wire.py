"""Records on the wire: round trips, refusals, and what a CRC-32 does and does not catch."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable
from enum import IntFlag
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.enums import Direction, DType, ToaFlag
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import (
    RECORDS,
    FileHeader,
    Interface,
    KnownAnswer,
    TensorDescriptor,
    Toa,
)
from npuabi.wire import Record, seal, sealed

BULK = 10_000
SINGLE = 1_200
SEALED = [kind for kind in RECORDS if "crc" in kind.FIELDS]
ALLOWED = (None, ErrorCode.SHORT_RECORD, ErrorCode.RECORD_CRC, ErrorCode.BAD_FIELD)
UNDETECTED = ((26, 3), (44, 4), (49, 2), (52, 6), (63, 7))


def random_records(kind: type[Record], count: int, seed: int) -> bytes:
    """Random bytes with legal enums, flags, reserved bytes and floats, CRCs in place."""
    generator = np.random.default_rng(seed)
    octets = generator.integers(0, 256, (count, kind.SIZE), dtype=np.uint8)
    for offset, _, wire in kind.rows():
        place = octets[:, offset : offset + wire.size]
        if wire.role == "reserved":
            place[:] = 0
        elif wire.ctype == "float":
            place[:] = generator.normal(size=(count, 1)).astype("<f4").view(np.uint8)
        elif wire.enum is not None and issubclass(wire.enum, IntFlag):
            flags = generator.integers(0, sum(wire.enum) + 1, (count, 1), dtype=np.uint16)
            place[:] = flags.view(np.uint8)
        elif wire.enum is not None:
            place[:] = generator.choice([int(m) for m in wire.enum], (count, 1))
    rows = [row.tobytes() for row in octets]
    return b"".join(map(seal, rows) if "crc" in kind.FIELDS else rows)


def rows_of(kind: type[Record], raw: bytes) -> list[bytes]:
    return [raw[i : i + kind.SIZE] for i in range(0, len(raw), kind.SIZE)]


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_building_what_was_parsed_gives_the_same_bytes_for_ten_thousand_records(
    kind: type[Record],
) -> None:
    raw = random_records(kind, BULK, 15)
    assert kind.encode_many(kind.decode_many(raw)) == raw


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_one_at_a_time_and_many_at_once_agree(kind: type[Record]) -> None:
    raw = random_records(kind, SINGLE, 16)
    one = [kind.decode(row) for row in rows_of(kind, raw)]
    assert one == kind.decode_many(raw)
    assert b"".join(record.encode() for record in one) == raw


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_fields_lie_without_gaps_and_end_at_the_stated_size(kind: type[Record]) -> None:
    end = 0
    for offset, name, wire in kind.rows():
        assert offset == end, name
        end = offset + wire.size
    assert end == kind.SIZE == kind.DTYPE.itemsize


@pytest.mark.parametrize("fill", [0x00, 0xFF])
@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_blank_and_erased_records_never_verify(kind: type[Record], fill: int) -> None:
    blank = bytes([fill]) * kind.SIZE
    if kind.__name__ in ("OpParams", "FloatParams", "KnownAnswer", "SourceEntry", "StateEntry"):
        # They carry no magic, enum or CRC: their section's CRC and rules guard them.
        assert "crc" not in kind.FIELDS
        return
    with pytest.raises(AbiError):
        kind.decode(blank)


def test_an_all_zero_descriptor_is_refused_even_with_a_right_crc() -> None:
    for kind in (TensorDescriptor, Toa):
        with pytest.raises(AbiError) as refusal:
            kind.decode(seal(bytes(kind.SIZE)))
        assert refusal.value.code is ErrorCode.BAD_FIELD


@pytest.mark.parametrize("kind", SEALED, ids=lambda kind: kind.__name__)
def test_every_flip_of_one_or_two_bits_is_caught(kind: type[Record]) -> None:
    # A CRC is linear: a pattern of flips passes exactly when its own syndrome is zero.
    size = kind.SIZE
    zero = zlib.crc32(bytes(size - 4))
    syndromes = []
    for bit in range(8 * (size - 4)):
        flipped = bytearray(size - 4)
        flipped[bit // 8] = 1 << bit % 8
        syndromes.append(zlib.crc32(flipped) ^ zero)
    syndromes += [1 << bit for bit in range(32)]
    assert 0 not in syndromes
    assert len(set(syndromes)) == 8 * size


def test_every_triple_of_flips_is_caught() -> None:
    zero = zlib.crc32(bytes(60))
    singles = [zlib.crc32((1 << bit).to_bytes(60, "little")) ^ zero for bit in range(480)] + [
        1 << bit for bit in range(32)
    ]
    table = np.array(singles, np.uint32)
    first, second = np.triu_indices(512, 1)
    pairs = np.unique(table[first] ^ table[second])
    assert pairs.size == 130_816  # no two pairs meet: no four flips pass either
    assert not np.isin(table, pairs).any()


def test_the_known_five_bit_pattern_passes_and_is_our_documented_limit() -> None:
    for row in rows_of(Toa, random_records(Toa, 50, 5)):
        flipped = bytearray(row)
        for byte, bit in UNDETECTED:
            flipped[byte] ^= 1 << bit
        assert sealed(bytes(flipped))
        assert all(not sealed(part) for part in partial_flips(row))


def partial_flips(row: bytes) -> list[bytes]:
    """Return *row* with each four of the five undetected flips."""
    found = []
    for chosen in itertools.combinations(UNDETECTED, 4):
        flipped = bytearray(row)
        for byte, bit in chosen:
            flipped[byte] ^= 1 << bit
        found.append(bytes(flipped))
    return found


def test_unknown_flags_and_reserved_bytes_are_refused_both_ways() -> None:
    raw = bytearray(random_records(Toa, 1, 1))
    raw[4:6] = (sum(ToaFlag) + 1).to_bytes(2, "little")
    assert_refused(Toa, seal(bytes(raw)), ErrorCode.BAD_FIELD)
    entry = bytearray(random_records(Interface, 1, 1))
    entry[3] = 1
    assert_refused(Interface, bytes(entry), ErrorCode.BAD_FIELD)


def test_a_float_that_is_no_number_is_refused() -> None:
    raw = bytearray(random_records(KnownAnswer, 1, 1))
    raw[8:12] = struct.pack("<f", float("nan"))
    assert_refused(KnownAnswer, bytes(raw), ErrorCode.BAD_FIELD)


def assert_refused(kind: type[Record], raw: bytes, code: ErrorCode) -> None:
    for decode in (kind.decode, kind.decode_many):
        with pytest.raises(AbiError) as refusal:
            decode(raw)
        assert refusal.value.code is code


@pytest.mark.parametrize("length", [0, 1, 63, 65, 128])
def test_a_record_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(AbiError) as refusal:
        FileHeader.decode(bytes(length))
    assert refusal.value.code is ErrorCode.SHORT_RECORD


@pytest.mark.parametrize(("name", "value"), [("tensor", 1 << 32), ("rank", -1), ("rank", "x")])
def test_a_value_that_does_not_fit_is_refused_when_encoding(name: str, value: Any) -> None:
    fields: dict[str, Any] = {
        "direction": Direction.INPUT,
        "rank": 1,
        "dtype": DType.I8,
        "tensor": 0,
        "symbol": 0,
        "shape": (1, 1, 1, 1),
    }
    made = Interface(**{**fields, name: value})
    for encode in (made.encode, lambda: Interface.encode_many([made])):
        with pytest.raises(AbiError) as refusal:
            encode()
        assert refusal.value.code is ErrorCode.BAD_FIELD


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(RECORDS))
def test_any_bytes_give_a_record_or_a_refusal(raw: bytes, kind: type[Record]) -> None:
    for decode in (kind.decode, kind.decode_many):
        assert outcome(decode, raw) in ALLOWED


def outcome(decode: Callable[[bytes], object], raw: bytes) -> ErrorCode | None:
    try:
        decode(raw)
    except AbiError as error:
        return error.code
    return None
