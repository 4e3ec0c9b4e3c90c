"""A blob's text cut into statements: syntax and values, not yet what points where.

    blob: container_version 1           also header, known_answer; may stand in several lines
    op %y: kind "conv2d", line 12       also interface, tensor %x#1, toa 5
    names: "image", "y"                 the symbols section, where its order matters
    params: input_shift 1               64 bytes of constants: an OpParams record; also float_params
    words: 1, -2                        4 bytes each; also floats
    data: 00ff                          bytes
    constants: file "c.bin", bytes 96   or all of them in a file beside the text

Invariant: a mistake costs its own line only, and no statement more memory than its text.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from npuabi.diagnostics import Diagnostic, Location
from npuabi.progress import Progress, silent
from npuabi.records import FileHeader, Toa
from npuabi.wire import Record
from npufw.asm_form import HEADS, PARTS, clause_names, fixed
from npufw.asm_lines import Fault, Label, Line
from npufw.asm_read import close_to, read, real

__all__ = ["MAX_TEXT_BYTES", "ConstantsFile", "Statement", "Text", "parse"]

MAX_TEXT_BYTES = 256 << 20
"""Bytes of a text; larger constants go to a file beside it."""

_MAX_LINE = 1 << 20
_MOST_ISSUES = 1000
_LINES_A_STEP = 10_000
_BLOB = "blob"
_WORD = (-(2**31), 2**31 - 1)
_NO_HEX = re.compile(r"[^0-9a-fA-F \t]")


@dataclass(slots=True, kw_only=True)
class Statement:
    """One record as it is written; *columns* says where each clause begins.

    Values that point elsewhere are labels and names. *broken*: the line holds a mistake that was
    reported, so that only the label counts.
    """

    keyword: str
    kind: type[Record]
    line: int
    text: str
    label: Label | int | None = None
    values: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    broken: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantsFile:
    """The file that holds the constants, and where the text names it."""

    name: str
    size: int
    line: int
    column: int


@dataclass(slots=True)
class Text:
    """What a text holds, and the mistakes found so far."""

    file: str
    lines: int = 0
    statements: dict[str, list[Statement]] = field(default_factory=dict)
    names: list[str] | None = None
    constants: bytearray = field(default_factory=bytearray)
    constants_file: ConstantsFile | None = None
    issues: list[Diagnostic] = field(default_factory=list)

    def of(self, keyword: str) -> list[Statement]:
        """Return the statements of a keyword in the order of the text."""
        return self.statements.get(keyword, [])

    def report(self, statement: Statement, text: str, clause: str = "") -> None:
        """Note a mistake in *statement*, at one of its clauses where that is known."""
        column = statement.columns.get(clause, 1)
        place = Location(self.file, statement.line, column)
        self.issues.append(Diagnostic(place, text, statement.text))


def parse(raw: bytes, file: str, progress: Progress = silent) -> Text:
    """Return the statements in the bytes of a text; *file* names it in diagnostics."""
    reader = _Reader(Text(file))
    if len(raw) > MAX_TEXT_BYTES:
        limit = f"a text has at most {MAX_TEXT_BYTES >> 20} MiB"
        reader.issue(0, 0, f"{limit}: keep the constants in a file, disasm --constants FILE", "")
        return reader.text
    stream = io.BytesIO(raw.removeprefix(b"\xef\xbb\xbf"))
    for number, octets in enumerate(stream, start=1):
        reader.line(number, octets)
        if len(reader.text.issues) >= _MOST_ISSUES:
            break
        if number % _LINES_A_STEP == 0:
            progress("reading", stream.tell(), len(raw))
    return reader.text


class _Reader:
    """Takes lines one by one; ``text`` is what they gave."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self._number = 0
        self._statements: dict[str, Callable[[Line, int], None]] = {
            "names": self._names,
            **{word: partial(self._head, kind) for word, kind in HEADS.items()},
            "words": self._words,
            "floats": self._floats,
            "constants": self._constants,
        }

    def issue(self, number: int, column: int, text: str, line: str) -> None:
        """Note a mistake."""
        self.text.issues.append(Diagnostic(Location(self.text.file, number, column), text, line))

    def line(self, number: int, octets: bytes) -> None:
        """Read one line, line end included."""
        self._number = self.text.lines = number
        if octets.startswith(b"data: ") and self._plain_data(octets[6:]):
            return
        shown = octets.rstrip(b"\r\n").decode("utf-8", "replace")
        try:
            self._read(_decoded(octets), shown)
        except Fault as fault:
            self.issue(number, fault.column, fault.text, shown)

    def _read(self, text: str, shown: str) -> None:
        stripped = text.lstrip(" \t")
        if stripped.startswith("data:"):
            self._data(text)
            return
        line = Line(text)
        if line.token.kind == "end":
            return
        word = line.take("word", f"a statement: {', '.join(self._known())}")
        special = self._statements.get(word.text)
        if special is not None:
            line.mark(":")
            special(line, word.column)
        elif word.text in PARTS or word.text == _BLOB:
            self._record(line, word.text, shown)
        else:
            text = f"unknown statement {word}: {close_to(word.text, self._known())}"
            raise Fault(word.column, text)

    def _known(self) -> list[str]:
        return [_BLOB, *PARTS, *self._statements, "data"]

    # --- records -----------------------------------------------------------------------------

    def _record(self, line: Line, keyword: str, shown: str) -> None:
        part = PARTS.get(keyword)
        kind = part.kind if part is not None else FileHeader
        statement = Statement(keyword=keyword, kind=kind, line=self._number, text=shown)
        self.text.statements.setdefault(keyword, []).append(statement)
        statement.columns[""] = line.token.column
        if part is not None and part.labelled:
            statement.label = line.take("label", f"a label such as {keyword} %x").label()
        elif kind is Toa:
            statement.label = _count(line, "the TOA's number, as in toa 0")
        line.mark(":")
        _clauses(line, kind, statement.values, statement.columns)
        statement.broken = False

    # --- names and constants -------------------------------------------------------------------

    def _names(self, line: Line, column: int) -> None:
        if self.text.names is None:
            self.text.names = []
        while True:
            self.text.names.append(line.take("string", "a name in quotes").label().name)
            if not line.accept(","):
                break
        line.take("end", "',' or the end of the line")

    def _head(self, kind: type[Record], line: Line, column: int) -> None:
        values: dict[str, Any] = {}
        _clauses(line, kind, values, {})
        self.text.constants += kind(**{**fixed(kind), **values}).encode()

    def _words(self, line: Line, column: int) -> None:
        self._numbers(line, lambda: _word(line).to_bytes(4, "little", signed=True))

    def _floats(self, line: Line, column: int) -> None:
        self._numbers(line, lambda: struct.pack("<f", real(line, "floats")))

    def _numbers(self, line: Line, take: Callable[[], bytes]) -> None:
        while True:
            self.text.constants += take()
            if not line.accept(","):
                break
        line.take("end", "',' or the end of the line")

    def _plain_data(self, octets: bytes) -> bool:
        """Take a line of nothing but good data, as nearly all are, without cutting it up."""
        if len(octets) > _MAX_LINE:
            return False
        try:
            self.text.constants += bytes.fromhex(octets.decode("ascii"))
        except ValueError:
            return False
        return True

    def _data(self, text: str) -> None:
        start = text.index(":") + 1
        digits = text[start:].partition("//")[0]
        bad = _NO_HEX.search(digits)
        if bad is not None:
            text = f"data is pairs of hex digits, got {bad.group()!a}"
            raise Fault(start + bad.start() + 1, text)
        try:
            self.text.constants += bytes.fromhex(digits)
        except ValueError as error:
            raise Fault(start + 1, "data is pairs of hex digits, one lacks its second") from error

    def _constants(self, line: Line, column: int) -> None:
        if self.text.constants_file is not None:
            raise Fault(column, "the file of constants is named twice")
        if line.take("word", 'file "NAME", bytes N').text != "file":
            raise Fault(column, 'expected constants: file "NAME", bytes N')
        name = line.take("string", "the file's name in quotes")
        line.mark(",")
        if line.take("word", "bytes N").text != "bytes":
            raise Fault(column, 'expected constants: file "NAME", bytes N')
        size = _count(line, "the file's size in bytes")
        line.take("end", "the end of the line")
        self.text.constants_file = ConstantsFile(
            name=name.label().name, size=size, line=self._number, column=name.column
        )


