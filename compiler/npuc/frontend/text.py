"""The graph text front end: text in, a checked graph out, all mistakes of one run in one error.

Invariant: a graph that is returned passes the verifier; a statement is one line, so a syntax
error costs its own line only.
"""

from __future__ import annotations

from pathlib import Path

from npuc.diagnostics import CompileError, Diagnostic
from npuc.frontend.build import Builder
from npuc.frontend.source import Source, load_source
from npuc.frontend.syntax import (
    Broken,
    Closing,
    Header,
    Issue,
    Operation,
    Returning,
    Statement,
    Updating,
    broken_line,
    parse_line,
)
from npuc.ir.const import Const
from npuc.ir.core import Graph
from npuc.ir.state import initial_of

__all__ = ["check_constants", "parse", "parse_file", "parse_text"]


def parse_file(path: str | Path) -> Graph:
    """Return the graph in the text file at *path*, or on standard input for ``-``.

    Raises CompileError with every mistake, OSError when the file cannot be read.
    """
    return parse(load_source(path))


def parse_text(text: str, *, file: str = "<text>", folder: Path = Path()) -> Graph:
    """Return the graph that *text* states; weight files are looked for in *folder*."""
    return parse(Source(file, text, folder))


def parse(source: Source) -> Graph:
    """Return the graph of a source; raises CompileError with every mistake."""
    statements, issues = _statements(source)
    definitions = {
        word.text: line
        for line, statement in reversed(statements)
        if isinstance(statement, Operation)
        for word in statement.results
    }
    builder = Builder(source.file, source.folder, definitions)
    issues += _build(builder, statements, len(source.lines))
    builder.finish()
    issues += builder.issues
    if issues:
        issues.sort(key=lambda issue: (issue[0], issue[1].column))
        raise CompileError([source.diagnostic(n, i.column, i.text) for n, i in issues])
    return builder.graph


def check_constants(graph: Graph) -> None:
    """Read or make every constant now; raises CompileError with all that cannot be had."""
    diagnostics: list[Diagnostic] = []
    constants = [op for op in graph.ops if isinstance(op, Const)]
    for op in (*(initial_of(state) for state in graph.states), *constants):
        try:
            op.value()
        except CompileError as error:
            diagnostics += error.diagnostics
    if diagnostics:
        raise CompileError(diagnostics)


_Issues = list[tuple[int, Issue]]


def _statements(source: Source) -> tuple[list[tuple[int, Statement]], _Issues]:
    """Return the numbered statements and the syntax errors of the other lines."""
    statements: list[tuple[int, Statement]] = []
    issues: _Issues = []
    for number, line in enumerate(source.lines, start=1):
        stripped = line.lstrip(" \t")
        if not stripped or stripped.startswith("//"):
            continue
        try:
            statements.append((number, parse_line(line)))
        except Issue as issue:
            issues.append((number, issue))
            statements.append((number, broken_line(line)))
    return statements, issues


def _build(builder: Builder, statements: list[tuple[int, Statement]], last: int) -> _Issues:
    """Hand the statements to the builder; return what is wrong with their order."""
    frame = _Frame()
    for line, statement in statements:
        issue = frame.enter(statement)
        if issue is not None:
            frame.issues.append((line, issue))
        if isinstance(statement, Header) and issue is None:
            builder.header(line, statement)
        elif isinstance(statement, Operation):
            builder.operation(line, statement)
        elif isinstance(statement, Updating):
            builder.updating(line, statement)
        elif isinstance(statement, Returning) and issue is None:
            builder.returning(line, statement)
        elif isinstance(statement, Broken):
            builder.broken(line, statement)
    return frame.issues + [(last, issue) for issue in frame.missing()]


class _Frame:
    """The order of statements: header, ops, return, brace; ``issues`` is what broke it."""

    def __init__(self) -> None:
        self.issues: _Issues = []
        self._seen: set[type[Statement]] = set()

    def enter(self, statement: Statement) -> Issue | None:
        """Take the next statement; return a mistake when it stands in the wrong place."""
        kind = statement.kind if isinstance(statement, Broken) else type(statement)
        before = set(self._seen)
        self._seen.add(kind)
        if Closing in before:
            return Issue(1, "text after the end of the graph: a file holds one graph")
        if kind is Header:
            return Issue(1, "a second graph starts here: a file holds one") if before else None
        if Header not in before:
            self._seen.add(Header)
            return Issue(1, "expected graph @name(%x: tensor<...>) { before anything else")
        if Returning in before and kind is not Closing:
            return Issue(1, "a statement after return, which ends the graph")
        return None

    def missing(self) -> list[Issue]:
        """Return what the text lacks at its end."""
        if Header not in self._seen:
            return [Issue(1, "there is no graph: expected graph @name(%x: tensor<...>) {")]
        wanted = {
            Returning: "the graph has no outputs: expected return %y",
            Closing: "the graph does not end: expected }",
        }
        return [Issue(1, text) for kind, text in wanted.items() if kind not in self._seen]
