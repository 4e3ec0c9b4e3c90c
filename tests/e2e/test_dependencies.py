"""Order comes from waits and nothing else: they cover every hazard, and each that matters, matters.

The hazards are found by brute force on byte sets taken from the descriptors (tests/hazards.py).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from numpy.typing import NDArray

from npuabi.enums import ToaFlag
from npuabi.records import Toa
from npuabi.simulate import Timeline
from npuc.passes import depend
from npufw.boot import Image
from npufw.engine import Engine
from npufw.errors import FirmwareError
from tests.compiled import Built, built, same
from tests.hazards import Access, accesses, hazards, random_timeline

Array = NDArray[Any]
_WAIT_FLAGS = (ToaFlag.WAIT_DMA_IN, ToaFlag.WAIT_DMA_OUT, ToaFlag.WAIT_MAC, ToaFlag.WAIT_VECTOR)


def _program(seed: int) -> Built:
    return built(seed, ops=4, target="tiny", level=2 + seed % 2, sram_limit_kib=4)


def _toas(image: Image) -> list[Toa]:
    return [step.toa for step in image.steps]


def _on(image: Image, timeline: Timeline, toas: list[Toa] | None = None) -> Image:
    """Return the image as it runs on another timeline, with other TOA records if given."""
    steps = image.steps
    if toas is not None:
        steps = tuple(replace(s, toa=t) for s, t in zip(steps, toas, strict=True))
    made = replace(image, steps=steps)
    made.__dict__["timeline"] = timeline
    return made


@pytest.mark.parametrize("seed", range(40), ids="seed-{}".format)
def test_waits_and_unit_order_cover_every_hazard(seed: int) -> None:
    image = _program(seed).image
    assert hazards(_toas(image), accesses(image)) == []


@pytest.mark.parametrize("kind", ["WAR", "RAW"])
def test_a_depend_pass_that_forgets_a_kind_of_hazard_is_caught(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    waits, note = depend._Memory.waits, depend._Memory.note
    if kind == "WAR":
        monkeypatch.setattr(depend._Memory, "note", lambda m, reads, *rest: note(m, [], *rest))
    else:
        monkeypatch.setattr(depend._Memory, "waits", lambda m, reads, writes: waits(m, [], writes))
    found = [h for seed in range(8) for h in _hazards_of(_program(seed).image)]
    assert any(name == kind for name, _, _ in found)


def _hazards_of(image: Image) -> list[tuple[str, int, int]]:
    return hazards(_toas(image), accesses(image))


@pytest.mark.parametrize("seed", range(20), ids="seed-{}".format)
def test_any_order_that_the_waits_allow_gives_the_same_outputs(seed: int) -> None:
    found = _program(seed)
    expected = found.run()
    for number in range(5):
        timeline = random_timeline(found.image, Random(number))
        outputs = Engine(_on(found.image, timeline)).run(found.case.inputs)
        assert same(outputs, expected), f"order {number}\n{found.case.text}"


def test_a_wait_that_is_left_out_changes_outputs_unless_another_implies_it() -> None:
    changed = needed = 0
    for seed in range(6):
        found = _program(seed)
        image = found.image
        touched, expected = accesses(image), found.run()
        for toas in _without_one_wait(image, touched):
            needed += 1
            changed += any(_shows(found, expected, order, toas) for order in _orders(image, toas))
    assert needed >= 30
    assert changed >= needed // 2


def _shows(found: Built, expected: dict[str, Array], order: Timeline, toas: list[Toa]) -> bool:
    """Return whether an order gives other outputs, or makes a kernel refuse its parameters."""
    try:
        outputs = Engine(_on(found.image, order, toas)).run(found.case.inputs)
    except FirmwareError:
        return True
    return not same(outputs, expected)


def _without_one_wait(image: Image, touched: list[Access]) -> list[list[Toa]]:
    """Return the programs that lack one wait of one TOA and so leave a hazard open."""
    toas, found = _toas(image), []
    for index, toa in enumerate(toas):
        for flag in _WAIT_FLAGS:
            if toa.flags & flag:
                changed = [*toas[:index], replace(toa, flags=toa.flags & ~flag), *toas[index + 1 :]]
                if hazards(changed, touched):
                    found.append(changed)
    return found[:: max(1, len(found) // 10)]


def _orders(image: Image, toas: list[Toa]) -> list[Timeline]:
    made = replace(image, steps=_on(image, image.timeline, toas).steps)
    made.__dict__["timeline"] = image.timeline
    return [random_timeline(made, Random(n), slow=0.5) for n in range(8)]
