"""Offsets: what is live together lies apart, each request at the cheapest, then lowest, place."""

from __future__ import annotations

import itertools
import random

import pytest

from npuc.npu.allocate import Request, allocate, lower_bound

ALIGNMENT, STEP, CAPACITY = 64, 256, 4096


def requests(seed: int, count: int = 60) -> list[Request]:
    draw = random.Random(seed)
    return [
        Request(draw.randrange(1, 700), first, first + draw.choice([0, 0, 1, 3, 40]))
        for first in (draw.randrange(100) for _ in range(count))
    ]


def meet(a: Request, b: Request) -> bool:
    return a.first <= b.last and b.first <= a.last


def apart(begin: int, size: int, other: int, other_size: int) -> bool:
    return begin + size <= other or other + other_size <= begin


def price(index: int, offset: int, offsets: object) -> float:
    return (offset // STEP * 7 + index) % 5


def tried(wanted: list[Request], priced: bool) -> list[int | None]:
    """Place each request at the best of all aligned offsets: slow and obviously right."""
    offsets: list[int | None] = [None] * len(wanted)
    for index in sorted(range(len(wanted)), key=lambda i: (-wanted[i].size, wanted[i].first, i)):
        size = wanted[index].size
        taken = [
            (at, other.size)
            for at, other in zip(offsets, wanted, strict=True)
            if at is not None and meet(other, wanted[index])
        ]
        free = [
            offset
            for offset in range(0, CAPACITY - size + 1, ALIGNMENT)
            if all(apart(offset, size, *span) for span in taken)
        ]
        # Within a bank every offset costs the same, so trying all equals trying the first.
        offsets[index] = min(
            free, key=lambda o: (price(index, o, None) if priced else 0, o), default=None
        )
    return offsets


@pytest.mark.parametrize("priced", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_each_request_lies_where_trying_every_offset_puts_it(seed: int, priced: bool) -> None:
    wanted = requests(seed)
    found = allocate(
        wanted,
        alignment=ALIGNMENT,
        capacity=CAPACITY,
        steps=STEP if priced else None,
        cost=price if priced else None,
    )
    assert found == tried(wanted, priced)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_live_together_never_overlaps(seed: int) -> None:
    wanted = requests(seed, 200)
    placed = list(zip(allocate(wanted, alignment=ALIGNMENT), wanted, strict=True))
    for (a, left), (b, right) in itertools.combinations(placed, 2):
        assert a is not None
        assert b is not None
        assert not meet(left, right) or apart(a, left.size, b, right.size)


def test_a_request_beyond_the_capacity_has_no_offset() -> None:
    wanted = [Request(100, 0, 3), Request(100, 4, 4), Request(100, 2, 5)]
    assert allocate(wanted, alignment=1, capacity=150) == [0, 0, None]


def test_the_lower_bound_is_what_is_live_at_one_moment() -> None:
    assert lower_bound([Request(5, 0, 1), Request(7, 1, 2), Request(6, 2, 2)]) == 13
    assert lower_bound([]) == 0
