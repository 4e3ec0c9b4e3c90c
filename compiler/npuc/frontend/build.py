"""From syntax to a graph: names, arities, attributes and types are checked against the ops.

Invariant: an op is in the graph only when every check of its declaration holds. A mistake is
noted and building goes on; what depends on it is then not checked, so that one mistake gives one
error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from npuc.diagnostics import Location
from npuc.frontend.attributes import build_attributes, build_graph_attributes
from npuc.frontend.data import build_data
from npuc.frontend.syntax import Broken, Header, Issue, Operation, Returning, Updating, Word
from npuc.frontend.typetext import build_type, check_size
from npuc.ir.const import Const
from npuc.ir.core import REGISTRY, Graph, Op, State, Value
from npuc.ir.merge import inferred_types, merge_types
from npuc.ir.types import TensorType, Type

__all__ = ["Builder"]

for _level in ("npuc.ops", "npuc.npu.tasks"):
    import_module(_level)  # its ops register themselves

_MAX_SUGGESTIONS = 20


class Builder:
    """Builds one graph, statement by statement; ``issues`` collects (line, mistake)."""

    def __init__(self, file: str, folder: Path, defined_later: dict[str, int]) -> None:
        self.issues: list[tuple[int, Issue]] = []
        self.graph = Graph("", location=Location(file))
        self._file, self._folder = file, folder
        self._values: dict[str, Value | None] = {}  # None: its definition is wrong
        self._lines: dict[str, int] = {}
        self._all_lines = defined_later
        self._suggestions = 0
        self._states: dict[str, tuple[int, State | None]] = {}
        self._updates: dict[str, tuple[int, Value | None]] = {}

    def header(self, line: int, text: Header) -> None:
        """Start the graph: its name, arguments and attributes."""
        graph = self.graph
        graph.name, graph.location = text.name.text, Location(self._file, line, text.name.column)
        graph.attributes = self._checked(line, build_graph_attributes, text.attributes) or {}
        for word, type_text in text.arguments:
            built = self._checked(line, build_type, type_text)
            value = None if built is None else Value(word.text, built)
            if self._define(line, word, value) and value is not None:
                graph.arguments.append(value)

    def operation(self, line: int, text: Operation) -> None:
        """Add an op or a state, or note what is wrong with it."""
        stated = self._stated(line, text)
        if text.label is not None:
            self._state(line, text, text.label, stated)
            return
        op = self._checked(line, self._build, line, text, stated)
        if op is not None:
            self.graph.append(op)
        fallback: Sequence[Type | None] = stated or []
        for index, word in enumerate(text.results):
            if op is not None:
                value: Value | None = op.results[index]
            else:
                built = fallback[index] if index < len(fallback) else None
                value = None if built is None else Value(word.text, built)
            self._define(line, word, value)

    def _state(
        self, line: int, text: Operation, label: Word, stated: list[Type | None] | None
    ) -> None:
        location = Location(self._file, line, text.name.column)
        initial = self._checked(line, self._constant, location, text, stated)
        word, value, state = text.results[0], None, None
        if initial is not None:
            value = Value(word.text, initial.result.type)
            state = State(label.text, value, initial, location)
        defined = self._define(line, word, value)
        if label.text in self._states:
            first = self._states[label.text][0]
            text_of = f'state "{label.text}" is declared already in line {first}'
            self._note(line, Issue(label.column, text_of))
        elif defined:
            self._states[label.text] = line, state

    def updating(self, line: int, text: Updating) -> None:
        """Note what a state holds after a run."""
        label = text.state
        value = self._checked(line, self._value, text.value)
        if label.text in self._updates:
            first = self._updates[label.text][0]
            told = f'state "{label.text}" is updated already in line {first}'
            self._note(line, Issue(label.column, told))
        elif label.text not in self._states:
            known = self._similar(label.text, self._states)
            told = f'no state "{label.text}" is declared before this line{known}'
            self._note(line, Issue(label.column, told))
        else:
            self._updates[label.text] = line, value
            self._check_update(line, text, self._states[label.text][1], value)

    def _check_update(
        self, line: int, text: Updating, state: State | None, value: Value | None
    ) -> None:
        wrong = state is not None and value is not None and state.refuses(value)
        if wrong:
            self._note(line, Issue(text.value.column, wrong))

    def finish(self) -> None:
        """Give each state its argument and output, behind those of the host."""
        for name, (line, state) in self._states.items():
            if name not in self._updates:
                told = f'state "{name}" is never updated: add update "{name}", %value, or use const'
                self._note(line, Issue(1, told))
                continue
            value = self._updates[name][1]
            if state is not None and value is not None:
                self.graph.states.append(state)
                self.graph.arguments.append(state.argument)
                self.graph.outputs.append(value)

    def returning(self, line: int, text: Returning) -> None:
        """Name the outputs."""
        seen: set[str] = set()
        if not text.values:
            self._note(line, Issue(text.column, "the graph has no outputs: return at least one"))
        for word in text.values:
            if word.text in seen:
                self._note(line, Issue(word.column, f"%{word.text} is returned twice"))
                continue
            seen.add(word.text)
            value = self._checked(line, self._value, word)
            if value is not None:
                self.graph.outputs.append(value)

    def broken(self, line: int, text: Broken) -> None:
        """Know the names of a line that cannot be parsed, so that their uses are no mistakes."""
        for word in text.names:
            if word.text not in self._lines:
                self._define(line, word, None)

    def _note(self, line: int, issue: Issue) -> None:
        self.issues.append((line, issue))

    def _checked(self, line: int, build: Any, *arguments: Any) -> Any:
        """Return what *build* makes, or None when it raised a mistake, which is noted."""
        try:
            return build(*arguments)
        except Issue as issue:
            self._note(line, issue)
            return None

    def _define(self, line: int, word: Word, value: Value | None) -> bool:
        """Make a name known; whether it was new."""
        if word.text in self._lines:
            first = self._lines[word.text]
            self._note(line, Issue(word.column, f"%{word.text} is defined already in line {first}"))
            return False
        self._values[word.text], self._lines[word.text] = value, line
        return True

    def _value(self, word: Word) -> Value | None:
        """Return the value of that name, None when its definition is wrong."""
        if word.text in self._values:
            return self._values[word.text]
        line = self._all_lines.get(word.text)
        if line is not None:
            raise Issue(word.column, f"%{word.text} is used before its definition in line {line}")
        raise Issue(
            word.column, f"%{word.text} is not defined{self._similar(word.text, self._values, '%')}"
        )

    def _similar(self, name: str, known: Iterable[str], mark: str = "", most: int = 1) -> str:
        """Return a hint; only for the first mistakes, as each looks at every name."""
        self._suggestions += 1
        if self._suggestions > _MAX_SUGGESTIONS:
            return ""
        close = difflib.get_close_matches(name, list(known), most)
        return f", did you mean {mark}{' or '.join(close)}" if close else ""

    def _op_class(self, name: Word) -> type[Op]:
        cls = REGISTRY.get(name.text)
        if cls is None:
            hint = self._similar(name.text.lower(), REGISTRY, most=3)
            raise Issue(name.column, f"unknown op {name.text!r}{hint}; npuc ops lists all ops")
        if cls is Const:
            raise Issue(name.column, "const takes data, as in const splat(0.1) : tensor<16xf32>")
        return cls

    def _stated(self, line: int, text: Operation) -> list[Type | None] | None:
        if text.types is None:
            return None
        return [self._checked(line, build_type, t) for t in text.types]

    def _build(self, line: int, text: Operation, stated: list[Type | None] | None) -> Op | None:
        """Return the op, or None when a part of it was wrong already."""
        location = Location(self._file, line, text.name.column)
        if text.data is not None:
            return self._constant(location, text, stated)
        cls = self._op_class(text.name)
        operands = self._operands(line, text, cls)
        attributes = build_attributes(text.name, text.attributes, cls)
        if operands is None or (stated is not None and None in stated):
            return None
        types = None if stated is None else [t for t in stated if t is not None]
        op = _construct(cls, text, operands, attributes, types, location)
        if types is not None:
            _merge(op, types, text)
        _verify(op, text)
        return op

    def _constant(
        self, location: Location, text: Operation, stated: list[Type | None] | None
    ) -> Const | None:
        if stated is None or text.types is None or text.data is None:
            raise Issue(text.name.column, f"{text.name.text} needs a type, as in : tensor<16xf32>")
        if len(stated) != 1 or len(text.results) != 1:
            raise Issue(text.name.column, f"{text.name.text} gives one result of one type")
        (tensor,) = stated
        if tensor is None:
            return None
        if not isinstance(tensor, TensorType) or None in tensor.shape:
            place = text.types[0].kind.column
            raise Issue(place, f"a constant is a tensor without dynamic dims, not {tensor}")
        data = build_data(text.data, tensor, self._folder)
        try:
            return Const(data, tensor, name=text.results[0].text, location=location)
        except ValueError as error:
            raise Issue(text.data.kind.column, str(error)) from error

    def _operands(self, line: int, text: Operation, cls: type[Op]) -> list[Value | None] | None:
        """Return the operands, None when one of them is wrong; every wrong one is noted."""
        _check_arity(text, cls)
        values: list[Value | None] = []
        for index, word in enumerate(text.operands):
            field = cls.OPERANDS[min(index, len(cls.OPERANDS) - 1)]
            if word is None and not field.optional:
                raise Issue(text.name.column, f"{cls.NAME} needs its operand {field.name}")
            values.append(None if word is None else self._checked(line, self._value, word))
        wrong = any(v is None and w for v, w in zip(values, text.operands, strict=True))
        return None if wrong else values


def _check_arity(text: Operation, cls: type[Op]) -> None:
    declared = cls.OPERANDS
    low = sum(not o.optional for o in declared)
    high = None if declared and declared[-1].variadic else len(declared)
    given = len(text.operands)
    if given >= low and (high is None or given <= high):
        return
    count = f"{low}" if low == high else f"{low} or more" if high is None else f"{low} to {high}"
    names = ", ".join(o.name for o in declared) or "none"
    raise Issue(text.name.column, f"{cls.NAME} takes {count} operands ({names}), got {given}")


def _construct(
    cls: type[Op],
    text: Operation,
    operands: Sequence[Value | None],
    attributes: dict[str, Any],
    types: list[Type] | None,
    location: Location,
) -> Op:
    """Return the op with named results; ValueErrors of its declaration become mistakes."""
    try:
        op = cls(operands, attributes, result_types=types, location=location)
    except NotImplementedError as error:
        raise Issue(text.name.column, f"{cls.NAME} needs its result types stated") from error
    except ValueError as error:
        raise Issue(text.name.column, f"{cls.NAME}: {error}") from error
    if len(op.results) != len(text.results):
        have = f"{len(op.results)} result{'' if len(op.results) == 1 else 's'}"
        raise Issue(text.name.column, f"{cls.NAME} gives {have}, {len(text.results)} named")
    for value, word in zip(op.results, text.results, strict=True):
        value.name = word.text
    return op


def _verify(op: Op, text: Operation) -> None:
    for value in op.results:
        check_size(value.tensor, text.name.column)
    try:
        op.verify()
    except ValueError as error:
        raise Issue(text.name.column, f"{op.NAME}: {error}") from error


def _merge(op: Op, stated: Sequence[Type], text: Operation) -> None:
    """Hold the stated types against the inferred ones and complete them."""
    try:
        inferred = inferred_types(op)
    except ValueError as error:
        raise Issue(text.name.column, f"{op.NAME}: {error}") from error
    if inferred is None or text.types is None:
        return
    if len(inferred) != len(stated):
        place = text.types[0].kind.column
        raise Issue(place, f"{op.NAME} gives {len(inferred)} types, {len(stated)} stated")
    for value, have, want, place_of in zip(op.results, stated, inferred, text.types, strict=True):
        try:
            value.type = merge_types(have, want)
        except ValueError as error:
            raise Issue(place_of.kind.column, f"{op.NAME}: {error}") from error
