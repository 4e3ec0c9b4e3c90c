"""The examples of every op, all of one op in a graph: reference, tasks and blob agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuabi.target import load_target
from npuc.check.inputs import choose_inputs
from npuc.check.levels import compiled, float_graph, run_levels
from npuc.check.report import report_of
from npuc.driver import Options
from npuc.frontend.source import Source
from npuc.ir.core import REGISTRY
from npuc.ir.printer import print_graph
from npuc.ops.example import graph_of
from npuc.support import support_of

NAMES = sorted(name for name in REGISTRY if name != "const" and "." not in name)
ROUNDINGS = ("double", "single", "even")
TARGETS = ("edge", "tiny")
EDGE = load_target("edge")


def agrees(name: str, precision: str) -> None:
    number = NAMES.index(name)
    source = Source(f"{name}.txt", print_graph(graph_of(*REGISTRY[name].examples())), Path())
    options = Options(
        calibrate="random",
        precision=precision,
        rounding=ROUNDINGS[number % 3],
        level=2 if number % 5 == 0 else 0,  # the higher ones try several plans
        target=TARGETS[number % 2],
    )
    inputs = choose_inputs(float_graph(source, options), source, options, ())
    found = report_of(run_levels(compiled(source, options), inputs.first))
    assert found.agrees, (source.text, found.partings, found.stopped)


@pytest.mark.parametrize("name", NAMES)
def test_all_levels_agree_on_the_examples_of(name: str) -> None:
    agrees(name, "int8")


@pytest.mark.parametrize("name", NAMES)
def test_a_wider_precision_agrees_on_the_examples_of(name: str) -> None:
    """What npuc ops says an op has, it has; ops take turns in the precisions."""
    has = [p for p in support_of(REGISTRY[name], EDGE).precisions if p != "int8"]
    if has:
        agrees(name, has[NAMES.index(name) % len(has)])
