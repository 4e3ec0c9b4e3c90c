"""Syntax of graph text: one line in, one small tree out.

Invariant: a tree holds no meaning yet, only words and values with their columns (from 1). Only
:class:`Issue` is raised for bad text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from npuabi.text import UNPRINTABLE

__all__ = [
    "Attribute",
    "AttributeValue",
    "Broken",
    "Closing",
    "DataText",
    "Header",
    "Issue",
    "Literal",
    "Operation",
    "QuantText",
    "Returning",
    "Statement",
    "TypeText",
    "Updating",
    "Word",
    "broken_line",
    "parse_line",
]

_MAX_INTEGER_DIGITS = 20

AttributeValue = int | float | bool | str | tuple[int | float, ...]


class Issue(Exception):
    """One mistake in a line: its column and a text for the user."""

    def __init__(self, column: int, text: str) -> None:
        super().__init__(text)
        self.column = column
        self.text = text


@dataclass(frozen=True, slots=True)
class Word:
    """A name and where it stands."""

    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, string, boolean or list and where it stands."""

    value: AttributeValue
    column: int


@dataclass(frozen=True, slots=True)
class Attribute:
    """``name = value``."""

    name: Word
    literal: Literal


@dataclass(frozen=True, slots=True)
class QuantText:
    """``q<name = value, ...>``."""

    fields: tuple[Attribute, ...]
    column: int


@dataclass(frozen=True, slots=True)
class TypeText:
    """``tensor<...>`` or ``buffer<...>``."""

    kind: Word
    shaped: Word
    items: tuple[QuantText | Attribute | Word, ...]


@dataclass(frozen=True, slots=True)
class DataText:
    """The data of a constant; *body* is the text between the brackets of ``dense``."""

    kind: Word
    items: tuple[Literal | Attribute, ...] = ()
    body: Word | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """``graph @name(%x: type) attributes {...} {``."""

    name: Word
    arguments: tuple[tuple[Word, TypeText], ...]
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One op; an operand of None is ``none``; *data* belongs to ``const`` and ``state`` alone.

    *label* is the name of a state.
    """

    results: tuple[Word, ...]
    name: Word
    operands: tuple[Word | None, ...]
    attributes: tuple[Attribute, ...]
    types: tuple[TypeText, ...] | None
    data: DataText | None = None
    label: Word | None = None


@dataclass(frozen=True, slots=True)
class Updating:
    """``update "history", %v``."""

    state: Word
    value: Word


@dataclass(frozen=True, slots=True)
class Returning:
    """``return %p, %q``."""

    values: tuple[Word, ...]
    column: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The brace that ends a graph."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that cannot be parsed: what it would be, and the names that it seems to define."""

    kind: type[Header] | type[Operation] | type[Updating] | type[Returning] | type[Closing]
    names: tuple[Word, ...]


Statement = Header | Operation | Updating | Returning | Closing | Broken


def parse_line(text: str) -> Statement:
    """Return the tree of one line that is neither empty nor a comment; raises Issue."""
    start = _start_of(text)
    try:
        tree: Any = _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise _issue(error, text) from error
    statement: Statement = tree
    return statement


def broken_line(text: str) -> Broken:
    """Return what can be told of a line with a syntax error."""
    kinds: dict[str, Any] = {
        "header": Header,
        "updating": Updating,
        "returning": Returning,
        "closing": Closing,
    }
    kind = kinds.get(_start_of(text), Operation)
    defining = text if kind is Header else text.split("=", 1)[0] if kind is Operation else ""
    names = re.finditer(r"%([\w.$-]+)", defining)
    return Broken(kind, tuple(Word(m.group(1), m.start() + 1) for m in names))


def _start_of(text: str) -> str:
    stripped = text.lstrip(" \t")
    if stripped.startswith("}"):
        return "closing"
    word = stripped.split(None, 1)[0]
    starts = {"graph": "header", "return": "returning", "update": "updating"}
    return starts.get(word, "operation")


@cache
def _parser() -> Lark:
    grammar = (resources.files("npuc.frontend") / "graph.lark").read_text("utf-8")
    starts = ["header", "operation", "updating", "returning", "closing"]
    return Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        start=starts,
        transformer=_ToSyntax(),
        maybe_placeholders=True,
    )


def _name(token: Token) -> Word:
    """Return the name of ``%x``, ``%"x y"`` or ``@x`` without its mark and quotes."""
    text, column = str(token)[1:], token.column or 1
    name = _unquote(text, column) if text.startswith('"') else text
    return _printable(Word(name, column))


def _printable(word: Word) -> Word:
    if UNPRINTABLE.search(word.text):
        raise Issue(word.column, f"a name holds no control characters, got {word.text!a}")
    return word


def _unquote(text: str, column: int) -> str:
    try:
        value = json.loads(text)
        value.encode("utf-8")
    except ValueError as error:
        raise Issue(column, f"{text} is no valid string: escapes are those of JSON") from error
    return str(value)


def _integer(token: Token) -> int:
    if len(token) > _MAX_INTEGER_DIGITS or not -(2**63) <= int(token) < 2**63:
        raise Issue(token.column or 1, f"{token[:24]} does not fit into 64 bits")
    return int(token)


def _float(token: Token) -> float:
    value = float(token)
    if math.isinf(value) and not token.endswith("inf"):
        raise Issue(token.column or 1, f"{token[:24]} is too large for a float; write inf for none")
    return value


