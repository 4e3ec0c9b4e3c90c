"""Graph to text: the inverse of the text front end.

Invariant: ``print_graph(parse(text))`` is a fixed point: it parses back to an equal graph, and that
prints the same. Types are always printed, attributes only where they differ from the default.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from npuc.ir.const import Const, Data, Elided, File, Random, Splat
from npuc.ir.core import Array, AttrField, Graph, Op, State, Value
from npuc.ir.state import initial_of

__all__ = ["DENSE_ELEMENTS", "checksum", "given_attributes", "print_graph", "shortest"]

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*")
DENSE_ELEMENTS = 64
"""Constants up to this size are printed as numbers, larger ones as hex."""


def print_graph(graph: Graph, *, elide: int | None = None) -> str:
    """Return the text of *graph*.

    Unnamed values are numbered and equal names told apart; the graph is not changed. Written-out
    constants of more than *elide* elements are replaced by their checksum: such a text parses, but
    cannot be compiled.
    """
    names = _names(graph)
    lines = [_header(graph, names)]
    lines += [f"  {_state(state, names, elide)}" for state in graph.states]
    lines += [f"  {_operation(op, names, elide)}" for op in graph.ops]
    for state, value in zip(graph.states, graph.updates, strict=True):
        lines.append(f"  update {_string(state.name)}, {names[value]}")
    lines += [f"  return {', '.join(names[v] for v in graph.returned)}", "}", ""]
    return "\n".join(lines)


def _names(graph: Graph) -> dict[Value, str]:
    """Return a unique printed name, mark included, for each value."""
    values = list(_values(graph))
    taken = {v.name for v in values}
    used: set[str] = set()
    names: dict[Value, str] = {}
    counters: dict[str, int] = {}
    for value in values:
        name = value.name
        while not name or name in used or (name != value.name and name in taken):
            count = counters.get(value.name, 0)
            counters[value.name] = count + 1
            name = f"{value.name}_{count + 1}" if value.name else str(count)
        used.add(name)
        names[value] = _marked("%", name)
    return names


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.arguments
    for op in graph.ops:
        yield from op.results


def _marked(mark: str, name: str) -> str:
    return mark + (name if _PLAIN.fullmatch(name) else _string(name))


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _header(graph: Graph, names: dict[Value, str]) -> str:
    arguments = ", ".join(f"{names[v]}: {v.type}" for v in graph.inputs)
    pairs = ", ".join(f"{k} = {_literal(v)}" for k, v in graph.attributes.items())
    attributes = f" attributes {{{pairs}}}" if pairs else ""
    return f"graph {_marked('@', graph.name)}({arguments}){attributes} {{"


def _state(state: State, names: dict[Value, str], elide: int | None) -> str:
    value, data = state.argument, _data(initial_of(state), elide)
    return f"{names[value]} = state {_string(state.name)} init = {data} : {value.type}"


def _operation(op: Op, names: dict[Value, str], elide: int | None) -> str:
    results = ", ".join(names[v] for v in op.results)
    left = f"{results} = " if results else ""
    types = ", ".join(str(v.type) for v in op.results)
    right = f" : {types}" if types else ""
    if isinstance(op, Const):
        return f"{left}const {_data(op, elide)}{right}"
    return f"{left}{op.NAME}({_operands(op, names)}){_attributes(op)}{right}"


def _operands(op: Op, names: dict[Value, str]) -> str:
    operands = op.operands
    while operands and operands[-1] is None:
        operands.pop()
    return ", ".join("none" if v is None else names[v] for v in operands)


def _attributes(op: Op) -> str:
    pairs = [f"{a.name} = {_literal(op.attributes[a.name])}" for a in given_attributes(op)]
    return f" {{{', '.join(pairs)}}}" if pairs else ""


def given_attributes(op: Op) -> Iterator[AttrField]:
    """Yield the attributes that have a value other than their default."""
    for field in op.ATTRS:
        value = op.attributes[field.name]
        if value is not None and _frozen(value) != _frozen(field.default):
            yield field


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else value


def _literal(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    raise TypeError(f"an attribute cannot hold {value!r}")


def _data(op: Const, elide: int | None) -> str:
    printer = _PRINTERS.get(type(op.data))
    return printer(op.data) if printer else _numbers(op, elide)


def _splat(data: Splat) -> str:
    return f"splat({_literal(data.value)})"


def _random(data: Random) -> str:
    mean, std = _literal(float(data.mean)), _literal(float(data.std))
    return f"random(seed = {data.seed}, mean = {mean}, std = {std})"


def _file(data: File) -> str:
    key = "" if data.key is None else f", {_string(data.key)}"
    return f"file({_string(data.name)}{key})"


def _elided(data: Elided) -> str:
    return f"elided({_string(data.digest)})"


_PRINTERS: dict[type[Data], Callable[[Any], str]] = {
    Elided: _elided,
    File: _file,
    Random: _random,
    Splat: _splat,
}


def _numbers(op: Const, elide: int | None) -> str:
    array = op.value()
    if elide is not None and array.size > elide:
        return f"elided({_string(checksum(array))})"
    if 0 < array.size <= DENSE_ELEMENTS:
        return f"dense({_nested(array)})"
    return f'hex("{array.tobytes().hex()}")'


def checksum(array: Array) -> str:
    """Return what stands for the numbers of an elided constant."""
    return f"crc32:{zlib.crc32(array.tobytes()):08x}"


def _nested(array: Array) -> str:
    if array.ndim == 0:
        return shortest(array.dtype.type(array))
    return f"[{', '.join(map(_nested, array))}]"


def shortest(value: np.generic) -> str:
    """Return the shortest decimal that reads back, through float64, as the same number."""
    exact = repr(value.item())
    if not isinstance(value, np.floating):
        return exact
    short = repr(float(str(value)))
    return short if type(value)(float(short)) == value else exact
