"""Every level is text: what each pass leaves is printed, parsed and printed again to the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.driver import Options, compile, compile_graph
from npuc.frontend.text import parse_text
from npuc.ir.core import Graph
from npuc.ir.printer import print_graph
from npuc.passes import PIPELINE
from npuc.passes.manager import Pass
from tests.compiled import built

MODELS = Path(__file__).parents[2] / "models"
_ELIDED = 16


class _Checker:
    """Called after each pass; keeps the names of those whose graph was checked."""

    def __init__(self, folder: Path, *, elide: int | None, skip: frozenset[str]) -> None:
        self.seen: list[str] = []
        self._skip = skip
        self._folder = folder
        self._elide = elide

    def __call__(self, step: Pass, graph: Graph) -> None:
        if step.NAME in self._skip:
            return
        text = print_graph(graph, elide=self._elide)
        again = print_graph(parse_text(text, folder=self._folder), elide=self._elide)
        assert again.splitlines() == text.splitlines(), step.NAME
        self.seen.append(step.NAME)


@pytest.mark.parametrize("model", ["conv_bn_relu", "digits", "resnet8", "resnet18"])
def test_each_pass_over_a_model_leaves_a_fixed_point_of_print_and_parse(model: str) -> None:
    # Thousands of lines a pass: of the largest model's L3 only the last pass, which shows all.
    skip = frozenset({"tile", "schedule", "place", "plan_memory"} if model == "resnet18" else ())
    check = _Checker(MODELS, elide=_ELIDED, skip=skip)
    compile(MODELS / f"{model}.txt", after=check)
    assert set(check.seen) == {p.NAME for p in PIPELINE} - skip


@pytest.mark.parametrize("seed", range(12), ids="seed-{}".format)
def test_each_pass_over_a_random_graph_leaves_one_with_all_its_numbers(seed: int) -> None:
    case = built(seed, ops=4).case
    check = _Checker(Path(), elide=None, skip=frozenset())
    compile_graph(case.graph(), Options(calibrate=case.calibrate, target="tiny"), after=check)
    assert check.seen
