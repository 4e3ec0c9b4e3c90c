"""The assembler: a blob's text, as ``disassemble`` writes it, to a blob.

Invariant: all mistakes of a text are found in one run, each with its place. CRCs, lengths, counts,
offsets and padding are made and not read; what the firmware refuses is refused here, at the line
of the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npuabi.container import Program, read_blob, write_blob
from npuabi.diagnostics import Diagnostic, Location, SourceError
from npuabi.enums import ToaFlag
from npuabi.errors import AbiError
from npuabi.inside import resolve_inside
from npuabi.progress import Progress, silent
from npuabi.records import NO_TENSOR, FileHeader, Toa
from npuabi.sections import CONTAINER_VERSION, MAX_BLOB_BYTES
from npuabi.target import Target, load_target, target_names
from npuabi.wire import Record
from npufw.asm_form import PARTS, WAIT_FLAGS, Facts, Part, fields_of, settled, usual
from npufw.asm_lines import Label
from npufw.asm_text import ConstantsFile, Statement, Text, parse
from npufw.boot import refusals
from npufw.kernels.base import OPERANDS

__all__ = ["Assembled", "assemble"]

_PLACE = re.compile(r"\b(tensor|TOA|interface|source|state|band)(?: tensor| \w+)?? (\d+)\b")
_KEYWORDS = {"TOA": "toa", "source": "op"}


class Assembled(NamedTuple):
    """A blob, its program, and the files that were read beside the text."""

    blob: bytes
    program: Program
    files: tuple[Path, ...]


def assemble(
    raw: bytes,
    *,
    file: str = "<text>",
    folder: Path = Path(),
    target: Target | None = None,
    checked: bool = True,
    progress: Progress = silent,
) -> Assembled:
    """Return the blob that a text states.

    *target* is the one that the text names, when it does not come with the toolchain; a file of
    constants lies in *folder*. Not *checked*, the program need not boot. *progress* is told of
    bytes. Raises SourceError.
    """
    made = _Assembler(parse(raw, file, progress), folder)
    program, device = made.program(target)
    try:
        blob = write_blob(program)
        if checked:
            read_blob(blob, target=device)
    except AbiError as error:
        raise made.located([error]) from error
    refused = list(refusals(program, device)) if checked else []
    if refused:
        raise made.located(refused)
    named = made.text.constants_file
    files = () if named is None else (folder / named.name,)
    return Assembled(blob, program, files)


@dataclass
class _Assembler:
    """One text on its way to a program; ``_index`` has the labels of each part."""

    text: Text
    folder: Path
    _symbols: dict[str, int] = field(default_factory=dict)
    _index: dict[str, dict[Label, int]] = field(default_factory=dict)

    def program(self, given: Target | None) -> tuple[Program, Target]:
        """Return the program and its target, or raise SourceError with every mistake."""
        self._check_blob()
        for part in PARTS.values():
            labels = self._labels(self.text.of(part.keyword))
            if part.labelled:
                self._index[part.name] = labels
        target = self._target(given)
        symbols = self._pack_symbols()
        constants = self._constants()
        facts = Facts(
            target=target or load_target("edge"),
            tensors=len(self.text.of("tensor")),
            toas=len(self.text.of("toa")),
            constant_bytes=len(constants),
        )
        parts = {part.name: self._records(part, facts) for part in PARTS.values()}
        if self.text.issues or target is None:
            self.text.issues.sort(key=lambda d: (d.location.line, d.location.column))
            raise SourceError(self.text.issues)
        table, ring = _in_ring(self.text.of("toa"), parts["toas"])
        values: dict[str, Any] = {
            part.name: parts[part.name] if part.many else parts[part.name][0]
            for part in PARTS.values()
        }
        values |= {"toas": table, "ring": ring, "symbols": symbols, "constants": constants}
        return Program(**values), target

    # --- what there must be -------------------------------------------------------------------

    def _check_blob(self) -> None:
        merged = self._merged("blob", FileHeader)
        version = merged.values.get("container_version", CONTAINER_VERSION)
        if version != CONTAINER_VERSION:
            text = f"container version {version}, this writes {CONTAINER_VERSION}"
            self.text.report(merged, text, "container_version")

    def _merged(self, keyword: str, kind: type[Record]) -> Statement:
        """Return all statements of a record that a blob has one of, as one."""
        found = self.text.of(keyword)
        if not found:
            made = Statement(keyword=keyword, kind=kind, line=self.text.lines, text="")
            name = next(iter(fields_of(kind)))
            self.text.report(made, f"there is no {keyword}: expected {keyword}: {name} ...")
            return made
        first = found[0]
        for other in found[1:]:
            first.broken |= other.broken
            for name in other.values:
                if name in first.values:
                    self.text.report(other, f"{name} is given twice, in line {first.line}", name)
            first.values |= other.values
        return first

    def _labels(self, statements: Sequence[Statement]) -> dict[Any, int]:
        """Return the index of each label, and let a label that is no other's give the name."""
        found: dict[Any, int] = {}
        for index, statement in enumerate(statements):
            label = statement.label
            if label is None:
                continue
            first = statements[found.setdefault(label, index)]
            if first is not statement:
                text = f"{_called(statement)} stands in line {first.line} already"
                self.text.report(statement, text)
            if isinstance(label, Label):
                statement.values.setdefault("symbol", label.name)
        return found

    def _target(self, given: Target | None) -> Target | None:
        if given is not None:
            return given
        for statement in self.text.of("header"):
            name = statement.values.get("target", b"").decode()
            if name in target_names():
                return load_target(name)
            if name:
                known = ", ".join(target_names())
                text = f"no target {name!r}: known are {known}; --target FILE gives another"
                self.text.report(statement, text, "target")
        return None

    # --- names, constants ---------------------------------------------------------------------

    def _pack_symbols(self) -> bytes:
        """Give every name its offset; return the symbols section."""
        names = ["", *(self.text.names or ()), *self._used_names()]
        listed = 1 + len(self.text.names or ())
        packed = bytearray()
        for number, name in enumerate(names):
            if name in self._symbols and number >= listed:
                continue
            self._symbols.setdefault(name, len(packed))
            packed += name.encode() + b"\0"
        return bytes(packed)

    def _used_names(self) -> Iterator[str]:
        for part in PARTS.values():
            for statement in self.text.of(part.keyword):
                for name, wire in part.kind.FIELDS.items():
                    value = statement.values.get(name)
                    if wire.points == "symbols" and isinstance(value, str):
                        yield value

    def _constants(self) -> bytes:
        named = self.text.constants_file
        if named is None:
            return bytes(self.text.constants)
        problem = "constants come from a file and stand in the text too"
        if not self.text.constants:
            try:
                return _file_bytes(self.folder, named)
            except ValueError as error:
                problem = str(error)
        place = Location(self.text.file, named.line, named.column)
        self.text.issues.append(Diagnostic(place, problem))
        return b""

    # --- records --------------------------------------------------------------------------------

    def _records(self, part: Part, facts: Facts) -> tuple[Any, ...]:
        """Return the records of a part; of a statement with a mistake there is none."""
        statements = self.text.of(part.keyword)
        if not part.many:
            statements = [self._merged(part.keyword, part.kind)]
        made = [self._record(s, facts) for s in statements]
        return tuple(record for record in made if record is not None)

    def _record(self, statement: Statement, facts: Facts) -> Record | None:
        if statement.broken:
            return None
        kind, before = statement.kind, len(self.text.issues)
        values = {n: self._resolved(statement, n, v) for n, v in statement.values.items()}
        if kind is Toa:
            self._spell_out(statement, values)
        missing = [n for n in fields_of(kind) if n not in values and n not in settled(kind)]
        if missing:
            words = ", ".join(f"{name} ({kind.FIELDS[name].doc})" for name in missing)
            self.text.report(statement, f"{_called(statement)} lacks {words}")
        if len(self.text.issues) > before:
            return None
        values = {**usual(kind, values, facts), **values}
        for name, value in values.items():
            self._check_fit(statement, name, value)
        return kind(**values)

    def _resolved(self, statement: Statement, name: str, value: Any) -> Any:
        if isinstance(value, tuple) and any(isinstance(v, Label) for v in value):
            return tuple(self._resolved(statement, name, v) for v in value)
        if isinstance(value, str):
            return self._symbols[value]
        if not isinstance(value, Label):
            return value
        wire = Toa.FIELDS["tensors"] if name in OPERANDS else statement.kind.FIELDS[name]
        found = self._index[wire.points].get(value)
        if found is None:
            keyword = _keyword(wire.points)
            self.text.report(statement, f"{name}: there is no {keyword} {value}", name)
        return 0 if found is None else found

    def _spell_out(self, statement: Statement, values: dict[str, Any]) -> None:
        """Turn the clauses of operands and waits into the fields of a Toa."""
        values["tensors"] = tuple(values.pop(word, NO_TENSOR) for word in OPERANDS)
        waits = values.pop("wait", {})
        if waits and "waits" in values:
            self.text.report(statement, "either wait or waits, not both", "waits")
        if waits:
            values["waits"] = tuple(waits.get(unit, 0) for unit in WAIT_FLAGS)
            flags = [WAIT_FLAGS[unit] for unit in waits]
            values["flags"] = ToaFlag(sum(flags)) | values.get("flags", ToaFlag(0))

    def _check_fit(self, statement: Statement, name: str, value: Any) -> None:
        wire = statement.kind.FIELDS[name]
        if wire.enum is None and wire.role == "value" and isinstance(value, int):
            bounds = np.iinfo(wire.numpy)
            if not bounds.min <= value <= bounds.max:
                text = f"{_called(statement)}: {name} comes out as {value}, which does not fit"
                self.text.report(statement, text)

    # --- refusals -------------------------------------------------------------------------------

    def located(self, errors: Sequence[AbiError]) -> SourceError:
        """Return refusals of the firmware, each at the line of the record that it names."""
        found = [self._located(error) for error in errors]
        return SourceError(sorted(found, key=lambda d: d.location.line))

    def _located(self, error: AbiError) -> Diagnostic:
        found = _PLACE.search(error.detail)
        keyword = _KEYWORDS.get(found[1], found[1]) if found else "header"
        statements, number = self.text.of(keyword), int(found[2]) if found else 0
        if found and found[1] == "TOA":
            statements = sorted(statements, key=_order)
        if number >= len(statements):
            return Diagnostic(Location(self.text.file), str(error))
        statement = statements[number]
        return Diagnostic(Location(self.text.file, statement.line, 1), str(error), statement.text)


