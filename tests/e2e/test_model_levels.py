"""Every model of less than 50 million MACs, at every level and on every target: the same numbers.

The sanitizer finds nothing in their blobs. The long form, ``make check-all``, takes all models and
every pair of level and target.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_models import MOST_MACS, SHORT, check_model, models


@pytest.mark.parametrize("precision", SHORT)
@pytest.mark.parametrize("path", models(MOST_MACS), ids=lambda path: path.stem)
def test_all_levels_and_targets_agree_on(path: Path, precision: str) -> None:
    found = list(check_model(path, precision, SHORT[precision]))
    assert [str(f) for f in found if not f.is_sound] == []
    assert found[0].report is not None
    assert len(found) == len(SHORT[precision])
