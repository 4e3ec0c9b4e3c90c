"""A pass on the wrong form of a graph is refused with a place, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.diagnostics import CompileError
from npuc.driver import Options, compile_graph
from npuc.frontend.text import parse_text
from npuc.ir.core import Graph
from npuc.ir.printer import print_graph
from npuc.passes import NPU_PASSES, PIPELINE
from npuc.passes.context import PassContext
from npuc.passes.level import Level, level_of
from npuc.passes.lower import Lower
from npuc.passes.manager import Pass, PassManager

TEXT = """graph @g(%x: tensor<1x4x4x4xf32>) {
  %y = relu(%x)
  return %y
}
"""
DUMPS: dict[str, str] = {}


def dump(name: str) -> str:
    """Return the text of the graph behind one pass."""

    def after(step: Pass, graph: Graph) -> None:
        DUMPS[step.NAME] = print_graph(graph)

    if not DUMPS:
        compile_graph(parse_text(TEXT), Options(calibrate="random"), after=after)
    return DUMPS[name]


def test_every_pass_says_which_form_it_takes() -> None:
    taking = {kind for kind in PIPELINE if kind.LEVEL is Level.TASKS}
    assert taking == {kind for kind in NPU_PASSES if kind is not Lower}


@pytest.mark.parametrize("step", PIPELINE, ids=lambda kind: kind.NAME)
@pytest.mark.parametrize("source", ["text", "legalise", "lower", "depend"])
def test_any_pass_on_any_level_changes_the_graph_or_refuses_it(
    step: type[Pass], source: str
) -> None:
    graph = parse_text(TEXT if source == "text" else dump(source))
    before = level_of(graph)
    try:
        PassManager([step()]).run(graph, PassContext())
    except CompileError:
        return
    assert before is step.LEVEL


def test_compiling_npu_tasks_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    graph = parse_text(dump("depend"))
    with pytest.raises(CompileError, match="takes ops on tensors, as in the source"):
        compile_graph(graph, Options())
