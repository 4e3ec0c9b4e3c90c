"""Random graphs, from text to the emulator's outputs: every element is the reference's.

Integers are equal in every bit, floats within their tolerance.

A failure replays with ``pytest -k 'seed-123'``. NPU_LONG=1 runs 2,000 graphs.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuc.ir.core import REGISTRY, Op
from npufw.sanitize import sanitize
from tests.compiled import built, compiled, differing, same
from tests.random_graphs import random_case

SEEDS = range(2000 if os.environ.get("NPU_LONG") else 216)


@pytest.mark.parametrize("seed", SEEDS, ids="seed-{}".format)
def test_the_emulator_gives_what_the_reference_gives(seed: int) -> None:
    found = built(seed)
    assert differing(found) == {}, f"{found.options}\n{found.case.text}"
    assert list(sanitize(found.image).lines()) == [], found.case.text


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_the_emulator_equals_the_reference_on_graphs_that_shrink(random: Random) -> None:
    case = random_case(random, ops=4)
    found = compiled(case, target="tiny", sram_limit_kib=random.choice((4, 8, 16)))
    assert differing(found) == {}, case.text


@pytest.mark.parametrize("seed", range(6), ids="seed-{}".format)
def test_levels_targets_and_limits_never_change_a_number(seed: int) -> None:
    precision = ("int8", "int16")[seed % 2]
    first = built(seed, precision=precision, level=0, target="edge", sram_limit_kib=None).run()
    for level in range(4):
        assert same(built(seed, precision=precision, level=level, target="tiny").run(), first)
    narrow = built(seed, precision=precision, level=3, target="edge-quad", sram_limit_kib=4)
    assert same(narrow.run(), first)


def test_the_generator_draws_every_op_and_much_of_what_an_op_can_be() -> None:
    # to_layout is made by a pass. The rarest ops come up in one of 100 graphs.
    wanted = {name for name in REGISTRY if not name.startswith("npu.")} - {"to_layout"}
    drawn: list[Op] = []
    for seed in range(1000):
        drawn += random_case(Random(seed)).graph().ops
        if seed > 100 and {op.NAME for op in drawn} >= wanted:
            break
    assert {op.NAME for op in drawn} == wanted
    convs = [op for op in drawn if op.NAME == "conv2d"]
    assert {_kind(op) for op in convs} == {"dense", "grouped", "depthwise", "multiplied"}
    assert {op.attributes["auto_pad"] for op in convs} >= {"NOTSET", "SAME_UPPER", "VALID"}
    assert any(len(set(op.attributes["pads"])) > 2 for op in convs)


def _kind(op: Op) -> str:
    group = op.attributes["group"]
    outputs, depth = op.inputs[1].tensor.dims[:2]
    if group == 1 or depth > 1:
        return "dense" if group == 1 else "grouped"
    return "depthwise" if outputs == group else "multiplied"
