"""Loading, running and unloading models in device memory: nothing stays, whatever fails."""

from __future__ import annotations

import tracemalloc
from functools import cache

import numpy as np
import pytest

from npuabi.container import write_blob
from npuabi.errors import ErrorCode
from npufw.allocator import Allocator
from npufw.boot import Image, boot
from npufw.buddy import UNIT_BYTES, BuddyAllocator
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.fault_models.churn import POOL_BYTES, Tenancy, frames, fresh_fits, week
from npufw.first_fit import FirstFitAllocator
from npufw.gates.fragmentation import lived
from tests.builders import EDGE
from tests.unit.npufw.programs import codes, expected, rescaler


@cache
def image() -> Image:
    return boot(write_blob(rescaler().builder.build()), EDGE)


def live_once(pool: Allocator, cores: int = 3) -> None:
    """Load the model, give each core an arena, and unload all, also when one of them fails."""
    program, held = image().program, list[int]()
    try:
        held.append(pool.allocate(max(len(program.constants), 1), "constants"))
        for core in range(cores):
            held.append(pool.allocate(program.header.arena_bytes, f"core {core}"))
    finally:
        for address in reversed(held):
            pool.free(address)


def test_c20_ten_thousand_lives_leave_pool_and_host_as_they_were() -> None:
    pool = BuddyAllocator(100 * UNIT_BYTES)
    fresh, usage = pool.blocks(), pool.usage()
    for _ in range(100):
        live_once(pool)
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(1_000):
        live_once(pool)
    grown = tracemalloc.take_snapshot().compare_to(before, "filename")
    tracemalloc.stop()
    ours = [found for found in grown if "npufw" in found.traceback[0].filename]
    assert sum(found.size_diff for found in ours) < 1024
    for _ in range(9_000):
        live_once(pool)
    assert (pool.blocks(), pool.usage()) == (fresh, usage)


def test_runs_between_lives_stay_right() -> None:
    memory = bytearray(64 * UNIT_BYTES)
    pool = BuddyAllocator(len(memory), memory=memory)
    for seed in range(5):
        address = pool.allocate(image().program.header.arena_bytes, "arena")
        found = Engine(image()).run({"x": codes()})["y"]
        np.testing.assert_array_equal(found, expected(codes()), err_msg=f"life {seed}")
        pool.check_guards()
        pool.free(address)
    assert pool.usage().used == 0


@pytest.mark.parametrize("forever", [False, True])
def test_whichever_allocation_fails_nothing_stays_and_the_next_life_is_whole(
    forever: bool,
) -> None:
    pool = BuddyAllocator(64 * UNIT_BYTES)
    fresh = pool.blocks()
    failures = 0
    for number in range(1, 9):
        pool.fail_at(number, forever=forever)
        try:
            live_once(pool)
        except FirmwareError as error:
            failures += error.code is ErrorCode.OUT_OF_MEMORY
        pool.fail_at(0)
        assert pool.blocks() == fresh
        live_once(pool)
    assert failures == 4, "one for each allocation of a life"


def test_a_week_of_swaps_fails_first_fit_with_memory_free_and_not_the_buddy() -> None:
    first_fit, buddy = lived(FirstFitAllocator(POOL_BYTES)), lived(BuddyAllocator(POOL_BYTES))
    assert len(first_fit.failures) >= 5
    for failure in first_fit.failures:
        assert failure.fragmented
        assert failure.usage.free > 2 * failure.size > failure.usage.largest
    assert buddy.failures == []
    assert buddy.empty_again
    assert first_fit.empty_again


def test_a_failure_of_a_pool_that_is_full_is_no_fragmentation() -> None:
    pool = FirstFitAllocator(10 * 4096)
    assert fresh_fits(pool, [4096] * 10)
    assert not fresh_fits(pool, [4096] * 11)


def test_frames_leave_the_pool_as_they_found_it() -> None:
    pool = BuddyAllocator(POOL_BYTES)
    tenancy = Tenancy(pool)
    for swap, steps in zip(range(5), week(1), strict=False):
        tenancy.apply(steps, swap)
        before, most = pool.blocks(), 0
        for _ in frames(pool, swap, 500):
            most = max(most, pool.usage().blocks - sum(not piece.free for piece in before))
        assert pool.blocks() == before
        assert most == 3, "one arena for each core"
    tenancy.unload()
    assert pool.usage().fragmentation == 0
