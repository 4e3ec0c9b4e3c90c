"""Offsets of buffers with live ranges: never two at one place, and never above what is there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.npu.allocate import Request, allocate, lower_bound

_REQUESTS = st.lists(
    st.builds(
        lambda size, first, length: Request(size, first, first + length),
        st.integers(1, 300),
        st.integers(0, 12),
        st.integers(0, 8),
    ),
    max_size=14,
)


def _bound_by_hand(requests: list[Request]) -> int:
    moments = range(max((r.last for r in requests), default=-1) + 1)
    return max(
        (sum(r.size for r in requests if r.first <= m <= r.last) for m in moments), default=0
    )


def _check(requests: list[Request], offsets: list[int | None], alignment: int) -> None:
    placed = [(r, o) for r, o in zip(requests, offsets, strict=True) if o is not None]
    for index, (a, at) in enumerate(placed):
        assert at % alignment == 0
        for b, other in placed[:index]:
            together = a.first <= b.last and b.first <= a.last
            assert not together or at + a.size <= other or other + b.size <= at


@settings(deadline=None)
@given(_REQUESTS, st.sampled_from([1, 16, 64]))
def test_buffers_that_live_together_never_overlap(requests: list[Request], alignment: int) -> None:
    offsets = allocate(requests, alignment=alignment)
    assert None not in offsets
    _check(requests, offsets, alignment)
    ends = [o + r.size for o, r in zip(offsets, requests, strict=True) if o is not None]
    assert max(ends, default=0) >= lower_bound(requests) == _bound_by_hand(requests)


@settings(deadline=None)
@given(_REQUESTS, st.integers(0, 1200), st.integers(0, 5))
def test_what_is_placed_fits_the_capacity_whatever_the_costs(
    requests: list[Request], capacity: int, weight: int
) -> None:
    offsets = allocate(
        requests,
        alignment=16,
        capacity=capacity,
        steps=128,
        cost=lambda index, offset, so_far: weight * ((offset // 128 + index) % 3),
    )
    _check(requests, offsets, 16)
    for request, offset in zip(requests, offsets, strict=True):
        assert offset is None or offset + request.size <= capacity


def test_the_cheapest_offset_wins_and_ties_go_to_the_lowest() -> None:
    requests = [Request(16, 0, 0), Request(16, 1, 1)]
    found = allocate(
        requests,
        alignment=16,
        capacity=256,
        steps=64,
        cost=lambda index, offset, so_far: float(index == 1 and offset < 64),
    )
    assert found == [0, 64]


def test_chains_of_equal_buffers_reach_the_lower_bound() -> None:
    requests = [Request(64, i, i + 1) for i in range(20)]
    offsets = allocate(requests, alignment=64)
    assert max(o for o in offsets if o is not None) + 64 == lower_bound(requests) == 128


def test_nothing_needs_nothing() -> None:
    assert allocate([], alignment=16) == []
    assert lower_bound([]) == 0
