"""The support matrix as text, JSON and Markdown: ``npuc ops``, and the page docs/ops.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING
from typing import Any

from npuabi.markdown import cleaned, sentence, table
from npuc.ir.core import AttrField, Limit, Op, OperandField
from npuc.ir.printer import print_graph
from npuc.ops.example import graph_of
from npuc.support import COMMON_LIMITS, PRECISIONS, Support, supported

__all__ = ["as_json", "attribute_table", "details", "matrix", "ops_page"]

_HEAD = """\
# Ops

Made from the declarations in `compiler/npuc/ops` by `python -m tools.generate`; do not edit.
`npuc ops` prints the same, `npuc ops NAME` one op, `npuc ops --json` all of it for programs. An op
is the ONNX op of opset 21 of that name in snake case; `dense` and `to_layout` are ours. How a graph
is written: [ir.md](ir.md). Which bits an op gives: [numerics.md](numerics.md).

`const` has forms of its own: [ir.md](ir.md#constants). The attributes `clamp` and `inner_*` and the
operand `residual` are set by the fusing passes."""

_MEMORY = "its operand's memory"
"""What an op becomes that has no task."""


def ops_page(ops: Sequence[Support] | None = None) -> str:
    """Return the Markdown page of all ops; *ops* are they, when they are known."""
    ops = supported() if ops is None else ops
    titles = ["op", *PRECISIONS, "becomes", "what it does"]
    rows = [(f"[`{s.name}`](#{s.name})", *_cells(s), sentence(s.kind.__doc__)) for s in ops]
    parts = [
        _HEAD,
        table(titles, rows),
        "Every op obeys these limits. One that does not hold is an error at the op's line.",
        _limits(COMMON_LIMITS),
    ]
    parts += [part for support in ops for part in _op(support)]
    return "\n\n".join(parts) + "\n"


def matrix(ops: Sequence[Support]) -> Iterator[str]:
    """Yield the lines of the table that ``npuc ops`` prints."""
    rows: list[tuple[str, ...]] = [("op", *PRECISIONS, "becomes", "what it does")]
    rows += [(s.name, *_cells(s), sentence(s.kind.__doc__).replace("`", "")) for s in ops]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def details(support: Support) -> Iterator[str]:
    """Yield what ``npuc ops NAME`` prints: one op in full."""
    kind = support.kind
    yield support.name
    yield from (f"  {line}" for line in cleaned(kind.__doc__).splitlines())
    yield ""
    for precision, opcodes in support.precisions.items():
        yield f"{precision}: {', '.join(opcodes) or _MEMORY}"
    sections: tuple[tuple[str, list[Sequence[str]]], ...] = (
        ("operands", [(o.name, _presence(o), o.doc) for o in kind.OPERANDS]),
        ("attributes", [(a.name, f"{a.kind}, {_default(a)}", a.doc) for a in kind.ATTRS]),
        ("limits", [(limit.text, limit.remedy) for limit in kind.LIMITS]),
    )
    for title, rows in sections:
        if rows:
            yield from ("", title, *_aligned(rows))
    yield from ("", "example", *(f"  {line}" for line in _examples(kind)))


def as_json(ops: Iterable[Support]) -> dict[str, Any]:
    """Return what ``npuc ops --json`` prints."""
    return {"schema": 1, "precisions": list(PRECISIONS), "ops": [_op_json(s) for s in ops]}


def attribute_table(kind: type[Op]) -> str:
    """Return the Markdown table of an op's or task's attributes."""
    rows = [(f"`{a.name}`", a.kind, _quoted(a), a.doc) for a in kind.ATTRS]
    return table(["attribute", "type", "default", "meaning"], rows)


def _cells(support: Support) -> list[str]:
    have = ["yes" if p in support.precisions else "no" for p in PRECISIONS]
    return [*have, ", ".join(support.opcodes) or _MEMORY]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def _op(support: Support) -> Iterator[str]:
    kind = support.kind
    yield f"## {support.name}"
    yield cleaned(kind.__doc__)
    operands = [(f"`{o.name}`", _presence(o), o.doc) for o in kind.OPERANDS]
    yield table(["operand", "given", "meaning"], operands)
    if kind.ATTRS:
        yield attribute_table(kind)
    if support.limits:
        yield _limits(support.limits)
    example = "\n".join(_examples(kind))
    if example:
        yield f"```\n{example}\n```"


def _limits(rows: Iterable[Limit]) -> str:
    return table(["limit", "what helps"], [(limit.text, limit.remedy) for limit in rows])


def _presence(field: OperandField) -> str:
    return "one or more" if field.variadic else "optional" if field.optional else "always"


def _default(field: AttrField) -> str:
    if field.default is MISSING:
        return "must be given"
    if field.default is None:
        return "absent"
    return (
        f"default {_plain(field)!r}"
        if isinstance(field.default, str)
        else f"default {_plain(field)}"
    )


def _quoted(field: AttrField) -> str:
    if field.default is MISSING or field.default is None:
        return _default(field)
    return f'`"{field.default}"`' if isinstance(field.default, str) else f"`{_plain(field)}`"


def _plain(field: AttrField) -> Any:
    """Return a default as JSON has it; None also for one that must be given."""
    if field.default is MISSING:
        return None
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _examples(kind: type[Op]) -> list[str]:
    """Return the lines of a graph of the op's first example, as the printer has it."""
    example = next(kind.examples(), None)
    return [] if example is None else print_graph(graph_of(example), elide=16).splitlines()


def _op_json(support: Support) -> dict[str, Any]:
    kind = support.kind
    return {
        "name": support.name,
        "doc": cleaned(kind.__doc__),
        "precisions": {p: list(opcodes) for p, opcodes in support.precisions.items()},
        "operands": [{"name": o.name, "given": _presence(o), "doc": o.doc} for o in kind.OPERANDS],
        "attributes": [
            {
                "name": a.name,
                "type": a.kind,
                "required": a.default is MISSING,
                "default": _plain(a),
                "doc": a.doc,
            }
            for a in kind.ATTRS
        ],
        "limits": [{"limit": limit.text, "remedy": limit.remedy} for limit in kind.LIMITS],
        "example": "\n".join(_examples(kind)),
    }
