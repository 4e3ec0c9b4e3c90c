"""The examples of every op, as graphs of their own: reference, tasks and blob agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuabi.target import load_target
from npuc.check.inputs import choose_inputs
from npuc.check.levels import compiled, float_graph, run_levels
from npuc.check.report import report_of
from npuc.driver import Options
from npuc.frontend.source import Source
from npuc.ir.core import REGISTRY, Op
from npuc.ir.printer import print_graph
from npuc.ops.example import graph_of
from npuc.support import support_of

NAMES = sorted(name for name in REGISTRY if name != "const" and "." not in name)
ROUNDINGS = ("double", "single", "even")
EDGE = load_target("edge")


def agrees(number: int, example: Op, **changes: object) -> None:
    source = Source(f"{number}.txt", print_graph(graph_of(example)), Path())
    options = Options(
        calibrate="random",
        rounding=ROUNDINGS[number % 3],
        level=number % 4,
        target=("edge", "tiny")[number % 2],
        **changes,  # type: ignore[arg-type]
    )
    inputs = choose_inputs(float_graph(source, options), source, options, ())
    found = report_of(run_levels(compiled(source, options), inputs.arrays))
    assert found.agrees, (source.text, found.partings, found.stopped)


def examples_of(name: str) -> list[Op]:
    """Return the examples; an int8 residual gets its parameters from a fusing pass only."""
    found = REGISTRY[name].examples()
    return [example for example in found if getattr(example, "residual", None) is None]


@pytest.mark.parametrize("name", NAMES)
def test_all_levels_agree_on_the_examples_of(name: str) -> None:
    for number, example in enumerate(examples_of(name)):
        agrees(number, example, precision="int8")


@pytest.mark.parametrize("name", NAMES)
def test_wider_precisions_agree_on_an_example_of(name: str) -> None:
    """What npuc ops says an op has, it has; each precision takes another example."""
    for number, precision in enumerate(support_of(REGISTRY[name], EDGE).precisions):
        if precision != "int8":
            examples = examples_of(name)
            agrees(number, examples[number % len(examples)], precision=precision)
