"""How the records of a blob read as text, and the text as records.

    tensor %w: base 0x40, dims [1, 8, 3, 3], dtype i8

A statement is a keyword, a label where others point at it, and a clause for each field. Keywords
come from Program, fields from the records' declarations: a new one needs nothing here. A Toa's
operands and waits have clauses of their own, ``input %x`` and ``wait mac 3``.

Invariant: a field may be left out where it has its usual value: that of ``_USUAL``, or what
``_COMPUTED`` makes of the others. asm_show.py writes clauses, asm_read.py reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

from npuabi.bands import BASE_BAND, limits, sample_taps
from npuabi.enums import Mode, Space, ToaFlag, Unit
from npuabi.geometry import Geometry
from npuabi.policy import GEOMETRY, GEOMETRY_SINCE, own_abi
from npuabi.program import TABLE_MAGIC, TABLE_VALID, Program
from npuabi.records import (
    NO_TENSOR,
    BandSet,
    FileHeader,
    FloatParams,
    OpParams,
    TableHeader,
    TensorDescriptor,
    Toa,
)
from npuabi.target import Target
from npuabi.wire import Field, Record
from npufw.kernels.base import OPERANDS

__all__ = [
    "HEADS",
    "HEX",
    "PARTS",
    "WAITS",
    "WAIT_FLAGS",
    "Facts",
    "Part",
    "clause_names",
    "fields_of",
    "fixed",
    "settled",
    "usual",
]


@dataclass(frozen=True, slots=True)
class Part:
    """A field of Program that holds records: one, or many of a kind."""

    name: str
    kind: type[Record]
    many: bool

    @property
    def keyword(self) -> str:
        """The word that begins a statement."""
        return "op" if self.name == "sources" else self.name.removesuffix("s")

    @property
    def labelled(self) -> bool:
        """Whether records of other parts point at these, and so name them."""
        return self.name in _POINTED

    def of(self, program: Program) -> tuple[Any, ...]:
        """Return the part's records in *program*."""
        found = getattr(program, self.name)
        return tuple(found) if self.many else (found,)


def _parts() -> Iterator[Part]:
    for name, hint in get_type_hints(Program).items():
        many = get_origin(hint) is tuple
        kind = get_args(hint)[0] if many else hint
        if issubclass(kind, Record):
            yield Part(name, kind, many)


_POINTED = ("sources", "tensors")
_LAST = {"sources": 1, "tensors": 2, "toas": 3}
PARTS = {
    part.keyword: part for part in sorted(_parts(), key=lambda p: (p.many, _LAST.get(p.name, 0)))
}
"""The parts of a program that are records, by keyword, in the order of a text."""

HEADS: dict[str, type[Record]] = {"params": OpParams, "float_params": FloatParams}
"""The heads of parameters tensors, by the keyword of the statement that gives one."""

WAIT_FLAGS = {unit: ToaFlag[f"WAIT_{unit.name}"] for unit in Unit}
"""The flag that says whether a TOA's wait for each unit holds; waits stand in this order."""

WAITS = ToaFlag(sum(WAIT_FLAGS.values()))
"""All of these flags."""

_WRITTEN_LAST = {
    FileHeader: ("magic", "section_count", "header_bytes", "length"),
    TableHeader: ("table_crc",),
}
"""Fields that are made when the blob is written, whatever a program says."""

HEX = ("base", "features", "output_crc", "schema_hash", "target_hash", "valid")
"""Fields that are written in base 16."""