class _ToSyntax(Transformer[Token, Any]):
    """Makes trees of lark's rules, bottom up; a rule's method has the rule's name."""

    def header(self, children: list[Any]) -> Header:
        name, arguments, attributes = children
        return Header(_name(name), arguments or (), attributes or ())

    def argument(self, children: list[Any]) -> tuple[Word, TypeText]:
        return _name(children[0]), children[1]

    def operation(self, children: list[Any]) -> Operation:
        results, name, operands, attributes, types = children
        word = Word(str(name), name.column)
        return Operation(results or (), word, operands or (), attributes or (), types)

    def constant(self, children: list[Any]) -> Operation:
        results, keyword, data, types = children
        return Operation(results, Word("const", keyword.column), (), (), types, data)

    def state(self, children: list[Any]) -> Operation:
        results, keyword, label, _, data, types = children
        word = Word(_unquote(str(label), label.column), label.column)
        return Operation(
            results, Word("state", keyword.column), (), (), types, data, _printable(word)
        )

    def updating(self, children: list[Any]) -> Updating:
        _, label, value = children
        return Updating(Word(_unquote(str(label), label.column), label.column), _name(value))

    def results(self, children: list[Any]) -> tuple[Word, ...]:
        return tuple(map(_name, children))

    def operand(self, children: list[Any]) -> Word | None:
        (token,) = children
        return None if token.type == "NONE" else _name(token)

    def returning(self, children: list[Any]) -> Returning:
        keyword, values = children
        return Returning(values or (), keyword.column)

    def closing(self, _: list[Any]) -> Closing:
        return Closing()

    def data(self, children: list[Any]) -> DataText:
        kind, items = children
        return DataText(Word(str(kind), kind.column), items or ())

    def dense(self, children: list[Any]) -> DataText:
        kind, body = children
        return DataText(Word("dense", kind.column), body=Word(str(body), body.column))

    def attribute(self, children: list[Any]) -> Attribute:
        name, literal = children
        return Attribute(Word(str(name), name.column), literal)

    def attributes(self, children: list[Any]) -> tuple[Attribute, ...]:
        return tuple(c for c in children if c is not None)

    def number(self, children: list[Any]) -> Literal:
        (token,) = children
        convert: Callable[[Token], int | float] = _integer if token.type == "INT" else _float
        return Literal(convert(token), token.column)

    def string(self, children: list[Any]) -> Literal:
        (token,) = children
        return Literal(_unquote(str(token), token.column), token.column)

    def boolean(self, children: list[Any]) -> Literal:
        (token,) = children
        return Literal(token.type == "TRUE", token.column)

    def numbers(self, children: list[Any]) -> Literal:
        bracket, *items = children
        return Literal(tuple(i.value for i in items if i is not None), bracket.column)

    def type_text(self, children: list[Any]) -> TypeText:
        kind, shaped, *items = children
        return TypeText(
            Word(str(kind), kind.column), Word(str(shaped), shaped.column), tuple(items)
        )

    def quant(self, children: list[Any]) -> QuantText:
        return QuantText(tuple(children[1:]), children[0].column)

    def word(self, children: list[Any]) -> Word:
        (token,) = children
        return Word(str(token), token.column)

    def _tuple(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    arguments = operands = types = data_items = _tuple


_WORD = re.compile(r"[\w.]+|.", re.DOTALL)

_WORDS = {
    "VALUE": "a value such as %x",
    "SYMBOL": "a name such as @main",
    "NAME": "a name",
    "STRING": "a string",
    "INT": "a number",
    "FLOAT": "a number",
    "KIND": "a type such as tensor<1x3xf32>",
    "SHAPED": "dims and an element type such as 1x3xf32",
    "DENSE_BODY": "numbers in brackets",
    "NONE": "none",
    "CONST": "const",
    "STATE": "state",
    "INIT": "init",
    "UPDATE": "update",
    "DENSE": "dense",
    "RETURN": "return",
    "TRUE": "true",
    "FALSE": "false",
    "Q": "q",
    "GRAPH": "graph",
    "ATTRIBUTES": "attributes",
    "LPAR": "(",
    "RPAR": ")",
    "LBRACE": "{",
    "RBRACE": "}",
    "OPEN": "[",
    "RSQB": "]",
    "LESSTHAN": "<",
    "MORETHAN": ">",
    "COMMA": ",",
    "COLON": ":",
    "EQUAL": "=",
    "$END": "the end of the line",
}


def _issue(error: UnexpectedInput, text: str) -> Issue:
    if isinstance(error, UnexpectedCharacters):
        return _unexpected(text, error.column, error.allowed or set())
    expected = error.accepts if isinstance(error, UnexpectedToken) else set()
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return _unexpected(text, error.token.column or 1, expected)
    column = len(text.rstrip()) + 1
    wanted = _listed(expected)
    return Issue(column, f"the line ends too early, expected {wanted}; a statement is one line")


def _unexpected(text: str, column: int, expected: set[str]) -> Issue:
    """Return an issue that quotes the word at *column*, however the lexer cut it."""
    found = _WORD.findall(text[column - 1 : column + 39])[0]
    if text[column - 1] == '"' and "STRING" in expected:
        return Issue(column, "a string that does not end on its line")
    return Issue(column, f"unexpected {found!r}, expected {_listed(expected)}")


def _listed(terminals: set[str]) -> str:
    words = sorted({_WORDS.get(t, t.lower()) for t in terminals})
    return " or ".join(words) if words else "nothing"
