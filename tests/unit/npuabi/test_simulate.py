"""Small timelines worked out by hand, and what holds for every timeline."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.cycles import Waits, Work
from npuabi.enums import Precision, Unit
from npuabi.errors import AbiError
from npuabi.simulate import COLD_START_CYCLES, STALLS, Slot, Timeline, simulate
from npuabi.target import Target, load_target

EDGE = load_target("edge")
IDEAL = replace(EDGE, fetch_cycles=0, ring_entries=65_536, waiting_descriptors=16)
"""A fetcher that is never the limit, for timelines about something else."""

COLD = COLD_START_CYCLES
UNITS = (Unit.DMA_IN, Unit.DMA_OUT, Unit.MAC, Unit.VECTOR)
BURST = EDGE.dma_burst_bytes


def work(unit: Unit, cycles: int, **fields: Any) -> Work:
    values: dict[str, Any] = {
        "waits": (None, None, None, None),
        "latency_cycles": 0,
        "bank_words": (),
        "stream_cycles": 0,
        "ddr_bytes": cycles * 16 if unit in (Unit.DMA_IN, Unit.DMA_OUT) else 0,
        "setup_cycles": 0,
        "precision": Precision.INT8,
        "op": 0,
        "macs": 0,
    }
    return Work(unit=unit, compute_cycles=cycles, **(values | fields))


def after(**counts: int) -> Waits:
    """Waits by unit name: after(DMA_IN=2)."""
    a, b, c, d = (counts.get(unit.name) for unit in UNITS)
    return a, b, c, d


def times(timeline: Timeline) -> list[tuple[int, int]]:
    return [(slot.start, slot.end) for slot in timeline.slots]


def run(*works: Work, target: Target = IDEAL) -> Timeline:
    return simulate(works, target)


def test_an_empty_program_takes_no_cycles() -> None:
    timeline = run()
    assert (timeline.cycles, timeline.slots) == (0, [])
    assert timeline.stalls == dict.fromkeys(STALLS, 0)


def test_a_mac_toa_waits_for_its_dma_and_pays_the_cold_start() -> None:
    timeline = run(
        work(Unit.DMA_IN, 50, latency_cycles=100),
        work(Unit.MAC, 80, waits=after(DMA_IN=1)),
    )
    assert times(timeline) == [(0, 150), (150, 150 + COLD + 80)]
    assert timeline.stalls == dict.fromkeys(STALLS, 0) | {"dma_wait": 150}
    assert timeline.cycles == 150 + COLD + 80


def double_buffered(count: int) -> list[Work]:
    """Loads of 100 cycles into two buffers in turn, each used by a MAC TOA of 200 cycles."""
    works = []
    for i in range(count):
        free = after(MAC=i - 1) if i >= 2 else after()
        works.append(work(Unit.DMA_IN, 100, waits=free))
        works.append(work(Unit.MAC, 200, waits=after(DMA_IN=i + 1)))
    return works


def test_double_buffering_hides_all_dma_but_the_first() -> None:
    timeline = run(*double_buffered(4))
    assert timeline.cycles == 100 + COLD + 4 * 200
    assert timeline.stalls["dma_wait"] == 100
    assert timeline.busy[Unit.DMA_IN] == 400
    assert times(timeline)[4] == (100 + COLD + 200, 200 + COLD + 200), "waits for its buffer"


def test_two_toas_that_need_one_bank_all_the_time_run_at_half_speed() -> None:
    timeline = run(
        work(Unit.MAC, 100, bank_words=((3, 100),)),
        work(Unit.VECTOR, 100, bank_words=((3, 100),)),
    )
    # vector alone during the cold start, both at half speed until vector ends, then MAC alone
    left = 100 - COLD
    assert times(timeline) == [(0, COLD + 2 * left + COLD), (0, COLD + 2 * left)]
    assert timeline.stalls["bank_conflict"] == left + left


def test_toas_in_different_banks_do_not_slow_each_other() -> None:
    timeline = run(
        work(Unit.MAC, 100, bank_words=((3, 100),)),
        work(Unit.VECTOR, 100, bank_words=((4, 100),)),
    )
    assert times(timeline) == [(0, COLD + 100), (0, 100)]
    assert timeline.stalls["bank_conflict"] == 0


def test_a_bank_that_is_half_used_by_two_is_no_conflict() -> None:
    words = ((0, 50),)
    timeline = run(work(Unit.MAC, 100, bank_words=words), work(Unit.VECTOR, 100, bank_words=words))
    assert timeline.stalls["bank_conflict"] == 0


def test_streams_of_one_toa_that_meet_in_a_bank_are_a_bank_conflict() -> None:
    timeline = run(work(Unit.MAC, 100, bank_words=((0, 200), (1, 20))))
    assert timeline.cycles == COLD + 200
    assert timeline.stalls["bank_conflict"] == 100


def test_two_dma_channels_share_ddr() -> None:
    timeline = run(work(Unit.DMA_IN, 100), work(Unit.DMA_OUT, 40))
    # both at half speed until the shorter ends, then the longer alone
    assert times(timeline) == [(0, 80 + 60), (0, 80)]


def test_dma_latency_uses_no_bandwidth() -> None:
    timeline = run(work(Unit.DMA_IN, 100, latency_cycles=100), work(Unit.DMA_OUT, 100))
    assert times(timeline) == [(0, 200), (0, 100)]


def test_a_third_of_a_cycle_is_rounded_up_to_a_whole_one() -> None:
    words = ((0, 10),)
    timeline = run(
        work(Unit.DMA_OUT, 15, bank_words=words), work(Unit.VECTOR, 10, bank_words=words)
    )
    # demand 10/15 + 1: both at 3/5; vector ends at 16.67, DMA has 15 - 17 * 3/5 = 4.8 left
    assert times(timeline) == [(0, 22), (0, 17)]


def test_short_toas_wait_for_the_fetcher_and_are_counted_late() -> None:
    target = replace(EDGE, fetch_cycles=10)
    works = [work(Unit.VECTOR, 3, setup_cycles=2) for _ in range(3)]
    timeline = run(*works, target=target)
    assert [(s.fetched, s.loaded, s.ready) for s in timeline.slots] == [
        (10, 10, 12), (20, 20, 22), (30, 30, 32),
    ]  # fmt: skip
    assert times(timeline) == [(12, 15), (22, 25), (32, 35)]
    assert [s.slack for s in timeline.slots] == [-12, -7, -7]
    assert timeline.stalls["descriptor_late"] == 12 + 7 + 7


def test_long_toas_hide_the_fetch_and_have_slack() -> None:
    works = [work(Unit.VECTOR, 50, setup_cycles=2) for _ in range(3)]
    timeline = run(*works, target=EDGE)
    assert times(timeline) == [(6, 56), (56, 106), (106, 156)]
    assert [s.slack for s in timeline.slots] == [-6, 56 - 10, 106 - 58]


def test_a_full_unit_blocks_the_fetcher_for_everyone_behind() -> None:
    works = [*[work(Unit.VECTOR, 100)] * 3, work(Unit.DMA_IN, 10)]
    timeline = run(*works, target=EDGE)
    # one runs, one waits; the third is fetched at 12 and loaded when the first ends at 104
    assert [s.fetched for s in timeline.slots] == [4, 8, 12, 108]
    assert [s.loaded for s in timeline.slots] == [4, 8, 104, 108]
    assert timeline.slots[3].start == 108


def test_the_ring_limits_how_far_the_fetcher_runs_ahead() -> None:
    works = [work(Unit.VECTOR, 100), *[work(Unit.DMA_IN, 1)] * 8]
    ring = replace(EDGE, ring_entries=4)
    starts = [slot.start for slot in run(*works, target=ring).slots]
    assert starts[:5] == [4, 8, 12, 16, 108], "entry 0 is in use until the vector TOA ends"
    assert run(*works, target=EDGE).slots[4].start == 20


def test_a_precision_switch_costs_the_targets_cycles() -> None:
    wide = {"precision": Precision.INT16}
    timeline = run(work(Unit.MAC, 10), work(Unit.MAC, 10, **wide), work(Unit.MAC, 10, **wide))
    assert [slot.lead for slot in timeline.slots] == [COLD, 32, 0]
    assert timeline.cycles == COLD + 10 + 32 + 10 + 10


def test_arrays_that_wait_for_the_vector_unit_are_a_dependency_stall() -> None:
    timeline = run(
        work(Unit.DMA_IN, 30),
        work(Unit.VECTOR, 40),
        work(Unit.MAC, 10, waits=after(DMA_IN=1, VECTOR=1)),
        work(Unit.VECTOR, 5, waits=after(MAC=1)),
    )
    mac = 40 + COLD + 10
    assert times(timeline)[2:] == [(40, mac), (mac, mac + 5)]
    assert [slot.dependency for slot in timeline.slots] == [0, 0, 40, 0]
    assert timeline.stalls["dma_wait"] == 0


def test_a_core_that_waits_for_data_is_a_dma_stall() -> None:
    timeline = run(
        work(Unit.MAC, 10),
        work(Unit.DMA_IN, 300),
        work(Unit.MAC, 10, waits=after(DMA_IN=1)),
    )
    assert [slot.dma_wait for slot in timeline.slots] == [0, 0, 300 - COLD - 10]
    assert timeline.stalls["dependency"] == 0


def test_a_wait_that_never_holds_is_an_error_and_no_hang() -> None:
    with pytest.raises(AbiError, match=r"toa 1 \(MAC\) never starts"):
        run(work(Unit.DMA_IN, 10), work(Unit.MAC, 10, waits=after(DMA_IN=2)))


def test_five_thousand_toas_are_simulated_in_a_second() -> None:
    banks = tuple((bank, 12) for bank in range(8))
    works = [replace(item, bank_words=banks) for item in double_buffered(2_500)]
    begin = time.process_time()
    assert len(simulate(works, EDGE).slots) == 5_000
    assert time.process_time() - begin < 1.0


def idle_cycles(works: list[Work], timeline: Timeline) -> int:
    """Return the cycles before the last compute start in which no compute unit ran."""
    spans = [
        (slot.start, slot.end)
        for item, slot in zip(works, timeline.slots, strict=True)
        if item.unit in (Unit.MAC, Unit.VECTOR)
    ]
    idle = latest = 0
    for start, end in sorted(spans):
        idle += max(0, start - latest)
        latest = max(latest, end)
    return idle


@st.composite
def programs(draw: st.DrawFn) -> list[Work]:
    """Up to 24 TOAs whose waits name earlier ones."""
    works: list[Work] = []
    for _ in range(draw(st.integers(1, 24))):
        unit = draw(st.sampled_from(UNITS))
        done = [sum(w.unit is u for w in works) for u in UNITS]
        a, b, c, d = (draw(st.none() | st.integers(0, n)) for n in done)
        banks = draw(st.dictionaries(st.integers(0, 2), st.integers(1, 60), max_size=3))
        works.append(
            work(
                unit,
                draw(st.integers(1, 50)),
                waits=(a, b, c, d),
                bank_words=tuple(sorted(banks.items())),
                latency_cycles=20 if unit in (Unit.DMA_IN, Unit.DMA_OUT) else 0,
                setup_cycles=2,
                precision=draw(st.sampled_from([Precision.INT8, Precision.INT16])),
            )
        )
    return works


TARGETS = st.builds(
    replace,
    st.just(EDGE),
    fetch_cycles=st.integers(0, 12),
    ring_entries=st.integers(4, 8),
    waiting_descriptors=st.integers(1, 2),
)


def of_unit(works: list[Work], timeline: Timeline, unit: Unit) -> list[Slot]:
    pairs = zip(works, timeline.slots, strict=True)
    return [slot for item, slot in pairs if item.unit is unit]


@settings(deadline=None, max_examples=60)
@given(programs(), TARGETS)
def test_units_run_one_toa_at_a_time_in_ring_order(works: list[Work], target: Target) -> None:
    timeline = simulate(works, target)
    for unit in UNITS:
        slots = of_unit(works, timeline, unit)
        assert all(a.end <= b.start for a, b in pairwise(slots))
        assert timeline.busy[unit] == sum(slot.end - slot.start for slot in slots)
        assert timeline.busy[unit] <= timeline.cycles


@settings(deadline=None, max_examples=60)
@given(programs(), TARGETS)
def test_no_toa_starts_before_its_waits_and_its_registers(
    works: list[Work], target: Target
) -> None:
    timeline = simulate(works, target)
    for item, slot in zip(works, timeline.slots, strict=True):
        assert slot.fetched <= slot.loaded < slot.loaded + item.setup_cycles == slot.ready
        assert slot.ready <= slot.start
        for unit, count in zip(UNITS, item.waits, strict=True):
            held = of_unit(works, timeline, unit)[: count or 0]
            assert all(other.end <= slot.start for other in held)


@settings(deadline=None, max_examples=60)
@given(programs(), TARGETS)
def test_no_toa_is_faster_than_alone_and_every_lost_cycle_has_a_cause(
    works: list[Work], target: Target
) -> None:
    timeline = simulate(works, target)
    ends = dict.fromkeys(UNITS, 0)
    for item, slot in zip(works, timeline.slots, strict=True):
        assert slot.end - slot.start >= max(slot.alone, slot.lead + item.body_cycles)
        idle = slot.start - ends[item.unit]
        ends[item.unit] = slot.end
        counted = item.unit in (Unit.MAC, Unit.VECTOR)
        assert slot.dependency in ((0, idle) if item.unit is Unit.MAC else (0,))
        beyond = slot.end - slot.start - slot.lead - item.compute_cycles
        assert slot.bank_conflict == (beyond if counted else 0)
    stalls = timeline.stalls
    assert stalls["dma_wait"] + stalls["descriptor_late"] == idle_cycles(works, timeline)


@settings(deadline=None, max_examples=60)
@given(programs(), TARGETS)
def test_no_bank_serves_more_than_a_word_a_cycle(works: list[Work], target: Target) -> None:
    timeline = simulate(works, target)
    for bank in range(3):
        words = sum(dict(item.bank_words).get(bank, 0) for item in works)
        assert words <= timeline.cycles
    transfers = [w.compute_cycles for w in works if w.unit in (Unit.DMA_IN, Unit.DMA_OUT)]
    assert sum(transfers) <= timeline.cycles


@settings(deadline=None, max_examples=50)
@given(programs(), TARGETS)
def test_the_same_program_has_the_same_timeline(works: list[Work], target: Target) -> None:
    assert simulate(works, target) == simulate(list(works), target)
