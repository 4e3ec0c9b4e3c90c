"""The table of what arenas waste of their blocks is that of the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.memory_waste import row

PAGE = Path(__file__).parents[3] / "docs" / "gates" / "3-fragmentation.md"


@pytest.mark.parametrize("name", ["digits", "conv_bn_relu"])
def test_the_chapter_states_a_models_waste_as_it_is(name: str) -> None:
    assert f"| {' | '.join(row(name))} |" in PAGE.read_text(encoding="utf-8")
