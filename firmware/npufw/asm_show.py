"""Records as clauses of text: the writing half of asm_form.py's form.

Invariant: ``read`` of asm_read.py gives back the value that is written here, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntFlag
from types import MappingProxyType
from typing import Any

import numpy as np

from npuabi.container import symbol_at
from npuabi.program import Program
from npuabi.records import NO_TENSOR, Toa
from npuabi.wire import Field, Record
from npufw.asm_form import HEX, PARTS, WAIT_FLAGS, WAITS, Facts, Part, fields_of, usual
from npufw.asm_lines import Label, quoted
from npufw.kernels.base import OPERANDS

__all__ = ["Names", "clauses", "shown"]


class Names:
    """What a program's records are called in the text."""

    def __init__(self, program: Program) -> None:
        self._symbols = program.symbols
        self._first = _first_places(program.symbols)
        self._labels = {
            part.name: self._labelled(part.of(program)) for part in PARTS.values() if part.labelled
        }

    def pointed(self, part: str, value: int) -> str:
        """Return what a field points at: a label, or a name in quotes.

        A name that stands earlier too is given by its offset.
        """
        if part == "symbols":
            name = symbol_at(self._symbols, value)
            return quoted(name) if self._first[name] == value else str(value)
        return "none" if value == NO_TENSOR else str(self.label(part, value))

    def label(self, part: str, index: int) -> Label:
        """Return what record *index* of a part is called."""
        return self._labels[part][index]

    def left_out(self, part: Part, record: Any) -> dict[str, Any]:
        """Return what a record's label says: the offset of its name."""
        if not part.labelled:
            return {}
        return {"symbol": self._first[symbol_at(self._symbols, record.symbol)]}

    def _labelled(self, records: Iterable[Any]) -> list[Label]:
        counts: dict[str, int] = {}
        made = []
        for record in records:
            name = symbol_at(self._symbols, record.symbol)
            number = counts[name] = counts.get(name, -1) + 1
            made.append(Label(name, number))
        return made


def _first_places(symbols: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    at = 0
    for raw in symbols[:-1].split(b"\0"):
        found.setdefault(raw.decode(), at)
        at += len(raw) + 1
    return found


def clauses(
    record: Record, names: Names, facts: Facts, left_out: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the clauses of *record*, without usual values and those that *left_out* gives."""
    kind = type(record)
    values = {name: getattr(record, name) for name in fields_of(kind)}
    spare = {**usual(kind, values, facts), **left_out}
    for name, wire in fields_of(kind).items():
        if isinstance(record, Toa) and name in _SPELT:
            yield from _SPELT[name](record, names)
        elif name not in spare or repr(values[name]) != repr(spare[name]):
            yield f"{name} {shown(name, wire, values[name], names)}"


def shown(name: str, wire: Field, value: Any, names: Names | None = None) -> str:
    """Return the text of one field's value; without *names* what points is a number."""
    if wire.role == "chars":
        return quoted(value.decode())
    if wire.enum is not None and issubclass(wire.enum, IntFlag):
        return "|".join(str(m.name).lower() for m in wire.enum if m & value) or "none"
    if wire.enum is not None:
        return str(wire.enum(value).name).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_number(name, wire, item, names) for item in value) + "]"
    return _number(name, wire, value, names)


def _number(name: str, wire: Field, value: Any, names: Names | None) -> str:
    if wire.points and names is not None:
        return names.pointed(wire.points, value)
    if wire.ctype == "float":
        return str(np.float32(value))
    return f"{value:#x}" if name in HEX else str(value)


def _plain_waits(toa: Toa) -> bool:
    """Return whether no count is kept for a wait that does not hold."""
    pairs = zip(toa.waits, WAIT_FLAGS.values(), strict=True)
    return all(toa.flags & flag or not count for count, flag in pairs)


def _flags(toa: Toa, names: Names) -> Iterator[str]:
    flags = toa.flags & ~WAITS if _plain_waits(toa) else toa.flags
    if flags:
        yield f"flags {shown('flags', Toa.FIELDS['flags'], flags, names)}"


def _operands(toa: Toa, names: Names) -> Iterator[str]:
    for word, index in zip(OPERANDS, toa.tensors, strict=True):
        if index != NO_TENSOR:
            yield f"{word} {names.pointed('tensors', index)}"


def _waits(toa: Toa, names: Names) -> Iterator[str]:
    if not _plain_waits(toa):
        yield f"waits {shown('waits', Toa.FIELDS['waits'], toa.waits, names)}"
        return
    for (unit, flag), count in zip(WAIT_FLAGS.items(), toa.waits, strict=True):
        if toa.flags & flag:
            yield f"wait {unit.name.lower()} {count}"


_SPELT: dict[str, Callable[[Toa, Names], Iterator[str]]] = {
    "flags": _flags,
    "tensors": _operands,
    "waits": _waits,
}
