"""What is in a slot: nothing, a model that verifies, or something else, and why.

Invariant: no byte beyond the slot is read, and a length is bounded before it is used; whatever is
in flash, a slot is looked at in time that is linear in the slot. A sector that cannot be read is a
slot that does not verify.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from npuabi.container import Loaded, Verified, read_blob, verify_blob
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import FileHeader
from npuabi.signature import security_version, verify_signature
from npuabi.target import Target
from npufw.errors import FirmwareError
from npufw.flash.decisions import CopyState, Pair, pair_state
from npufw.flash.layout import Device, Slot

__all__ = ["Content", "Table", "Trust", "Verifier", "check_trust"]

T = TypeVar("T")

_TABLES = (Section.TABLE_A, Section.TABLE_B)


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a device takes: a target, and where its fuses say so one key and no old version."""

    target: Target
    key_hash: bytes | None = None
    minimum_version: int = 0


class Table(NamedTuple):
    """Where a copy of the table lies in its slot, padding included."""

    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a slot holds. ``blob`` is whole, healed in memory; None where nothing verifies.

    ``bad`` is the copy of the table whose twin can heal it in flash; ``merged`` says that the
    table came from records of both; ``why`` is the refusal.
    """

    slot: Slot
    blob: bytes | None = None
    generation: int = 0
    bad: Table | None = None
    merged: bool = False
    why: AbiError | None = None

    @property
    def verifies(self) -> bool:
        """Whether the slot may boot."""
        return self.blob is not None

    @property
    def empty(self) -> bool:
        """Whether the slot was erased and not written since."""
        return self.why is not None and self.why.code is ErrorCode.SLOT_EMPTY


@dataclass
class Verifier:
    """Looks at slots for one device; what it found of equal bytes is kept, within bounds."""

    trust: Trust
    keep: int = 4
    _kept: dict[bytes, Content] = field(default_factory=dict)
    _taken: dict[bytes, AbiError | None] = field(default_factory=dict)

    def look(self, device: Device, slot: Slot) -> Content:
        """Return what *slot* of *device* holds; never raises for what is in flash."""
        try:
            raw = _stated_bytes(device, slot)
        except AbiError as error:
            return Content(slot=slot, why=error)
        found = self._kept.pop(raw, None)
        if found is None:
            found = self._judge(raw, slot)
        self._remember(self._kept, raw, found)
        return replace(found, slot=slot)

    def _judge(self, raw: bytes, slot: Slot) -> Content:
        try:
            found = _content(raw, verify_blob(raw, target=self.trust.target), slot)
        except AbiError as error:
            return Content(slot=slot, why=error)
        refusal = self._refusal(found.blob or b"")
        return found if refusal is None else Content(slot=slot, why=refusal)

    def _refusal(self, blob: bytes) -> AbiError | None:
        """Return why a blob whose CRCs hold is not taken: its records, its signature, its age."""
        if blob in self._taken:
            return self._taken[blob]
        refusal = None
        try:
            check_trust(read_blob(blob, target=self.trust.target), self.trust)
        except AbiError as error:
            refusal = error
        self._remember(self._taken, blob, refusal)
        return refusal

    def _remember(self, kept: dict[bytes, T], key: bytes, value: T) -> None:
        kept[key] = value
        while len(kept) > self.keep:
            del kept[next(iter(kept))]


def check_trust(loaded: Loaded, trust: Trust) -> None:
    """Refuse a program that the fuses do not let pass. Raises AbiError, codes from 0x78."""
    if trust.key_hash is not None:
        verify_signature(loaded.program, trust.key_hash, minimum_version=trust.minimum_version)
        return
    version = security_version(loaded.program)
    if version < trust.minimum_version:
        detail = f"the model has version {version}, the counter stands at {trust.minimum_version}"
        raise FirmwareError(ErrorCode.SECURITY_VERSION, detail)


def _stated_bytes(device: Device, slot: Slot) -> bytes:
    """Return as many bytes of a slot as its file header says, once that holds."""
    flash, start = device.flash, device.offset(slot)
    head = device.read(start, FileHeader.SIZE)
    if head == bytes([flash.model.erased]) * FileHeader.SIZE:
        raise FirmwareError(ErrorCode.SLOT_EMPTY, f"slot {slot.name} is erased")
    header = FileHeader.decode(head)
    if not FileHeader.SIZE <= header.length <= device.slot_bytes:
        detail = f"slot {slot.name} has {device.slot_bytes} bytes, its header says {header.length}"
        raise FirmwareError(ErrorCode.SLOT_SIZE, detail)
    return device.read(start, header.length)


def _content(raw: bytes, found: Verified, slot: Slot) -> Content:
    states = [CopyState.WHOLE if copy.whole else CopyState.BAD for copy in found.copies]
    need = pair_state(*states).result
    parts = [found.parts[kind] for kind in _TABLES]
    tables = [Table(part.offset, len(part.span)) for part in parts]
    return Content(
        slot=slot,
        blob=_healed(raw, found.table, tables),
        generation=found.header.generation,
        bad={Pair.HEAL_A: tables[0], Pair.HEAL_B: tables[1]}.get(need),
        merged=need is Pair.MERGE,
    )


def _healed(raw: bytes, table: bytes, tables: Sequence[Table]) -> bytes:
    made = bytearray(raw)
    for place in tables:
        made[place.offset : place.offset + place.size] = table
    return bytes(made)
