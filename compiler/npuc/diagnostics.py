"""What the compiler tells its users: located errors, several in one run.

    CompileError              one or more diagnostics; the only exception that the compiler raises
                              for bad input

Invariant: a diagnostic is `file:line:column: error: text`, followed by the line and a caret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["UNKNOWN", "CompileError", "Diagnostic", "Location"]


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
        head = f"{self.location}: {self.severity}: {self.text}"
        if not self.source:
            return head
        caret = " " * max(self.location.column - 1, 0) + "^"
        return f"{head}\n  {self.source}\n  {caret}"


class CompileError(Exception):
    """Input that cannot be compiled, with every diagnostic that was found."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        super().__init__("\n".join(map(str, diagnostics)))
        self.diagnostics = tuple(diagnostics)

    @classmethod
    def at(cls, location: Location, text: str) -> CompileError:
        """Return an error of one diagnostic."""
        return cls([Diagnostic(location, text)])
