"""Every command and Python block of README.md is run, in order; what it shows must come out."""

from __future__ import annotations

from pathlib import Path

from tools.readme import README, examples, matches, run_example, scratch


def test_readme_shows_what_its_commands_print(tmp_path: Path) -> None:
    folder = scratch(tmp_path / "clone")
    found = examples(README.read_text())
    assert len(found) >= 8
    for example in found:
        printed = run_example(example, folder)
        if example.command.endswith("EOF") and "python" in example.command.split()[0]:
            assert not any("Traceback" in line for line in printed), "\n".join(printed)
        else:
            wrong = "\n".join(printed)
            assert matches(example.shown, printed), f"README.md:{example.line}\n{wrong}"
