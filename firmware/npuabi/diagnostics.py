"""What a reader of text tells its users: located errors, several in one run.

    SourceError               one or more diagnostics
     └─ npuc.diagnostics.CompileError (the compiler's own)

Invariant: a diagnostic is `file:line:column: error: text`, followed by the line and a caret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from npuabi.text import visible

__all__ = ["UNKNOWN", "Diagnostic", "Location", "SourceError"]

_SHOWN = 160
"""Characters of a source line that a diagnostic shows."""

_MOST = 100
"""Diagnostics that an error's text holds; a generated text may have one mistake in each line."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source file; line and column count from 1, 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


UNKNOWN = Location("<built>")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error (or note) and its place; *source* is the line of text it points into."""

    location: Location
    text: str
    source: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        head = visible(f"{self.location}: {self.severity}: {self.text}")
        if not self.source:
            return head
        shown, offset = _window(self.source, self.location.column)
        return f"{head}\n  {shown}\n  {' ' * offset}^"


def _window(source: str, column: int) -> tuple[str, int]:
    """Return the part of a line around *column* that a terminal can show, and the caret's offset.

    What a terminal would act upon (tabs, escapes) is shown as a blank or a mark.
    """
    offset = max(column - 1, 0)
    start = max(0, offset - _SHOWN // 2) if len(source) > _SHOWN else 0
    part = source[start : start + _SHOWN].replace("\t", " ")
    return "".join(c if c.isprintable() else "\ufffd" for c in part), offset - start


def _listed(diagnostics: Sequence[Diagnostic]) -> str:
    shown = [str(d) for d in diagnostics[:_MOST]]
    if len(diagnostics) > _MOST:
        shown.append(f"and {len(diagnostics) - _MOST} more mistakes: mend these first")
    return "\n".join(shown)


class SourceError(Exception):
    """Text that cannot be used, with every diagnostic that was found."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        super().__init__(_listed(diagnostics))
        self.diagnostics = tuple(diagnostics)

    @classmethod
    def at(cls, location: Location, text: str) -> Self:
        """Return an error of one diagnostic."""
        return cls([Diagnostic(location, text)])
