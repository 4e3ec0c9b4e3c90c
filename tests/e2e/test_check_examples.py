"""The examples of every op, as graphs of their own: reference, tasks and blob agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.check.inputs import choose_inputs
from npuc.check.levels import compiled, float_graph, run_levels
from npuc.check.report import report_of
from npuc.driver import Options
from npuc.frontend.source import Source
from npuc.ir.core import REGISTRY
from npuc.ir.printer import print_graph
from npuc.ops.example import graph_of

NAMES = sorted(name for name in REGISTRY if name != "const" and "." not in name)
ROUNDINGS = ("double", "single", "even")


@pytest.mark.parametrize("name", NAMES)
def test_all_levels_agree_on_the_examples_of(name: str) -> None:
    for number, example in enumerate(REGISTRY[name].examples()):
        if getattr(example, "residual", None) is not None:
            continue  # an operand that only a fusing pass can give parameters
        source = Source(f"{name}-{number}.txt", print_graph(graph_of(example)), Path())
        options = Options(
            calibrate="random",
            rounding=ROUNDINGS[number % 3],
            level=number % 4,
            target=("edge", "tiny")[number % 2],
        )
        inputs = choose_inputs(float_graph(source, options), source, options, ())
        found = report_of(run_levels(compiled(source, options), inputs.arrays))
        assert found.agrees, (source.file, found.partings, found.stopped)
