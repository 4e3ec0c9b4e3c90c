"""Device memory for long: a week of frames and swaps, traces of every shape, many threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuabi.progress import Progress
from npufw.buddy import UNIT_BYTES, BuddyAllocator
from npufw.fault_models.churn import POOL_BYTES, SWAP_FRAMES, SWAPS, Tenancy, frames, week
from tools.campaigns.base import Campaign, Tally
from tools.memory_traces import TRACES, Player, churn

__all__ = ["THREADS", "TRACE_CAMPAIGN", "WEEK"]

_SEED = 3
_CHECK_EACH = 1000
_POOLS = (1, 3, 64, 100, 1024, 65_536)
_TRACE_OPERATIONS = 5_000
_THREAD_OPERATIONS = 12_500


def _week(ids: Sequence[int], progress: Progress) -> Tally:
    """Run the frames between swap *id* and the next, for each id, on the pool as it is then.

    What the frames leave is what they found, so the swaps alone lead to any point of the week.
    """
    tally, wanted, done = Tally(), set(ids), 0
    pool = BuddyAllocator(POOL_BYTES)
    tenancy, fresh, worst = Tenancy(pool), pool.blocks(), 0.0
    for swap, steps in enumerate(week(_SEED)):
        tenancy.apply(steps, swap)
        if swap not in wanted:
            continue
        before = pool.blocks()
        for number in frames(pool, swap):
            if number % _CHECK_EACH == 0:
                pool.check()
            done += 1
        tally.trials += 1
        if pool.blocks() != before:
            tally.failures.append(f"{swap}: the frames left the pool changed")
        tally.failures += [f"{swap}: {f.size} bytes" for f in tenancy.failures if f.swap == swap]
        worst = max(worst, pool.usage().fragmentation)
        progress("swaps of the week", tally.trials, len(wanted))
    tenancy.unload()
    if pool.blocks() != fresh:
        tally.failures.append(f"{max(wanted, default=0)}: unloaded, the pool is not as at first")
    tally.figures = {
        "frames": done,
        "swaps": SWAPS,
        "failed allocations": len(tenancy.failures),
        "fragmentation at the end": pool.usage().fragmentation,
        "largest fragmentation while loaded": round(worst, 3),
    }
    return tally


def _each(ids: Sequence[int], progress: Progress, what: str, trial: Callable[[int], int]) -> Tally:
    """Run *trial* for each id; it returns its operations and raises AssertionError."""
    tally, operations = Tally(), 0
    for number in ids:
        try:
            operations += trial(number)
        except AssertionError as error:
            tally.failures.append(f"{number}: {error}")
        tally.trials += 1
        progress(what, tally.trials, len(ids))
    tally.figures = {"operations": operations}
    return tally


def _trace(number: int) -> int:
    units, trace = _POOLS[number % len(_POOLS)], TRACES[number // len(_POOLS) % len(TRACES)]
    player = Player(BuddyAllocator(units * UNIT_BYTES), trace, seed=number)
    player.play(_TRACE_OPERATIONS, check_each=1 if units <= 64 else _CHECK_EACH)
    player.finish()
    return _TRACE_OPERATIONS


def _threads(number: int) -> int:
    churn(BuddyAllocator((256 + number) * UNIT_BYTES), threads=8, operations=_THREAD_OPERATIONS)
    return 8 * _THREAD_OPERATIONS


WEEK = Campaign(
    name="memory-week",
    title=f"{SWAPS} swaps and {SWAPS * SWAP_FRAMES:,} frames of seven days on the buddy allocator",
    short=2,
    long=SWAPS,
    run=_week,
)
TRACE_CAMPAIGN = Campaign(
    name="memory-traces",
    title=f"{len(TRACES)} shapes of traces on pools of {_POOLS[0]} to {_POOLS[-1]:,} units",
    short=10,
    long=216,
    run=lambda ids, progress: _each(ids, progress, "traces", _trace),
)
THREADS = Campaign(
    name="memory-threads",
    title="8 threads that fill what they hold with their own tokens",
    short=0,
    long=8,
    run=lambda ids, progress: _each(ids, progress, "pools", _threads),
)
