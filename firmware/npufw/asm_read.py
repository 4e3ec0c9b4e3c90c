"""The values of clauses, from the words of a line: the reading half of asm_form.py's form.

Invariant: a value that does not fit its field is a Fault at its column; numbers are bounded before
they are made.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from enum import IntFlag
from typing import Any

import numpy as np

from npuabi.enums import Unit
from npuabi.records import NO_TENSOR, Toa
from npuabi.wire import Field, Record
from npufw.asm_lines import Fault, Label, Line
from npufw.kernels.base import OPERANDS

__all__ = ["close_to", "read", "real"]


def read(line: Line, kind: type[Record], name: str) -> Any:
    """Take the value of the clause *name* from *line*.

    What points at a record or a name is given as a Label or str. Raises Fault.
    """
    if kind is Toa and name == "wait":
        return _read_wait(line)
    if kind is Toa and name in OPERANDS:
        return _read_number(line, name, Toa.FIELDS["tensors"])
    wire = kind.FIELDS[name]
    if wire.role == "chars":
        return _read_chars(line, name, wire)
    if wire.enum is not None and issubclass(wire.enum, IntFlag):
        return _read_flags(line, name, wire.enum)
    if wire.enum is not None:
        return _read_member(line, name, wire.enum)
    return _read_array(line, name, wire) if wire.count > 1 else _read_number(line, name, wire)


def close_to(word: str, known: Sequence[str]) -> str:
    """Return what is said of a word that is none of the *known* ones."""
    close = difflib.get_close_matches(word[:64], known, 1)
    hint = f"did you mean {close[0]}; " if close else ""
    return f"{hint}there are {', '.join(known)}"


def _read_wait(line: Line) -> tuple[Unit, int]:
    unit = _read_member(line, "wait", Unit)
    return unit, _read_number(line, f"wait {unit.name.lower()}", Toa.FIELDS["waits"])


def _read_chars(line: Line, name: str, wire: Field) -> bytes:
    token = line.take("string", f"a string for {name}")
    raw = token.label().name.encode()
    if len(raw) > wire.count:
        raise Fault(token.column, f"{name} has at most {wire.count} bytes, got {len(raw)}")
    return raw


def _read_flags(line: Line, name: str, enum: type[IntFlag]) -> IntFlag:
    flags = enum(0)
    while True:
        if line.token.kind != "word" or line.token.text != "none":
            flags |= _read_member(line, name, enum)
        else:
            line.take("word", "")
        if not line.accept("|"):
            return flags


def _read_member(line: Line, name: str, enum: Any) -> Any:
    known = [str(member.name).lower() for member in enum]
    token = line.take("word", f"a word for {name}, such as {known[0]}")
    if token.text not in known:
        raise Fault(token.column, f"unknown {name} {token}: {close_to(token.text, known)}")
    return enum[token.text.upper()]


def _read_array(line: Line, name: str, wire: Field) -> tuple[Any, ...]:
    column = line.token.column
    line.mark("[", f"{wire.count} numbers in brackets for {name}")
    values: list[Any] = []
    while len(values) < wire.count and (not values or line.accept(",")):
        values.append(_read_number(line, name, wire))
    if len(values) < wire.count and not line.accept("]"):
        raise line.unexpected("',' or ']'")
    if len(values) < wire.count:
        raise Fault(column, f"{name} has {wire.count} numbers, got {len(values)}")
    line.mark("]", f"']' behind the {wire.count} numbers of {name}")
    return tuple(values)


def _read_number(line: Line, name: str, wire: Field) -> Any:
    if wire.points and not (wire.points == "symbols" and line.token.kind == "number"):
        return _read_pointer(line, name, wire)
    if wire.ctype == "float":
        return real(line, name)
    token = line.take("number", f"a number for {name}")
    whole = token.text.lower().replace("-", "", 1)
    if not (whole.isdigit() or whole.startswith("0x")):
        raise Fault(token.column, f"{name} is a whole number, got {token}")
    bounds = np.iinfo(wire.numpy)
    value = int(token.text, 0 if "0x" in whole else 10) if len(whole) <= 20 else None
    if value is None or not bounds.min <= value <= bounds.max:
        text = f"{name} is a number from {bounds.min} to {bounds.max}, got {token}"
        raise Fault(token.column, text)
    return value


def real(line: Line, name: str) -> float:
    """Take a number that float32 holds from *line*."""
    token = line.take("number", f"a number for {name}")
    if "0x" in token.text:
        raise Fault(token.column, f"{name} is a decimal number, got {token}")
    with np.errstate(over="ignore"):
        value = float(np.float64(token.text).astype(np.float32))
    if math.isinf(value) and "inf" not in token.text:
        raise Fault(token.column, f"{name} is too large for float32: {token}; write inf for none")
    return value


def _read_pointer(line: Line, name: str, wire: Field) -> Label | str | int:
    if wire.points == "symbols":
        return line.take("string", f"a string for {name}").label().name
    if wire.points == "tensors" and line.token.text == "none":
        line.take("word", "")
        return NO_TENSOR
    return line.take("label", f"a label such as %x for {name}").label()
