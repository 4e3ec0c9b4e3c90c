"""Updates, boots and rollbacks of a device with two slots.

    update    1 erase the spare slot   2 program it, but for the headers of the two table copies
              3 read it back           4 program the header of copy A, then that of copy B
              5 read it back           6 write the hint
    boot      1 look at both slots     2 the decision table chooses
              3 heal a bad copy of the table from its twin: erase, program, read back, header last
              4 write the hint, where it is wrong
    rollback  1 the other slot verifies   2 erase the first sector of this one   3 write the hint

Between any two steps the chip is synced. Invariants: the slot that boots is never erased by an
update; a slot becomes the newest by the header of copy A and by nothing before; a copy is rewritten
only while its twin is whole. So after a cut anywhere the device boots the old model or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from npuabi.container import Program, write_blob
from npuabi.enums import Section
from npuabi.errors import ErrorCode
from npuabi.records import TableHeader
from npuabi.sections import SECTOR_BYTES, split_sections
from npufw.errors import FirmwareError
from npufw.flash.decisions import BootRule, Choice, boot_choice, newer_of
from npufw.flash.layout import HINT_MAGIC, Device, Hint, Slot
from npufw.flash.slots import Content, Verifier

__all__ = ["Booted", "Survey", "blobs_of", "boot_device", "roll_back", "survey", "update"]

_TABLES = (Section.TABLE_A, Section.TABLE_B)
_GENERATIONS = 1 << 32


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What is in both slots, what the hint says, and the row that decides."""

    a: Content
    b: Content
    hint: Slot | None
    rule: BootRule

    @property
    def chosen(self) -> Content | None:
        """The slot that boots, None where neither does."""
        return {Choice.A: self.a, Choice.B: self.b, Choice.NONE: None}[self.rule.result]

    def of(self, slot: Slot) -> Content:
        """Return what is in a slot."""
        return self.a if slot is Slot.A else self.b


@dataclass(frozen=True, kw_only=True)
class Booted:
    """The model that boots, its slot, the row that chose it; what was healed or could not be."""

    blob: bytes
    slot: Slot
    generation: int
    rule: BootRule
    events: tuple[str, ...] = field(default=())


def survey(device: Device, verifier: Verifier) -> Survey:
    """Look at everything and change nothing."""
    a, b = (verifier.look(device, slot) for slot in Slot)
    hint = device.hint()
    newer = newer_of(a.generation, b.generation)
    return Survey(a=a, b=b, hint=hint, rule=boot_choice(a.verifies, b.verifies, newer, hint))


# --- boot ---------------------------------------------------------------------------------------


def boot_device(device: Device, verifier: Verifier) -> Booted:
    """Choose a model and heal what is bad of it in flash.

    What cannot be healed is an event, and the model boots from memory. Raises FirmwareError
    NO_BOOTABLE_SLOT, PowerCut.
    """
    found = survey(device, verifier)
    chosen = found.chosen
    if chosen is None or chosen.blob is None:
        raise FirmwareError(ErrorCode.NO_BOOTABLE_SLOT, _reasons(found))
    events = [*_heal(device, chosen), *_point(device, chosen.slot, chosen.generation, found.hint)]
    return Booted(
        blob=chosen.blob,
        slot=chosen.slot,
        generation=chosen.generation,
        rule=found.rule,
        events=tuple(events),
    )


def _reasons(found: Survey) -> str:
    reasons = []
    for content in (found.a, found.b):
        why = content.why.code if content.why is not None else ErrorCode.SLOT_EMPTY
        reasons.append(f"slot {content.slot.name}: {why.name.lower()}, {why.text}")
    return "; ".join(reasons)


def _heal(device: Device, content: Content) -> Iterator[str]:
    """Rewrite the bad copy of a table from the blob that its twin made whole."""
    name = f"slot {content.slot.name}"
    if content.merged:
        yield f"{name}: both copies of the table are damaged; write the model again"
    if content.bad is None or content.blob is None:
        return
    offset, size = content.bad
    copy = "first" if offset < _second_table(content.blob) else "second"
    try:
        _rewrite(device, device.offset(content.slot) + offset, content.blob[offset:][:size])
    except FirmwareError as error:
        yield f"{name}: the {copy} copy of the table cannot be healed: {error}"
    else:
        yield f"{name}: the {copy} copy of the table was healed from its twin"


def _second_table(blob: bytes) -> int:
    return split_sections(blob)[Section.TABLE_B].offset


def _rewrite(device: Device, start: int, span: bytes) -> None:
    """Write a copy of the table anew, its header last."""
    _erase(device, start, len(span))
    head = _units(device, TableHeader.SIZE)
    _program(device, start + head, span[head:])
    _compare(device, start + head, span[head:])
    _program(device, start, span[:head])
    _compare(device, start, span[:head])


def _point(device: Device, slot: Slot, generation: int, hint: Slot | None) -> Iterator[str]:
    """Let the hint name *slot*; where it cannot, nothing depends on it."""
    if hint is slot:
        return
    raw = Hint(magic=HINT_MAGIC, slot=slot, generation=generation).encode()
    raw = raw.ljust(_units(device, len(raw)), bytes([device.flash.model.erased]))
    try:
        _erase(device, 0, SECTOR_BYTES)
        _program(device, 0, raw)
        _compare(device, 0, raw)
    except FirmwareError as error:
        yield f"the hint cannot be written: {error}"


