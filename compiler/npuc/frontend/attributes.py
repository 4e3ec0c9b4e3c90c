"""Attributes of graph text against their declarations: name, kind, presence, once each.

Invariant: what comes out holds a Python value of the declared kind: int, float, bool, str, or a
tuple of ints or floats.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from npuc.frontend.syntax import Attribute, Issue, Literal, Word
from npuc.ir.core import AttrField, AttrKind, Op

__all__ = ["GRAPH_ATTRIBUTES", "build_attributes", "build_graph_attributes"]

GRAPH_ATTRIBUTES = (
    AttrField(
        name="calibration",
        doc="npz of inputs to calibrate with, in the graph's folder",
        kind=AttrKind.STRING,
        default=None,
    ),
)
"""What ``attributes {...}`` of a graph may hold."""

_KINDS = {
    AttrKind.INT: "a whole number",
    AttrKind.FLOAT: "a number",
    AttrKind.BOOL: "true or false",
    AttrKind.STRING: "a string",
    AttrKind.INTS: "a list of whole numbers",
    AttrKind.FLOATS: "a list of numbers",
}


def build_attributes(name: Word, given: Sequence[Attribute], cls: type[Op]) -> dict[str, Any]:
    """Return the attributes of an op, without defaults; raises Issue."""
    built = _build(given, cls.ATTRS, cls.NAME)
    for field in cls.ATTRS:
        if field.default is MISSING and field.name not in built:
            kind = _KINDS[field.kind]
            raise Issue(name.column, f"{cls.NAME} needs its attribute {field.name}, {kind}")
    return built


def build_graph_attributes(given: Sequence[Attribute]) -> dict[str, Any]:
    """Return the attributes of a graph; raises Issue."""
    return _build(given, GRAPH_ATTRIBUTES, "graph")


def _build(given: Sequence[Attribute], fields: Sequence[AttrField], owner: str) -> dict[str, Any]:
    known = {f.name: f for f in fields}
    built: dict[str, Any] = {}
    for item in given:
        name = item.name.text
        if name not in known:
            raise Issue(item.name.column, _unknown(name, list(known), owner))
        if name in built:
            raise Issue(item.name.column, f"attribute {name} is given twice")
        built[name] = _value(name, item.literal, known[name].kind)
    return built


def _unknown(name: str, known: list[str], owner: str) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f", did you mean {close[0]}" if close else ""
    return f"{owner} has no attribute {name!r}{hint}: it has {', '.join(known) or 'none'}"


def _value(name: str, literal: Literal, kind: str) -> Any:
    value = literal.value
    if kind in (AttrKind.INTS, AttrKind.FLOATS):
        fits = isinstance(value, tuple) and all(_fits(v, kind[:-1]) for v in value)
    else:
        fits = _fits(value, kind)
    if not fits:
        raise Issue(literal.column, f"{name} is {_KINDS[kind]}, got {_shown(value)}")
    if kind == AttrKind.FLOATS and isinstance(value, tuple):
        return tuple(map(float, value))
    return float(value) if kind == AttrKind.FLOAT and isinstance(value, int) else value


def _fits(value: object, kind: str) -> bool:
    wanted: dict[str, tuple[type, ...]] = {
        AttrKind.INT: (int,),
        AttrKind.FLOAT: (int, float),
        AttrKind.BOOL: (bool,),
        AttrKind.STRING: (str,),
    }
    return type(value) in wanted[kind]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else repr(value)