def _file_bytes(folder: Path, named: ConstantsFile) -> bytes:
    if named.size > MAX_BLOB_BYTES:
        raise ValueError(f"a blob has at most {MAX_BLOB_BYTES} bytes, got {named.size}")
    path = resolve_inside(folder, named.name)
    size = path.stat().st_size
    if size != named.size:
        raise ValueError(f"{named.name!r} has {size} bytes, expected {named.size}")
    with path.open("rb") as stream:
        return stream.read(named.size)


def _order(statement: Statement) -> int:
    return statement.label if isinstance(statement.label, int) else 0


def _in_ring(
    statements: list[Statement], toas: tuple[Toa, ...]
) -> tuple[tuple[Toa, ...], tuple[int, ...]]:
    """Return the table, sorted by the TOAs' numbers, and the ring, in the order of the text."""
    order = sorted(range(len(toas)), key=lambda at: _order(statements[at]))
    ring = [0] * len(toas)
    for index, at in enumerate(order):
        ring[at] = index
    return tuple(toas[at] for at in order), tuple(ring)


def _keyword(name: str) -> str:
    return next(part.keyword for part in PARTS.values() if part.name == name)


def _called(statement: Statement) -> str:
    label = "" if statement.label is None else f" {statement.label}"
    return statement.keyword + label
