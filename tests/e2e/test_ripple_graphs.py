"""The check memory on random graphs of all precisions: no false alarm, and no flip that passes.

A failure replays with ``pytest -k 'seed-123'``.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from npuabi.errors import AbiError
from npufw.defences.ripple import Ripple
from npufw.engine import Engine
from npufw.fault_models.draws import Source
from npufw.fault_models.flips import Upset, Upsets, draw_upset
from npufw.fault_models.places import REGIONS
from npufw.faults import FaultEvent, Outcome
from tests.compiled import Built, built, same

_MIXES = 6
_STEP = 4 if os.environ.get("NPU_LONG") else 12
SEEDS = [36 * mix + at for mix in range(_MIXES) for at in range(2, 34, _STEP)]
_FLIPS = 30


def _upsets(found: Built, count: int) -> list[Upset]:
    source = Source(found.options.level, count)
    upsets: list[Upset] = []
    while len(upsets) < count:
        try:
            upsets.append(draw_upset(found.image, source, region=source.one_of([*REGIONS])))
        except ValueError:
            continue  # The program has nothing of that region.
    return upsets


@pytest.mark.parametrize("seed", SEEDS, ids="seed-{}".format)
def test_no_false_alarm_and_no_flip_that_passes(seed: int) -> None:
    found = built(seed, ops=5)
    wanted = found.run()
    hit = Upsets()
    engine = Engine(found.image, hooks=[hit, Ripple(found.image)])
    for _ in range(2):
        engine.reset()
        assert same(engine.run(found.case.inputs), wanted), found.case.text
    assert engine.log == (), found.case.text
    for upset in _upsets(found, _FLIPS):
        engine.reload()
        hit.load(upset)
        given, code = wanted, 0x50
        try:
            given = engine.run(found.case.inputs)
        except AbiError as error:
            code = error.code
        assert same(given, wanted), upset.text
        assert 0x50 <= code < 0x60, upset.text
        log: tuple[FaultEvent, ...] = engine.drain()
        outcomes = [event.outcome for event in log]
        assert outcomes[:2] == [Outcome.INJECTED, Outcome.DETECTED], upset.text
    engine.reload()
    hit.load(None)
    assert same(engine.run(found.case.inputs), wanted)


def test_floats_that_are_no_numbers_raise_no_alarm() -> None:
    found = built(110, precision="fp32", keep={})
    engine = Engine(found.image, hooks=[Ripple(found.image)])
    inputs = {
        name: np.full_like(array, 3e38) if array.dtype.kind == "f" else array
        for name, array in found.case.inputs.items()
    }
    with np.errstate(all="ignore"):
        engine.run(inputs)
    assert engine.log == ()
