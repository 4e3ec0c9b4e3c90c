"""Words of one line of a blob's text.

    %r1.const#2   label: a name, quoted where it has other characters, and #n where several share it
    "two words"   string, with the escapes of JSON
    -7 0x1f 1e-3  number
    conv          word
    , : | [ ]     marks;  // begins a comment

Invariant: words are cut one by one as they are asked for, so that no line costs more memory than
its text; only :class:`Fault` is raised for bad text.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from npuabi.text import UNPRINTABLE

__all__ = ["Fault", "Label", "Line", "Token", "quoted"]

_BARE = r"[A-Za-z0-9_.$-]+"
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(
    rf"""[ \t]*(?:
    (?P<end>//|$)
    |(?P<label>%(?:{_BARE}|{_QUOTED})(?:\#[0-9]+)?)
    |(?P<string>{_QUOTED})
    |(?P<number>-?(?:0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf\b))
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>[,:|\[\]])
    )""",
    re.VERBOSE,
)
_IS_BARE = re.compile(_BARE)
_MOST_DIGITS = 9
_SHOWN = 40


class Fault(Exception):
    """One mistake in a line: its column, from 1, and a text for the user."""

    def __init__(self, column: int, text: str) -> None:
        super().__init__(text)
        self.column = column
        self.text = text


class Label(NamedTuple):
    """What a record is called: its name and, where several have it, which one of them."""

    name: str
    number: int = 0

    def __str__(self) -> str:
        name = self.name if _IS_BARE.fullmatch(self.name) else quoted(self.name)
        return f"%{name}#{self.number}" if self.number else f"%{name}"


class Token(NamedTuple):
    """A word of a line: ``end``, ``label``, ``string``, ``number``, ``word`` or ``mark``."""

    kind: str
    text: str
    column: int

    def __str__(self) -> str:
        cut = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        return "the end of the line" if self.kind == "end" else f"'{cut}'"

    def label(self) -> Label:
        """Return what a label or string names. Raises Fault for a bad escape or name."""
        if self.kind == "string":
            return Label(_unquoted(self.text, self.column))
        name, mark, number = self.text[1:].rpartition("#")
        if not mark or number.endswith('"'):
            name, number = self.text[1:], "0"
        if len(number) > _MOST_DIGITS:
            raise Fault(self.column, f"a number of at most {_MOST_DIGITS} digits follows #")
        bare = _unquoted(name, self.column) if name.startswith('"') else name
        return Label(bare, int(number))


def quoted(name: str) -> str:
    """Return *name* as a string of the text."""
    return json.dumps(name, ensure_ascii=False)


def _unquoted(text: str, column: int) -> str:
    try:
        name = str(json.loads(text))
    except ValueError as error:
        raise Fault(column, f"{text[:_SHOWN]} is no string: escapes are those of JSON") from error
    bad = UNPRINTABLE.search(name)
    if bad is not None:
        raise Fault(column, f"a name holds no control characters, got {bad.group()!a}")
    return name


class Line:
    """The words of one line; ``token`` is the next one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.token = self._cut(0)

    def take(self, kind: str, what: str) -> Token:
        """Return the next word, which must be of that *kind*; *what* says so to the user."""
        found = self.token
        if found.kind != kind:
            raise self.unexpected(what)
        if kind != "end":
            self.token = self._cut(found.column - 1 + len(found.text))
        return found

    def mark(self, text: str, what: str = "") -> None:
        """Take the mark *text*."""
        if not self.accept(text):
            raise self.unexpected(what or f"'{text}'")

    def accept(self, text: str) -> bool:
        """Take the mark *text* when it is next; return whether it was."""
        if (self.token.kind, self.token.text) != ("mark", text):
            return False
        self.take("mark", "")
        return True

    def unexpected(self, what: str) -> Fault:
        """Return a fault that says what was expected instead of the next word."""
        return Fault(self.token.column, f"expected {what}, got {self.token}")

    def _cut(self, start: int) -> Token:
        found = _TOKEN.match(self._text, start)
        if found is None or found.lastgroup is None:
            at = start + len(self._text[start:]) - len(self._text[start:].lstrip(" \t"))
            if self._text[at] in '"%':
                what = "string that does not end" if self._text[at] == '"' else "label with no name"
                raise Fault(at + 1, f"a {what} on its line")
            raise Fault(at + 1, f"unexpected {self._text[at]!a}")
        kind = found.lastgroup
        return Token(kind, found.group(kind), found.start(kind) + 1)