# --- update -------------------------------------------------------------------------------------


def update(device: Device, verifier: Verifier, blob_of: Callable[[int], bytes]) -> Booted:
    """Write a model to the spare slot, as the newest; return it as it will boot.

    *blob_of* gives the blob for a generation; the firmware takes it. Raises FirmwareError:
    SLOT_SIZE and the codes of flash; what booted before then still does. Raises PowerCut.
    """
    found = survey(device, verifier)
    active = found.chosen
    slot = Slot.A if active is None else active.slot.other
    generation = 1 if active is None else (active.generation + 1) % _GENERATIONS
    blob = blob_of(generation)
    if len(blob) > device.slot_bytes:
        detail = f"{len(blob)} bytes, slot {slot.name} has {device.slot_bytes}"
        raise FirmwareError(ErrorCode.SLOT_SIZE, detail)
    _write_slot(device, slot, blob)
    written = verifier.look(device, slot)
    if written.blob != blob:
        _withdraw(device, slot)
        raise FirmwareError(ErrorCode.FLASH_VERIFY, f"slot {slot.name} does not verify")
    events = _point(device, slot, generation, found.hint)
    return Booted(
        blob=blob,
        slot=slot,
        generation=generation,
        rule=survey(device, verifier).rule,
        events=tuple(events),
    )


def blobs_of(program: Program) -> Callable[[int], bytes]:
    """Return what gives the bytes that a slot holds of *program*, whatever the generation."""

    def blob_of(generation: int) -> bytes:
        header = replace(program.header, generation=generation)
        return write_blob(replace(program, header=header))

    return blob_of


def _write_slot(device: Device, slot: Slot, blob: bytes) -> None:
    """Program a slot, the headers of its table last. On an error behind one it is withdrawn."""
    start, head = device.offset(slot), _units(device, TableHeader.SIZE)
    heads = [split_sections(blob)[kind].offset for kind in _TABLES]
    erased = bytes([device.flash.model.erased])
    bare = bytearray(blob)
    for at in heads:
        bare[at : at + head] = erased * head
    _erase(device, start, len(blob))
    _program(device, start, bytes(bare))
    _compare(device, start, bytes(bare))
    try:
        for at in heads:
            _program(device, start + at, blob[at : at + head])
            _compare(device, start + at, blob[at : at + head])
    except FirmwareError:
        _withdraw(device, slot)
        raise


def _withdraw(device: Device, slot: Slot) -> None:
    """Make a slot unbootable, so that an update that failed leaves what was there before."""
    device.flash.erase(device.first_sector(slot))
    device.flash.sync()


# --- rollback -----------------------------------------------------------------------------------


def roll_back(device: Device, verifier: Verifier) -> Booted:
    """Give up the newest model for the older one, which must verify; return that.

    Raises FirmwareError: NO_ROLLBACK, NO_BOOTABLE_SLOT, the codes of flash. Raises PowerCut.
    """
    found = survey(device, verifier)
    active = found.chosen
    if active is None:
        raise FirmwareError(ErrorCode.NO_BOOTABLE_SLOT, _reasons(found))
    other = found.of(active.slot.other)
    if not other.verifies:
        why = "" if other.why is None else other.why.code.text
        raise FirmwareError(ErrorCode.NO_ROLLBACK, f"slot {other.slot.name}: {why}")
    _withdraw(device, active.slot)
    if verifier.look(device, active.slot).verifies:
        detail = f"sector {device.first_sector(active.slot)} holds what it held before"
        raise FirmwareError(ErrorCode.FLASH_ERASE, detail)
    return boot_device(device, verifier)


# --- flash, step by step ------------------------------------------------------------------------


def _units(device: Device, size: int) -> int:
    """Return *size* in whole write units."""
    unit = device.flash.model.write_unit
    return -(-size // unit) * unit


def _erase(device: Device, start: int, size: int) -> None:
    for sector in range(start // SECTOR_BYTES, -(-(start + size) // SECTOR_BYTES)):
        device.flash.erase(sector)
        device.flash.sync()


def _program(device: Device, start: int, data: bytes) -> None:
    """Program all units but those that are erased anyway."""
    for offset, piece in _runs(data, device.flash.model.write_unit, device.flash.model.erased):
        device.flash.program(start + offset, piece)
    device.flash.sync()


def _runs(data: bytes, unit: int, erased: int) -> Iterator[tuple[int, bytes]]:
    """Yield the stretches of units that hold something else than *erased* bytes."""
    units = np.frombuffer(data, np.uint8).reshape(-1, unit)
    wanted = np.concatenate(([False], (units != erased).any(axis=1), [False]))
    edges = np.flatnonzero(wanted[1:] != wanted[:-1]) * unit
    for first, end in edges.reshape(-1, 2).tolist():
        yield first, data[first:end]


def _compare(device: Device, start: int, data: bytes) -> None:
    found = device.read(start, len(data))
    if found == data:
        return
    at = next(i for i, (one, other) in enumerate(zip(found, data, strict=True)) if one != other)
    detail = f"byte {start + at} is {found[at]:#04x}, written was {data[at]:#04x}"
    raise FirmwareError(ErrorCode.FLASH_VERIFY, detail)