def _decoded(octets: bytes) -> str:
    if len(octets) > _MAX_LINE:
        raise Fault(1, f"a line has at most {_MAX_LINE} bytes, got {len(octets)}")
    try:
        return octets.rstrip(b"\r\n").decode()
    except UnicodeDecodeError as error:
        column = len(octets[: error.start].decode()) + 1
        raise Fault(column, f"not UTF-8 text: byte 0x{octets[error.start]:02x}") from error


def _clauses(
    line: Line, kind: type[Record], values: dict[str, Any], columns: dict[str, int]
) -> None:
    """Take all clauses up to the end of the line."""
    known = clause_names(kind)
    while True:
        word = line.take("word", f"a field such as {known[0]}")
        if word.text not in known:
            raise Fault(word.column, f"unknown field {word}: {close_to(word.text, known)}")
        value = read(line, kind, word.text)
        if word.text == "wait":
            _add_wait(values, value, word.column)
        elif word.text in values:
            raise Fault(word.column, f"{word.text} is given twice")
        else:
            values[word.text] = value
        columns.setdefault(word.text, word.column)
        if not line.accept(","):
            break
    line.take("end", "',' or the end of the line")


def _add_wait(values: dict[str, Any], wait: tuple[Any, int], column: int) -> None:
    unit, count = wait
    waits = values.setdefault("wait", {})
    if unit in waits:
        raise Fault(column, f"wait {unit.name.lower()} is given twice")
    waits[unit] = count


def _count(line: Line, what: str) -> int:
    token = line.take("number", what)
    if not token.text.isdigit() or len(token.text) > 10:
        raise Fault(token.column, f"expected {what}, at most ten digits, got {token}")
    return int(token.text)


def _word(line: Line) -> int:
    token = line.take("number", "a number of 32 bits")
    whole = token.text.removeprefix("-")
    value = int(token.text) if whole.isdigit() and len(whole) <= 10 else None
    if value is None or not _WORD[0] <= value <= _WORD[1]:
        raise Fault(token.column, f"a word is from {_WORD[0]} to {_WORD[1]}, got {token}")
    return value
