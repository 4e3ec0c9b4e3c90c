"""Generated regions: made anew between their marks, and nothing outside them is touched."""

from __future__ import annotations

import pytest

from npuabi.markdown import sentence, table
from tools.generate import REGIONS
from tools.regions import filled

_EMPTY = "<!-- generated: one -->\n<!-- end -->\n"
PAGE = f"before\n<!-- generated: one -->\nold\n<!-- end -->\nbetween\n{_EMPTY}"


def test_only_what_stands_between_marks_is_replaced() -> None:
    mark = "<!-- generated: one -->\nnew\n<!-- end -->"
    assert filled(PAGE, {"one": lambda: "new\n"}) == f"before\n{mark}\nbetween\n{mark}\n"


def test_filling_twice_changes_nothing() -> None:
    once = filled(PAGE, {"one": lambda: "new"})
    assert filled(once, {"one": lambda: "new"}) == once


def test_an_unknown_region_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no region 'one': there are a, b"):
        filled(PAGE, {"b": str, "a": str})


def test_a_bar_in_a_cell_does_not_split_it() -> None:
    assert table(["a"], [["x|y"]]).splitlines()[-1] == r"| x\|y |"


@pytest.mark.parametrize(
    ("doc", "line"),
    [
        ("tile: cut tasks\nto fit. More.", "Cut tasks to fit"),
        ("y = x / 2, in ``float32``.", "y = x / 2, in `float32`"),
        (None, ""),
    ],
)
def test_a_docstring_gives_its_first_sentence(doc: str | None, line: str) -> None:
    assert sentence(doc) == line


def test_every_region_is_a_diagram_or_a_table_with_rows() -> None:
    for name, make in REGIONS.items():
        if name.endswith("-diagram"):
            assert make().startswith("```mermaid\n"), name
            continue
        lines = [line for line in make().splitlines() if line.startswith("|")]
        bars = {line.replace(r"\|", "").count("|") for line in lines}
        assert len(lines) > 2, name
        assert len(bars) == 1, name