_FLAT = {"kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1), "pads": (0, 0, 0, 0)}

_USUAL: dict[type[Record], dict[str, Any]] = {
    TableHeader: {"magic": TABLE_MAGIC, "valid": TABLE_VALID, "features": 0, "table_crc": 0},
    TensorDescriptor: {"alignment_log2": 4, "lane": 0, "zero_point": 0, "scale": 0.0},
    Toa: {
        "mode": Mode.NONE,
        "flags": ToaFlag(0),
        "tensors": (NO_TENSOR,) * len(OPERANDS),
        "waits": (0,) * len(WAIT_FLAGS),
        **_FLAT,
        "groups": 1,
        "clamp": (-128, 127),
        "setup_cycles": 2,
    },
    **{
        kind: {
            name: 0.0 if wire.ctype == "float" else 0
            for name, wire in kind.FIELDS.items()
            if wire.role == "value"
        }
        for kind in HEADS.values()
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What computed fields come from besides the other fields of their record."""

    target: Target
    tensors: int
    toas: int
    constant_bytes: int

    @classmethod
    def of(cls, program: Program, target: Target) -> Facts:
        """Return the facts of a program."""
        return cls(
            target=target,
            tensors=len(program.tensors),
            toas=len(program.toas),
            constant_bytes=len(program.constants),
        )


_Compute = Callable[[Mapping[str, Any], Facts], Any]


def _schema(header: Mapping[str, Any], _: Facts) -> int:
    return own_abi().hash_of((header["abi_major"], header["abi_minor"]))


def _geometry(name: str) -> _Compute:
    """Return how a number of the target is computed; older versions do not state it."""

    def compute(header: Mapping[str, Any], facts: Facts) -> int:
        stated = (header["abi_major"], header["abi_minor"]) >= GEOMETRY_SINCE
        return int(getattr(facts.target, name)) if stated else 0

    return compute


def _bank(tensor: Mapping[str, Any], facts: Facts) -> int:
    return int(tensor["base"]) // facts.target.bank_bytes if tensor["space"] is Space.SRAM else 0


def _extent(tensor: Mapping[str, Any], _: Facts) -> int:
    return Geometry(*(tensor[n] for n in ("dims", "strides", "dtype", "layout", "lane"))).extent


def _sample(toa: Mapping[str, Any], _: Facts) -> int:
    return sample_taps(limits(BASE_BAND)[1]) if toa["unit"] is Unit.MAC else 0


_COMPUTED: dict[type[Record], dict[str, _Compute]] = {
    TableHeader: {
        "schema_hash": _schema,
        "target_hash": lambda _, facts: facts.target.hash,
        **{name: _geometry(name) for name in GEOMETRY},
        "tensor_count": lambda _, facts: facts.tensors,
        "toa_count": lambda _, facts: facts.toas,
        "constant_bytes": lambda _, facts: facts.constant_bytes,
    },
    TensorDescriptor: {"bank": _bank, "extent": _extent},
    Toa: {"sample_taps": _sample},
    BandSet: {
        "low": lambda band, _: limits(band["band"])[0],
        "high": lambda band, _: limits(band["band"])[1],
    },
}


def fields_of(kind: type[Record]) -> dict[str, Field]:
    """Return the fields of a record that a text may state, in wire order."""
    last = _WRITTEN_LAST.get(kind, ())
    return {
        name: wire
        for name, wire in kind.FIELDS.items()
        if wire.role in ("value", "chars") and name not in last
    }


def fixed(kind: type[Record]) -> Mapping[str, Any]:
    """Return the usual values that are the same for every record of a kind."""
    return _USUAL.get(kind, {})


def usual(kind: type[Record], given: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Return the fields of a record that may be left out beside the *given* ones."""
    values = {**fixed(kind), **given}
    computed = _COMPUTED.get(kind, {})
    return {**fixed(kind), **{name: made(values, facts) for name, made in computed.items()}}


def settled(kind: type[Record]) -> set[str]:
    """Return the names of the fields that may be left out."""
    return {*_USUAL.get(kind, ()), *_COMPUTED.get(kind, ())}


def clause_names(kind: type[Record]) -> list[str]:
    """Return the words that may begin a clause of a record."""
    names = list(fields_of(kind))
    if kind is Toa:
        at = names.index("tensors")
        names[at : at + 1] = [*OPERANDS, "wait"]
    return names
