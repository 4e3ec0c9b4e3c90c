"""The commands shown in README.md and docs/: run them, compare or rewrite what they print.

A ``console`` block holds commands behind ``$ `` and their output; a line ``...`` stands for any
lines. ``python`` blocks are run as they stand. All of a page run in one scratch folder with a copy
of models/. Seconds differ from run to run and are not compared. Run as ``python -m tools.readme
[--update]``; with --update the outputs are written anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PAGES", "Example", "examples", "main", "matches", "run_example", "scratch"]

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/guide.md",
    "docs/ir.md",
    "docs/machine.md",
    "docs/gates/1-heat.md",
    "docs/gates/2-ripple.md",
    "docs/gates/3-fragmentation.md",
    "docs/gates/4-abi.md",
    "docs/gates/5-camera.md",
    "docs/gates/6-ota.md",
    "docs/gates/7-variation.md",
    "docs/runtime.md",
    "docs/runtime-load.md",
)
"""The pages whose commands are run, by their path in the repository."""

_SECONDS = re.compile(r"\b\d+\.\d+ s\b")
_ANY = "..."


@dataclass(frozen=True, slots=True)
class Example:
    """A command and the output lines shown behind it; *line* is its place in the page, from 1."""

    command: str
    line: int
    shown: list[str] = field(default_factory=list)


def examples(text: str) -> list[Example]:
    """Return the commands and Python blocks of a Markdown text, in order."""
    found: list[Example] = []
    for language, first, lines in _blocks(text):
        if language == "console":
            found += _commands(lines, first)
        elif language == "python":
            script = "\n".join(lines)
            found.append(Example(f"{sys.executable} - <<'EOF'\n{script}\nEOF", first))
    return found


def _blocks(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield (language, number of the first line inside, lines) of each fenced block."""
    language, start = "", 0
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            if start:
                yield language, start, body
                start = 0
            else:
                language, start, body = line[3:].strip(), number + 1, []
        elif start:
            body.append(line)


def _commands(lines: list[str], first: int) -> list[Example]:
    """Split a console block; a here-document's lines belong to its command."""
    found: list[Example] = []
    end = ""
    for number, line in enumerate(lines, start=first):
        if end:
            found[-1] = Example(f"{found[-1].command}\n{line}", found[-1].line)
            end = "" if line == end else end
        elif line.startswith("$ "):
            found.append(Example(line[2:], number))
            mark = re.search(r"<<'(\w+)'", line)
            end = mark[1] if mark else ""
        elif found:
            found[-1].shown.append(line)
    return found


def run_example(example: Example, folder: Path) -> list[str]:
    """Return the lines that a command prints to both streams, whatever its exit code."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    done = subprocess.run(
        example.command,
        shell=True,
        executable="/bin/bash",
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def matches(shown: list[str], printed: list[str]) -> bool:
    """Return whether *printed* is what the page shows, seconds and elided lines aside."""
    parts = [re.escape(_SECONDS.sub("x s", line)) + "\n" for line in shown]
    pattern = "".join("(?:.*\n)*" if part == re.escape(_ANY) + "\n" else part for part in parts)
    text = "".join(_SECONDS.sub("x s", line) + "\n" for line in printed)
    return re.fullmatch(pattern, text) is not None


def scratch(folder: Path) -> Path:
    """Return *folder* with what the page's reader has in a clone."""
    shutil.copytree(ROOT / "models", folder / "models")
    return folder


def _updated(text: str) -> str:
    """Return *text* with every output that is wrong replaced; elided outputs keep their ends."""
    lines = text.splitlines()
    with tempfile.TemporaryDirectory() as name:
        folder = scratch(Path(name) / "clone")
        runs = [(e, run_example(e, folder)) for e in examples(text)]
    for example, printed in reversed(runs):
        if example.command.startswith(sys.executable) or matches(example.shown, printed):
            continue
        first = example.line - 1 + len(example.command.splitlines())
        lines[first : first + len(example.shown)] = _elided(example.shown, printed)
    return "\n".join(lines) + "\n"


def _elided(shown: list[str], printed: list[str]) -> list[str]:
    if _ANY not in shown:
        return printed
    head = shown.index(_ANY)
    tail = len(shown) - head - 1
    return [*printed[:head], _ANY, *(printed[-tail:] if tail else [])]


def main() -> int:
    """Compare the pages with reality, or update them; return 1 when something differed."""
    stale = [name for name in PAGES if _refreshed(ROOT / name, write="--update" in sys.argv[1:])]
    for name in stale:
        print(f"{name} shows what is not printed any more: python -m tools.readme --update")
    return 1 if stale else 0


def _refreshed(page: Path, *, write: bool) -> bool:
    """Return whether *page* is stale and stays so; with *write* it is updated instead."""
    text = page.read_text(encoding="utf-8")
    updated = _updated(text)
    if write and updated != text:
        page.write_text(updated, encoding="utf-8", newline="\n")
    return updated != text and not write


if __name__ == "__main__":
    sys.exit(main())
