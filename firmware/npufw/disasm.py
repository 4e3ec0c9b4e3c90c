"""The disassembler: a program as text that people read and edit, and that ``assemble`` takes.

Invariant: the text of a program that was read from a sound blob assembles to the same bytes. What
a reader of the text needs and bytes do not have stands in comments.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from enum import IntFlag
from itertools import pairwise
from typing import Any

from npuabi.container import Program, symbol_at
from npuabi.enums import Opcode, Space
from npuabi.errors import AbiError
from npuabi.records import NO_TENSOR, OpParams, TensorDescriptor, Toa
from npuabi.sections import CONTAINER_VERSION
from npuabi.target import Target
from npuabi.wire import Record
from npufw.asm_form import PARTS, Facts, Part, fields_of
from npufw.asm_lines import quoted
from npufw.asm_show import Names, clauses
from npufw.kernels.base import OPERANDS

__all__ = ["MAX_INLINE_BYTES", "as_json", "disassemble", "parameter_places"]

MAX_INLINE_BYTES = 64 << 20
"""Constants that a text holds; more go to a file."""

_WIDTH = 100
_DATA_BYTES = 32
_WORDS = 8
_TITLES = {
    "interface": "inputs and outputs",
    "state": "tensors that are kept from run to run",
    "op": "ops of the source",
    "tensor": "tensors, in the order of the table",
    "toa": "TOAs in ring order; their numbers give the order of the table",
}
_OUTPUT = OPERANDS.index("output")
_PARAMETERS = OPERANDS.index("parameters")


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
        yield from _constants(program, names, facts)


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


# --- constants --------------------------------------------------------------------------------


def _constants(program: Program, names: Names, facts: Facts) -> Iterator[str]:
    """Yield the constants, a block for each tensor, parameters as numbers."""
    titles: dict[int, list[str]] = {}
    for index, tensor in enumerate(program.tensors):
        if tensor.space is Space.CONSTANTS and tensor.base < len(program.constants):
            title = f"{names.label('tensors', index)}, {tensor.extent} bytes"
            titles.setdefault(tensor.base, []).append(title)
    numbers = parameter_places(program)
    cuts = {0, len(program.constants), *titles, *numbers, *numbers.values()}
    edges = sorted(cuts)
    for start, end in pairwise(edges):
        for title in titles.get(start, ()):
            yield f"// {start:#x}: {title}"
        raw = program.constants[start:end]
        if start in numbers and len(raw) >= OpParams.SIZE and len(raw) % 4 == 0:
            yield from _numbers(raw, names, facts)
        else:
            yield from _data(raw)


def parameter_places(program: Program) -> dict[int, int]:
    """Return where parameters lie in the constants, start to end, as DMA brings them to SRAM."""
    loaded: dict[int, TensorDescriptor] = {}
    found: dict[int, int] = {}
    for index in program.ring:
        toa = program.toas[index]
        tensors = [None if i == NO_TENSOR else program.tensors[i] for i in toa.tensors]
        output, parameters = tensors[_OUTPUT], tensors[_PARAMETERS]
        if toa.opcode is Opcode.DMA_IN and tensors[0] is not None and output is not None:
            loaded[output.base] = tensors[0]
        source = loaded.get(parameters.base) if parameters is not None else None
        if parameters is None or source is None or source.space is not Space.CONSTANTS:
            continue
        end = source.base + min(parameters.extent, source.extent)
        if end <= len(program.constants):
            found[source.base] = max(found.get(source.base, 0), end)
    return found


def _numbers(raw: bytes, names: Names, facts: Facts) -> Iterator[str]:
    head, rest = raw[: OpParams.SIZE], raw[OpParams.SIZE :]
    try:
        record = OpParams.decode(head)
    except AbiError:
        record = None
    if record is None or record.encode() != head:
        yield from _data(raw)
        return
    words = list(clauses(record, names, facts)) or ["input_zero_point 0"]
    yield "params: " + ", ".join(words)
    step = 4 * _WORDS
    for start in range(0, len(rest), step):
        part = rest[start : start + step]
        values = [
            int.from_bytes(part[i : i + 4], "little", signed=True) for i in range(0, len(part), 4)
        ]
        yield "words: " + ", ".join(map(str, values))


def _data(raw: bytes) -> Iterator[str]:
    for start in range(0, len(raw), _DATA_BYTES):
        yield f"data: {raw[start : start + _DATA_BYTES].hex()}"


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
