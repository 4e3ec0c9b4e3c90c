"""The disassembler: a program as text that people read and edit, and that ``assemble`` takes.

Invariant: the text of a program that was read from a sound blob assembles to the same bytes. What
a reader of the text needs and bytes do not have stands in comments.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from enum import IntFlag
from typing import Any

from npuabi.container import Program, symbol_at
from npuabi.records import NO_TENSOR, Toa
from npuabi.sections import CONTAINER_VERSION
from npuabi.target import Target
from npuabi.wire import Record
from npufw.asm_form import PARTS, Facts, Part, fields_of
from npufw.asm_lines import quoted
from npufw.asm_show import Names, clauses
from npufw.disasm_constants import constant_lines

__all__ = ["MAX_INLINE_BYTES", "as_json", "disassemble"]

MAX_INLINE_BYTES = 64 << 20
"""Constants that a text holds; more go to a file."""

_WIDTH = 100
_TITLES = {
    "interface": "inputs and outputs",
    "signature": "who answers for the program; an edited one has to be signed again",
    "state": "tensors that are kept from run to run",
    "band": "timing that a band of temperatures adds, in cycles of the units and in taps",
    "op": "ops of the source",
    "tensor": "tensors, in the order of the table",
    "toa": "TOAs in ring order; their numbers give the order of the table",
}


def disassemble(program: Program, target: Target, constants_file: str = "") -> Iterator[str]:
    """Yield the lines of the text; constants are named as a file's where one is given."""
    names, facts = Names(program), Facts.of(program, target)
    yield "// A blob as text; npufw asm makes the blob. What fields mean: docs/abi.md."
    yield f"blob: container_version {CONTAINER_VERSION}"
    for part in PARTS.values():
        if not part.many:
            (record,) = part.of(program)
            yield from _wrapped(part.keyword, clauses(record, names, facts))
    yield from _symbols(program)
    for part in PARTS.values():
        if part.many and part.of(program):
            yield from ("", f"// {_TITLES.get(part.keyword, part.name)}")
            yield from _statements(part, program, names, facts)
    yield from ("", f"// constants, {len(program.constants)} bytes")
    if constants_file:
        yield f"constants: file {quoted(constants_file)}, bytes {len(program.constants)}"
    else:
        yield from constant_lines(program, names, facts)


def _wrapped(keyword: str, words: Iterable[str]) -> Iterator[str]:
    """Yield statements of one record, as few as their width allows."""
    line = ""
    for word in words:
        longer = f"{line}, {word}" if line else f"{keyword}: {word}"
        if line and len(longer) > _WIDTH:
            yield line
            longer = f"{keyword}: {word}"
        line = longer
    if line:
        yield line


def _symbols(program: Program) -> Iterator[str]:
    """Yield the names, unless their order is that in which the records use them."""
    used = dict.fromkeys(["", *_used_names(program)])
    if program.symbols != b"".join(name.encode() + b"\0" for name in used):
        listed = [raw.decode() for raw in program.symbols[1:-1].split(b"\0")]
        yield from _wrapped("names", map(quoted, listed))


def _used_names(program: Program) -> Iterator[str]:
    for part in PARTS.values():
        places = [n for n, wire in part.kind.FIELDS.items() if wire.points == "symbols"]
        for record in part.of(program):
            yield from (symbol_at(program.symbols, getattr(record, place)) for place in places)


def _statements(part: Part, program: Program, names: Names, facts: Facts) -> Iterator[str]:
    records = part.of(program)
    order = program.ring if part.kind is Toa else range(len(records))
    for index in order:
        record = records[index]
        words = ", ".join(clauses(record, names, facts, names.left_out(part, record)))
        if part.kind is Toa:
            yield f"{part.keyword} {index}: {words}  // {_origin(program, record)}"
        elif part.labelled:
            yield f"{part.keyword} {names.label(part.name, index)}: {words}"
        else:
            yield f"{part.keyword}: {words}"


def _origin(program: Program, toa: Toa) -> str:
    source = program.sources[toa.op]
    kind, file = (symbol_at(program.symbols, at) for at in (source.kind, source.file))
    return f"{kind or 'op'} at {file}:{source.line}:{source.column}"


# --- JSON -------------------------------------------------------------------------------------


def as_json(program: Program, constants_file: str = "") -> dict[str, Any]:
    """Return the program for JSON; constants are base64 unless a file holds them."""
    parts: dict[str, Any] = {}
    for part in PARTS.values():
        records = [_fields(record, program) for record in part.of(program)]
        parts[part.name] = records if part.many else records[0]
    constants = base64.b64encode(program.constants).decode() if not constants_file else None
    return {
        "schema": 1,
        "container_version": CONTAINER_VERSION,
        **parts,
        "ring": list(program.ring),
        "symbols": [raw.decode() for raw in program.symbols[:-1].split(b"\0")],
        "constant_bytes": len(program.constants),
        "constants": constants,
        "constants_file": constants_file or None,
    }


def _fields(record: Record, program: Program) -> dict[str, Any]:
    return {
        name: _plain(getattr(record, name), wire.enum, wire.points, program)
        for name, wire in fields_of(type(record)).items()
    }


def _plain(value: Any, enum: Any, points: str, program: Program) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if enum is not None and issubclass(enum, IntFlag):
        return [str(member.name).lower() for member in enum if member & value]
    if enum is not None:
        return str(value.name).lower()
    if points == "symbols":
        return symbol_at(program.symbols, value)
    if isinstance(value, tuple):
        return [_plain(item, None, points, program) for item in value]
    return None if points == "tensors" and value == NO_TENSOR else value
