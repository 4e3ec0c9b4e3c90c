"""Device memory: invariants after every operation, misuse, guards, threads, a full pool."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from npuabi.errors import ErrorCode
from npufw.allocator import Allocator
from npufw.buddy import GUARD_BYTES, UNIT_BYTES, BuddyAllocator, block_bytes
from npufw.errors import FirmwareError
from npufw.first_fit import FirstFitAllocator
from tools.memory_traces import TRACES, Player, churn

KINDS: list[Callable[..., Allocator]] = [BuddyAllocator, FirstFitAllocator]
UNITS = [1, 3, 64, 100]
BAD_SIZES = [0, -1, -(1 << 63), 1 << 63, 1 << 64, 1 << 40]


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(FirmwareError) as caught:
        call()
    return caught.value.code


class Machine(RuleBasedStateMachine):
    """Any allocations, frees and mistakes, on pools of any size, beside a plain model."""

    kind: Callable[..., Allocator] = BuddyAllocator

    @initialize(units=st.sampled_from(UNITS))
    def start(self, units: int) -> None:
        self.memory = bytearray(units * UNIT_BYTES)
        self.it = self.kind(len(self.memory), guard=GUARD_BYTES, memory=self.memory)
        self.held: dict[int, tuple[int, str]] = {}
        self.fresh = self.it.blocks()

    @rule(size=st.one_of(st.integers(1, 1 << 18), st.integers(1, 1 << 23)), owner=st.text("ab"))
    def allocate(self, size: int, owner: str) -> None:
        largest = self.it.usage().largest
        try:
            address = self.it.allocate(size, owner)
        except FirmwareError as error:
            if error.code not in (ErrorCode.OUT_OF_MEMORY, ErrorCode.BAD_SIZE):
                raise
            assert size + GUARD_BYTES > largest
            return
        assert size + GUARD_BYTES <= largest
        self.memory[address : address + size] = b"\xa5" * size
        self.held[address] = (size, owner)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.held)))
        self.it.free(address)
        del self.held[address]

    @rule(size=st.sampled_from(BAD_SIZES), address=st.sampled_from([-1, 1 << 63, 12345]))
    def misuse(self, size: int, address: int) -> None:
        before = self.it.blocks()
        assert refused(lambda: self.it.allocate(size)) is ErrorCode.BAD_SIZE
        assert refused(lambda: self.it.free(address)) in (
            ErrorCode.BAD_ADDRESS,
            ErrorCode.DOUBLE_FREE,
        )
        assert self.it.blocks() == before

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "it"):
            return
        self.it.check()
        self.it.check_guards()
        blocks = {b.address: (b.size, b.owner) for b in self.it.blocks() if not b.free}
        assert blocks == self.held
        for address, (size, _) in self.held.items():
            assert self.memory[address] == self.memory[address + size - 1] == 0xA5

    def teardown(self) -> None:
        for address in self.held:
            self.it.free(address)
        assert not hasattr(self, "it") or self.it.blocks() == self.fresh


@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_keeps_the_invariants_and_ends_as_it_began(
    kind: Callable[..., Allocator],
) -> None:
    made = type("Made", (Machine,), {"kind": staticmethod(kind)})
    limits = settings(max_examples=20, stateful_step_count=30, deadline=None, derandomize=True)
    run_state_machine_as_test(made, settings=limits)


@pytest.mark.parametrize("units", [1, 3, 64, 100, 1024])
@pytest.mark.parametrize("trace", TRACES)
def test_a_trace_keeps_the_invariants(trace: str, units: int) -> None:
    player = Player(BuddyAllocator(units * UNIT_BYTES), trace, seed=units)
    player.play(200, check_each=1 if units <= 64 else 50)
    player.finish()


@pytest.mark.parametrize("units", [1, 2, 3, 64, 100, 1023])
def test_a_pool_begins_as_its_size_in_binary(units: int) -> None:
    pool = BuddyAllocator(units * UNIT_BYTES + 5)
    spans = [block.span // UNIT_BYTES for block in pool.blocks()]
    assert spans == [1 << bit for bit in reversed(range(units.bit_length())) if units >> bit & 1]
    pool.check()


@pytest.mark.parametrize("order", ["up", "down", "random"])
@pytest.mark.parametrize("kind", KINDS)
def test_c40_freeing_all_in_any_order_gives_the_first_blocks_back(
    kind: Callable[..., Allocator], order: str
) -> None:
    pool = kind(100 * UNIT_BYTES)
    fresh, sizes = pool.blocks(), [1, 70_000, 200_000, 4096, 1_000_000, 65_536] * 3
    held = [pool.allocate(size) for size in sizes if size < pool.largest_free() // 2]
    assert len(held) > 8
    if order == "down":
        held.reverse()
    if order == "random":
        random.Random(40).shuffle(held)
    for address in held:
        pool.free(address)
        pool.check()
    assert pool.blocks() == fresh


@pytest.mark.parametrize("kind", KINDS)
def test_misuse_is_named_and_changes_nothing(kind: Callable[..., Allocator]) -> None:
    pool = kind(16 * UNIT_BYTES, guard=GUARD_BYTES)
    address, other = pool.allocate(200_000, "conv"), pool.allocate(1, "relu")
    pool.free(other)
    before = pool.blocks()
    for size in BAD_SIZES:
        assert refused(partial(pool.allocate, size)) is ErrorCode.BAD_SIZE
    for inner in (address + 1, address + 65_536, address + 200_000):
        with pytest.raises(FirmwareError, match=r"inside the block at 0x0 of conv") as caught:
            pool.free(inner)
        assert caught.value.code is ErrorCode.BAD_ADDRESS
    for foreign in (-1, pool.pool, 1 << 63):
        assert refused(partial(pool.free, foreign)) is ErrorCode.BAD_ADDRESS
    assert refused(lambda: pool.free(other)) is ErrorCode.DOUBLE_FREE
    assert pool.blocks() == before


@pytest.mark.parametrize("kind", KINDS)
def test_numpys_whole_numbers_are_sizes_and_addresses_and_nothing_else_is(
    kind: Callable[..., Allocator],
) -> None:
    pool = kind(16 * UNIT_BYTES)
    address = pool.allocate(int(np.int64(70_000)))
    assert pool.allocate(np.int64(70_000)) > address  # type: ignore[arg-type]
    bad: list[Any] = [1.5, "5", None, (1,)]
    for value in bad:
        assert refused(partial(pool.allocate, value)) is ErrorCode.BAD_SIZE
        assert refused(partial(pool.free, value)) is ErrorCode.BAD_ADDRESS
    pool.free(np.int64(address))  # type: ignore[arg-type]


def test_an_exhausted_pool_says_who_holds_what() -> None:
    pool = BuddyAllocator(16 * UNIT_BYTES)
    for name in ("a", "b", "b"):
        pool.allocate(3 * UNIT_BYTES, name)
    with pytest.raises(FirmwareError, match=r"262144 in one piece; held: b 524288, a 262144"):
        pool.allocate(4 * UNIT_BYTES)


@pytest.mark.parametrize("forever", [False, True])
def test_the_nth_allocation_can_be_made_to_fail(forever: bool) -> None:
    pool = BuddyAllocator(64 * UNIT_BYTES)
    pool.fail_at(2, forever=forever)
    first, before = pool.allocate(5), pool.usage()
    assert refused(lambda: pool.allocate(5)) is ErrorCode.OUT_OF_MEMORY
    assert pool.usage() == before
    if forever:
        assert refused(lambda: pool.allocate(5)) is ErrorCode.OUT_OF_MEMORY
    pool.fail_at(0)
    pool.free(pool.allocate(5))
    pool.free(first)
    assert pool.usage().used == 0


@pytest.mark.parametrize(
    ("offset", "beyond"), [(1000, 0), (1000 + GUARD_BYTES - 1, GUARD_BYTES - 1), (131_071, 130_071)]
)
def test_a_write_into_a_guard_is_found_when_asked_and_when_freed(offset: int, beyond: int) -> None:
    memory = bytearray(8 * UNIT_BYTES)
    pool = BuddyAllocator(len(memory), memory=memory)
    address = pool.allocate(1000, "camera")
    memory[address : address + 1000] = b"x" * 1000
    pool.check_guards()
    memory[address + offset] ^= 1
    for look in (pool.check_guards, lambda: pool.free(address)):
        with pytest.raises(FirmwareError, match=f"{beyond} bytes behind the 1000 bytes of camera"):
            look()
    assert pool.usage().blocks == 1
    pool.discard(address)
    assert pool.usage().blocks == 0


def test_the_block_of_a_size_holds_its_guard() -> None:
    assert block_bytes(1) == block_bytes(65_536) == 131_072
    assert block_bytes(65_537) == 262_144
    pool = BuddyAllocator(64 * UNIT_BYTES)
    for size in (1, 65_536, 65_537, 1 << 20):
        pool.allocate(size)
        assert max(pool.blocks(), key=lambda b: b.size).span == block_bytes(size)
    assert 1 - pool.usage().asked / pool.usage().used == pool.usage().waste


def test_the_map_shows_owners_in_their_places() -> None:
    pool = BuddyAllocator(16 * UNIT_BYTES)
    pool.allocate(3 * UNIT_BYTES, "a")
    pool.allocate(3 * UNIT_BYTES, "b")
    assert pool.drawn(16) == "####++++........"
    assert len(pool.drawn(5)) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_eight_threads_never_share_a_byte(kind: Callable[..., Allocator]) -> None:
    churn(kind(256 * UNIT_BYTES, guard=0, memory=None), threads=8, operations=400)


def test_a_heap_of_dropped_blocks_does_not_grow() -> None:
    pool = BuddyAllocator(1024 * UNIT_BYTES)
    pins = [pool.allocate(1) for _ in range(8)]
    for pin in pins[::2]:
        pool.free(pin)
    for _ in range(2000):
        pool.free(pool.allocate(1 << 20))
        pool.free(pool.allocate(1))
    pool.check()
    assert sum(map(len, pool._heaps)) < 64 * len(pool._heaps)
