"""Collects the ``*.npu`` files here: graph texts that say how they are run and what must come out.

A file has lines ``// RUN: npuc ARGS | filecheck %s`` (``not npuc ...`` when exit 1 is expected) and
CHECK lines. Commands run inside this process; each RUN line is one test.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

from npuc.cli import main

_MARK = "// RUN:"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a graph text; pytest calls this for the files of this folder only."""
    if file_path.suffix != ".npu":
        return None
    collected: pytest.Collector = CheckedFile.from_parent(parent, path=file_path)
    return collected


class CheckedFile(pytest.File):
    """One graph text."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each RUN line."""
        lines = self.path.read_text("utf-8").splitlines()
        found = [(n, line) for n, line in enumerate(lines, start=1) if line.startswith(_MARK)]
        if not found:
            raise self.CollectError(f"{self.path.name} has no line that starts with {_MARK}")
        for number, line in found:
            name = f"line-{number}"
            yield RunLine.from_parent(self, name=name, command=line.removeprefix(_MARK))


class RunLine(pytest.Item):
    """One RUN line."""

    def __init__(self, *, command: str, name: str, parent: pytest.File) -> None:
        super().__init__(name=name, parent=parent)
        self.command = command.strip()

    def runtest(self) -> None:
        """Run the command and match its output."""
        run, pipe, check = self.command.partition("|")
        words = shlex.split(run.replace("%s", shlex.quote(str(self.path))))
        expected = 1 if words[0] == "not" else 0
        if words[expected] != "npuc" or check.split()[:1] != (["filecheck"] if pipe else []):
            pytest.fail(f"a RUN line is `[not] npuc ARGS | filecheck %s`, got {self.command!r}")
        result = CliRunner().invoke(main, words[expected + 1 :])
        if result.exit_code != expected:
            pytest.fail(f"exit {result.exit_code}, expected {expected}:\n{result.output}", False)
        if pipe and not self._matches(result.output):
            pytest.fail(f"the CHECK lines do not match:\n{result.output}", False)

    def _matches(self, output: str) -> bool:
        options = Options(match_filename=str(self.path))
        return not Matcher(options, FInput("<npuc>", output), Parser.from_opts(options)).run()

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the test in reports."""
        return self.path, 0, f"{self.path.name} {self.name}: {self.command}"
