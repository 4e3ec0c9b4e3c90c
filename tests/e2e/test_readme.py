"""Every command and Python block of README.md and docs/ is run; what it shows must come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.readme import PAGES, ROOT, examples, matches, run_example, scratch


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_its_commands_print(name: str, tmp_path: Path) -> None:
    folder = scratch(tmp_path / "clone")
    found = examples((ROOT / name).read_text(encoding="utf-8"))
    assert len(found) >= (8 if name == "README.md" else 1)
    for example in found:
        printed = run_example(example, folder)
        if example.command.endswith("EOF") and "python" in example.command.split()[0]:
            assert not any("Traceback" in line for line in printed), "\n".join(printed)
        else:
            wrong = "\n".join(printed)
            assert matches(example.shown, printed), f"{name}:{example.line}\n{wrong}"
