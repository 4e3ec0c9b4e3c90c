"""Temperature bands tile their range, their sets only grow, and a blob keeps them to the bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from npuabi.bands import (
    BANDS,
    BASE_BAND,
    JITTER_PS,
    TAP_PS,
    band_of,
    band_sets,
    limits,
    sample_taps,
    settle_ps,
)
from npuabi.container import Program, read_blob, write_blob
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import BandSet
from npuabi.sections import split_sections
from npuabi.target import load_target, target_names

EDGE = load_target("edge")
Build = Callable[[int, int, int], Program]


@pytest.mark.parametrize("band", range(BANDS))
def test_each_boundary_belongs_to_the_hotter_band(band: int) -> None:
    low, high = limits(band)
    assert (low, high) == (-40 + 5 * band, -35 + 5 * band)
    below = max(0, band - 1)
    assert band_of(math.nextafter(low, -math.inf)) == below
    assert band_of(low) == band_of(math.nextafter(high, -math.inf)) == band


def test_bands_end_at_125_and_what_is_colder_than_all_is_in_the_first() -> None:
    assert band_of(-273.0) == 0
    for celsius in (125.0, 1e9, math.inf, math.nan):
        with pytest.raises(ValueError, match="above all bands"):
            band_of(celsius)


@pytest.mark.parametrize("name", target_names())
def test_sets_grow_with_heat_and_the_base_set_adds_nothing(name: str) -> None:
    sets = band_sets(load_target(name))
    assert [entry.band for entry in sets] == list(range(BANDS))
    assert sets[BASE_BAND].setup == (0, 0, 0, 0)
    assert sets[BASE_BAND].sample == 0
    for cooler, hotter in itertools.pairwise(sets):
        assert hotter.sample >= cooler.sample
        assert all(a <= b for a, b in zip(cooler.setup, hotter.setup, strict=True))


@pytest.mark.parametrize("band", range(BANDS))
def test_a_window_stands_seven_deviations_behind_the_settling_at_its_limit(band: int) -> None:
    high = limits(band)[1]
    margin = sample_taps(high) * TAP_PS - settle_ps(high)
    assert 0 <= margin - 7 * JITTER_PS < TAP_PS


def test_sets_take_a_kibibyte_of_a_blob(build: Build) -> None:
    program = build(4, 8, 5000)
    raw = write_blob(program)
    assert read_blob(raw, target=EDGE).program.bands == program.bands
    assert split_sections(raw)[Section.BANDS].length == 32 * BANDS
    assert len(raw) - len(write_blob(replace(program, bands=()))) <= 4096


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (lambda s: (s[1], s[0]), ErrorCode.BAD_INDEX),
        (lambda s: (s[0], s[0]), ErrorCode.BAD_INDEX),
        (lambda s: (replace(s[0], band=33, low=125, high=130),), ErrorCode.BAD_INDEX),
        (lambda s: (replace(s[0], low=-41),), ErrorCode.BAD_INDEX),
        (lambda s: (s[5], replace(s[6], sample=s[5].sample - 1)), ErrorCode.BAD_FIELD),
        (lambda s: (s[20], replace(s[21], setup=(1, 1, 0, 1))), ErrorCode.BAD_FIELD),
        (lambda s: (replace(s[32], sample=200),), ErrorCode.BAD_FIELD),
        (lambda s: (replace(s[0], setup=(0, 0, -1, 0)),), ErrorCode.BAD_FIELD),
        (lambda s: s + s, ErrorCode.BAD_COUNT),
    ],
)
def test_sets_that_are_out_of_order_or_range_are_refused(
    build: Build,
    bad: Callable[[tuple[BandSet, ...]], tuple[BandSet, ...]],
    code: ErrorCode,
) -> None:
    program = build(4, 8, 5000)
    with pytest.raises(AbiError) as refused:
        write_blob(replace(program, bands=bad(program.bands)))
    assert refused.value.code is code
