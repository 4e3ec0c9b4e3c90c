"""What checks can and cannot see: CRC-32 by its syndromes, its known limit, SECDED beside it.

A CRC is linear, so an error pattern passes exactly when the syndromes of its bits cancel out,
whatever the content.
"""

from __future__ import annotations

import os
import tracemalloc
import zlib
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import Layout
from npuabi.errors import AbiError
from npuabi.wire import seal, sealed
from npufw.boot import boot
from npufw.defences.check_memory import CheckMap
from npufw.defences.secded import CODE_BITS, Reading, read_with
from npufw.engine import Engine
from npufw.gates.subject import load_subject

RECORD = 64
PASSES_CRC32 = ((26, 3), (44, 4), (49, 2), (52, 6), (63, 7))
"""(byte, bit) of a pattern of five flips that no CRC-32 of a 64-byte record sees."""

_CASTAGNOLI = 0x82F63B78


def syndromes() -> NDArray[np.uint32]:
    """Return the syndrome of each bit of a sealed record, bit 0 of byte 0 first."""
    body = RECORD - 4
    zero = zlib.crc32(bytes(body))
    found = []
    for place in range(8 * body):
        octets = bytearray(body)
        octets[place // 8] = 1 << place % 8
        found.append(zlib.crc32(octets) ^ zero)
    return np.array(found + [1 << bit for bit in range(32)], np.uint32)


def test_one_to_four_flips_of_a_record_never_cancel_out() -> None:
    single = syndromes()
    assert single.all()
    first, second = np.triu_indices(len(single), 1)
    pairs = single[first] ^ single[second]
    assert len(pairs) == 130_816
    assert pairs.all()  # two flips
    assert not np.isin(pairs, single).any()  # three: 22,238,720 triples
    assert len(np.unique(pairs)) == len(pairs)  # four


def test_every_burst_of_32_bits_is_seen_and_of_longer_ones_almost_every() -> None:
    single = [int(word) for word in syndromes()]
    for first in range(len(single) - 31):
        assert _rank(single[first : first + 32]) == 32
    count = 1_000_000 if os.environ.get("NPU_LONG") else 50_000
    raw = np.random.PCG64(7)
    masks = np.asarray(raw.random_raw(count), np.uint64) | np.uint64(1 << 63 | 1)
    places = np.asarray(raw.random_raw(count) % np.uint64(8 * RECORD - 63), np.int64)
    sums = np.zeros(count, np.uint32)
    table = np.array(single, np.uint32)
    for bit in range(64):
        hit = (masks >> np.uint64(bit)) & np.uint64(1)
        sums ^= table[places + bit] * hit.astype(np.uint32)
    assert sums.all()


def _rank(rows: list[int]) -> int:
    basis: list[int] = []
    for word in rows:
        rest = word
        for held in basis:
            rest = min(rest, rest ^ held)
        if rest:
            basis.append(rest)
    return len(basis)


def test_five_flips_pass_crc_32_by_design_and_not_crc_32c() -> None:
    for content in (bytes(60), bytes(range(60)), b"\xff" * 60):
        record = bytearray(seal(content + bytes(4)))
        before = _crc32c(bytes(record))
        for octet, bit in PASSES_CRC32:
            record[octet] ^= 1 << bit
        assert sealed(bytes(record)), "undetected by design"
        assert _crc32c(bytes(record)) != before, "a CRC-32C over the record sees it"


def _crc32c(raw: bytes) -> int:
    crc = 0xFFFFFFFF
    for octet in raw:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_crc_32c_here_is_the_published_one() -> None:
    assert _crc32c(b"123456789") == 0xE3069283


def test_every_bit_of_a_tensor_and_of_its_record_changes_its_check() -> None:
    image = load_subject().image
    areas, engine = CheckMap(image), Engine(image)
    index, tensor = next(
        (i, t)
        for i, t in enumerate(image.program.tensors)
        if areas.of(i) and t.extent >= 1024 and t.layout is Layout.OIHW16I16O
    )
    own = [areas.areas[number] for number in areas.of(index)]
    octets = engine.memory.spaces[tensor.space]
    before = [area.crc(engine.memory) for area in own]
    for place in range(8 * 1024):
        octet, mask = tensor.base + place // 8, np.uint8(1 << place % 8)
        octets[octet] ^= mask
        changed = [area.crc(engine.memory) != crc for area, crc in zip(own, before, strict=True)]
        assert sum(changed) == 1, place
        octets[octet] ^= mask
    record = tensor.encode()
    for place in range(8 * len(record)):
        flipped = bytearray(record)
        flipped[place // 8] ^= 1 << place % 8
        assert not sealed(bytes(flipped))


def test_secded_mends_one_flip_notices_two_and_is_fooled_by_three() -> None:
    bits = range(CODE_BITS)
    assert {read_with([bit]) for bit in bits} == {Reading.RIGHT}
    assert {read_with(pair) for pair in combinations(bits, 2)} == {Reading.DETECTED}
    three = [read_with(triple) for triple in combinations(bits, 3)]
    assert 0.5 < three.count(Reading.WRONG) / len(three) < 0.7


@pytest.mark.parametrize("name", ["tensor_count", "toa_count", "arena_bytes", "constant_bytes"])
def test_a_count_that_flips_to_a_power_of_two_allocates_nothing(name: str) -> None:
    subject = load_subject()
    header = subject.image.program.header
    for bit in range(32):
        changes: dict[str, Any] = {name: 1 << bit}
        forged = replace(header, **changes)
        raw = subject.raw.replace(header.encode(), forged.encode())
        tracemalloc.start()
        # A larger arena is somebody's choice, up to the DDR; nothing is allocated for it here.
        allowed: AbstractContextManager[Any]
        allowed = suppress(AbiError) if name == "arena_bytes" else pytest.raises(AbiError)
        with allowed:
            boot(raw, subject.image.target)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 16 * len(raw), (name, bit)
