"""Faults planted in emitted descriptors are named by the sanitizer, or refused at boot.

A failure replays from the mutation's name: plants are drawn from one seed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.errors import AbiError
from npuabi.target import load_target
from npuc.driver import Options, compile
from npufw.boot import Image, boot
from npufw.engine import Engine
from npufw.sanitize import sanitize_blob
from npufw.selftest import generated_inputs
from tests.compiled import same
from tests.mutations import MUTATIONS
from tests.orders import orders
from tests.plant import Mutation, Plant, planted

MODELS = Path(__file__).parents[2] / "models"
TINY = load_target("tiny")
PROGRAMS = {"digits": None, "conv_bn_relu": 16, "resnet8": None}
"""Models and the KiB of SRAM that they are compiled for."""
SEED = 3
PLANTS = 2
ORDERS = 12


@cache
def image(name: str) -> Image:
    options = Options(target="tiny", sram_limit_kib=PROGRAMS[name])
    return boot(compile(MODELS / f"{name}.txt", options).blob, TINY)


def plants(mutation: Mutation, count: int = PLANTS) -> list[Plant]:
    drawn = (planted(mutation, image(name), Random(SEED), count) for name in PROGRAMS)
    return [plant for found in drawn for plant in found]


def named(plant: Plant) -> tuple[set[str], set[int]]:
    """Return the kinds of findings or the code of the refusal, and the TOAs that are named."""
    try:
        findings = sanitize_blob(plant.blob(), TINY)
    except AbiError as error:
        toas = {int(word) for word in error.detail.split() if word.isdigit()}
        return {error.code.name.lower()}, toas
    kinds = {f.code.name.lower() for f in findings.kept if f.code}
    kinds |= {f.kind.word for f in findings.kept}
    steps = findings.image.steps
    accesses = [a for f in findings.kept for a in f.accesses if 0 <= a.position < len(steps)]
    return kinds, {steps[a.position].index for a in accesses}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_planted_fault_is_named_with_the_toa_that_it_was_planted_in(mutation: Mutation) -> None:
    found = plants(mutation)
    assert found
    for plant in found:
        kinds, toas = named(plant)
        assert kinds & mutation.expected, sorted(plant.hit)
        assert not (mutation.named and plant.hit) or toas & plant.hit, sorted(plant.hit)


def test_there_are_faults_of_all_sorts() -> None:
    assert len(MUTATIONS) >= 40
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


SHOWN = [m for m in MUTATIONS if m.shows and not m.is_refused]


@pytest.mark.parametrize("mutation", SHOWN, ids=lambda m: m.name)
def test_what_is_planted_and_boots_can_spoil_the_outputs(mutation: Mutation) -> None:
    found = [plant for plant in plants(mutation) if boots(plant)]
    assert any(spoils(plant) for plant in found)


def boots(plant: Plant) -> bool:
    try:
        boot(plant.blob(), TINY)
    except AbiError:
        return False
    return True


def spoils(plant: Plant) -> bool:
    """Return whether some order of the units, or the timeline's, gives other outputs or none."""
    bent = boot(plant.blob(), TINY)
    inputs = generated_inputs(bent)
    wanted = Engine(plant.image).run(inputs)
    return any(
        shows(bent, order, inputs, wanted) for order in (None, *orders(bent, ORDERS, Random(SEED)))
    )


def shows(
    bent: Image,
    order: list[tuple[int, bool]] | None,
    inputs: dict[str, NDArray[np.float32]],
    wanted: dict[str, NDArray[np.float32]],
) -> bool:
    try:
        return not same(Engine(bent, events=order).run(inputs), wanted)
    except AbiError:
        return True
