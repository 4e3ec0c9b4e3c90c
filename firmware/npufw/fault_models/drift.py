"""Drift: firmware of other versions, whose records lay the fields elsewhere.

ABI 0.1 and 0.2 are real. The layouts of 0.0 and 0.3 to 0.7 are made up for the emulation: ours with
the change that DIALECTS states, each of a kind that real formats have gone through. What such
firmware makes of a blob is found by running it.

Invariant: firmware without the policy believes its own layout, whatever the blob says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.container import Loaded, read_blob
from npuabi.enums import Section
from npuabi.errors import AbiError
from npuabi.policy import Abi, own_abi
from npuabi.records import TableHeader, TensorDescriptor, Toa
from npuabi.schemas import Place, Schema, Version, own_schema, parse_schema, translated
from npuabi.sections import split_sections
from npuabi.target import Target
from npufw.boot import unchecked
from npufw.engine import Engine

__all__ = ["DIALECTS", "VERSIONS", "Fate", "device_abi", "fate", "misread", "schema_of"]


@dataclass(frozen=True, slots=True)
class Move:
    """A field of a record that stands before another one than in our layout."""

    record: str
    field: str
    before: str


@dataclass(frozen=True, slots=True)
class Inserted:
    """An opcode that was put in the middle of the enum, before *before*."""

    before: str


DIALECTS: dict[Version, Move | Inserted] = {
    (0, 0): Move("Toa", "stride", before="kernel"),
    (0, 3): Move("Toa", "dilation", before="stride"),
    (0, 4): Move("Toa", "clamp", before="pads"),
    (0, 5): Move("TensorDescriptor", "zero_point", before="bank"),
    (0, 6): Inserted("MAX_POOL"),
    (0, 7): Move("TensorDescriptor", "strides", before="dims"),
}
"""The made-up versions, and what each has changed."""

VERSIONS: tuple[Version, ...] = tuple((0, minor) for minor in range(8))


class Fate(StrEnum):
    """What became of a blob on a device: whole results, other results, or none at all."""

    RIGHT = "right"
    WRONG = "wrong"
    CRASHED = "crashed"


@cache
def schema_of(version: Version) -> Schema:
    """Return the layouts of one of VERSIONS, real or made up."""
    change = DIALECTS.get(version)
    if change is None:
        return own_abi().schemas[version]
    own = own_schema()
    if isinstance(change, Move):
        records = {**own.records, change.record: _moved(own.records[change.record], change)}
        return parse_schema(_text(replace(own, records=records)))
    limit = own.enums["Opcode"][change.before]
    opcodes = {name: n + (n >= limit) for name, n in own.enums["Opcode"].items()}
    return parse_schema(_text(replace(own, enums={**own.enums, "Opcode": opcodes})))


def _moved(places: tuple[Place, ...], move: Move) -> tuple[Place, ...]:
    taken = next(place for place in places if place.name == move.field)
    rest = [place for place in places if place is not taken]
    at = next(i for i, place in enumerate(rest) if place.name == move.before)
    offset, made = 0, []
    for place in (*rest[:at], taken, *rest[at:]):
        made.append(replace(place, offset=offset))
        offset += np.dtype(place.numpy).itemsize
    return tuple(made)


def _text(schema: Schema) -> str:
    """Return a schema's text after a change, as ``parse_schema`` reads it."""
    lines = []
    for record, places in schema.records.items():
        lines.append(f"record {record} {schema.sizes[record]}")
        lines += [f"{p.offset} {p.name} {p.ctype} {p.count} {p.role} {p.enum}" for p in places]
    for enum, members in schema.enums.items():
        lines.append(f"enum {enum}")
        lines += [f"{name} {value}" for name, value in members.items()]
    return "\n".join(lines)


def device_abi(version: Version) -> Abi:
    """Return what a device with firmware of *version* knows: every version up to its own."""
    known = {v: schema_of(v) for v in VERSIONS if v <= version and v[0] == version[0]}
    return Abi(version=version, schemas=known)


def misread(raw: bytes, schema: Schema, target: Target) -> Loaded:
    """Return what firmware without any policy takes the descriptors of *raw* for.

    It believes that they lie as in *schema*; what is no descriptor it reads as it is. Raises
    AbiError where bytes make no record at all.
    """
    loaded = read_blob(raw, target=target, abi=device_abi(VERSIONS[-1]))
    header = loaded.program.header
    kinds = schema_of(loaded.version).sections  # which parts_of knows for real versions only
    table = bytes(split_sections(raw, kinds)[Section.TABLE_A].content)[TableHeader.SIZE :]
    middle = header.tensor_count * TensorDescriptor.SIZE
    own = own_schema()
    tensors = translated(table[:middle], TensorDescriptor.__name__, schema, own)
    toas = translated(table[middle:], Toa.__name__, schema, own)
    program = replace(
        loaded.program,
        tensors=tuple(TensorDescriptor.decode_many(tensors)),
        toas=tuple(Toa.decode_many(toas)),
    )
    return Loaded(program=program, events=())


def fate(
    raw: bytes,
    version: Version,
    target: Target,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
) -> Fate:
    """Return what firmware of *version* without any policy makes of the blob *raw*."""
    try:
        image = unchecked(misread(raw, schema_of(version), target), target)
        given = Engine(image).run(inputs)
    # Descriptors that nobody has checked may do anything: that is what is shown.
    except (AbiError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
        return Fate.CRASHED
    same = all(np.array_equal(given[name], expected[name]) for name in expected)
    return Fate.RIGHT if same else Fate.WRONG
