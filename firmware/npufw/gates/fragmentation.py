"""Gate 3, fragmentation: a week of model swaps through first fit and through the buddy allocator.

It is a gate about device memory alone: the subject's network does not enter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuabi.progress import Progress
from npufw.allocator import Allocator
from npufw.buddy import BuddyAllocator
from npufw.fault_models.churn import POOL_BYTES, SWAPS, Failure, Tenancy, week
from npufw.first_fit import FirstFitAllocator
from npufw.gates.base import Gate, Shown, Subject

__all__ = ["GATE", "Week", "lived"]

_SEED = 3
_MIB = 1 << 20
_HOURS_A_SWAP = 1 / 6


@dataclass(frozen=True, kw_only=True)
class Week:
    """What a week did to an allocator: its failures, the curve of fragmentation, the end.

    ``curve`` has, for each swap, the external fragmentation behind it; ``waste`` is the largest
    part of the used bytes that nobody asked for.
    """

    failures: list[Failure]
    curve: list[float]
    waste: float
    empty_again: bool


def lived(allocator: Allocator, seed: int = _SEED, swaps: int = SWAPS) -> Week:
    """Put *allocator* through the week and unload everything behind it."""
    fresh = allocator.largest_free()
    tenancy, curve, waste = Tenancy(allocator), list[float](), 0.0
    for swap, steps in enumerate(week(seed, swaps)):
        tenancy.apply(steps, swap)
        usage = allocator.usage()
        curve.append(usage.fragmentation)
        waste = max(waste, usage.waste)
    tenancy.unload()
    again = allocator.largest_free() == fresh and allocator.usage().used == 0
    return Week(failures=tenancy.failures, curve=curve, waste=waste, empty_again=again)


def _show(subject: Subject, progress: Progress) -> Shown:
    first_fit = lived(FirstFitAllocator(POOL_BYTES))
    progress("gate 3: allocators", 1, 2)
    buddy = lived(BuddyAllocator(POOL_BYTES))
    progress("gate 3: allocators", 2, 2)
    return Shown(
        undefended=dict(_figures(first_fit)),
        defended=dict(_figures(buddy)),
        surcharge={"cycles": 0, "largest_waste_share": buddy.waste},
        passed=(
            any(failure.fragmented for failure in first_fit.failures)
            and not buddy.failures
            and buddy.empty_again
        ),
    )


def _figures(week: Week) -> Iterator[tuple[str, int | float | str]]:
    yield "swaps", len(week.curve) - 1
    yield "failed_loads", len(week.failures)
    yield "largest_fragmentation_share", max(week.curve)
    for failure in week.failures[:1]:
        yield "first_after_hours", failure.swap * _HOURS_A_SWAP
        yield "wanted_mib", failure.size / _MIB
        yield "free_mib", failure.usage.free / _MIB
        yield "largest_free_mib", failure.usage.largest / _MIB


GATE = Gate(
    number=3,
    name="fragmentation",
    fault="a week of model swaps; first fit has memory free, but in holes that nothing fits into",
    defence="buddy allocator of 64 KiB units, a guard with canaries behind every block",
    show=_show,
)
