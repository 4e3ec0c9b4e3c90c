"""A text file as diagnostics need it: its name, its lines and the folder it lies in.

Invariant: a source is valid UTF-8 of bounded size; its lines have no line ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO

from npuc.diagnostics import CompileError, Diagnostic, Location
from npuc.frontend.limits import MAX_TEXT_BYTES

__all__ = ["Source", "load_source"]


@dataclass(frozen=True)
class Source:
    """The text of one file; *folder* is where its weight files lie."""

    file: str
    text: str
    folder: Path

    @cached_property
    def lines(self) -> list[str]:
        """The lines without LF or CRLF."""
        return [line.removesuffix("\r") for line in self.text.split("\n")]

    def diagnostic(self, line: int, column: int, text: str) -> Diagnostic:
        """Return an error at a place of this source, with its line."""
        return Diagnostic(Location(self.file, line, column), text, self._line(line))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Add this source's lines to the errors that are raised inside."""
        try:
            yield
        except CompileError as error:
            raise CompileError([self._with_line(d) for d in error.diagnostics]) from error

    def _with_line(self, diagnostic: Diagnostic) -> Diagnostic:
        place = diagnostic.location
        if diagnostic.source or place.file != self.file:
            return diagnostic
        return replace(diagnostic, source=self._line(place.line))

    def _line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""


def load_source(path: str | Path) -> Source:
    """Return the text at *path*, or standard input for ``-``, whose folder is the current one.

    Raises CompileError for text that is too large or not UTF-8, OSError when it cannot be read.
    """
    if str(path) == "-":
        return _decode("<stdin>", _bounded(sys.stdin.buffer, "<stdin>"), Path())
    with Path(path).open("rb") as stream:
        return _decode(str(path), _bounded(stream, str(path)), Path(path).parent)


def _bounded(stream: IO[bytes], file: str) -> bytes:
    raw = stream.read(MAX_TEXT_BYTES + 1)
    if len(raw) > MAX_TEXT_BYTES:
        limit = f"a graph text has at most {MAX_TEXT_BYTES >> 20} MiB"
        raise CompileError.at(Location(file), f"{limit}: keep large weights in an .npz file")
    return raw


def _decode(file: str, raw: bytes, folder: Path) -> Source:
    """Return the source; a byte order mark at its start is skipped."""
    try:
        return Source(file, raw.decode("utf-8-sig"), folder)
    except UnicodeDecodeError as error:
        offset = error.start + (3 if raw.startswith(b"\xef\xbb\xbf") else 0)
        line = raw.count(b"\n", 0, offset) + 1
        column = offset - raw.rfind(b"\n", 0, offset)
        text = f"not UTF-8 text: byte 0x{raw[offset]:02x} at offset {offset}"
        raise CompileError.at(Location(file, line, column), text) from error
