"""What the commands ``npufw flash ...`` do, apart from options and printing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from npuabi.commands import Refusal
from npuabi.container import read_blob
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import FileHeader, TableHeader
from npuabi.render import hexdump
from npuabi.sections import SECTOR_BYTES, split_sections
from npuabi.signature import key_hash, security_version, verify_signature
from npuabi.target import load_target
from npuabi.wire import Record
from npufw.boot import boot
from npufw.dies import read_fuse_file
from npufw.efuse import key_hash as fused_key
from npufw.errors import FirmwareError
from npufw.flash.imagefile import read_image, write_image
from npufw.flash.layout import Device, Hint, OneTimeBits, Slot, blank_device
from npufw.flash.nor import BadCell, Cut, Defect, FlashModel, PowerCut
from npufw.flash.slots import Content, Trust, Verifier, check_trust
from npufw.flash.update import (
    Booted,
    Survey,
    blobs_of,
    boot_device,
    roll_back,
    survey,
    update,
)

__all__ = ["Bench", "commit", "dump", "init", "parse_cut", "parse_fault", "status"]


def parse_cut(text: str) -> Cut:
    """Return a cut from ``N`` or ``N:BYTES``. Raises ValueError."""
    operation, _, octets = text.partition(":")
    cut = Cut(int(operation), int(octets or "0"))
    if cut.operation < 1 or not 0 <= cut.octets < 256:
        raise ValueError(text)
    return cut


def parse_fault(text: str) -> BadCell:
    """Return a bad sector from ``KIND@SECTOR`` or ``KIND@SECTOR:OPERATION``. Raises ValueError."""
    kind, _, place = text.partition("@")
    sector, _, since = place.partition(":")
    cell = BadCell(
        defect=Defect(kind.replace("-", "_")), sector=int(sector), since=int(since or "0")
    )
    if cell.since < 0:
        raise ValueError(text)
    return cell


def init(path: str, slot_kib: int, *, force: bool) -> dict[str, Any]:
    """Write an image that is erased everywhere. Raises OSError where there is a file already."""
    if not force and os.path.lexists(path):
        raise OSError(errno.EEXIST, f"{os.strerror(errno.EEXIST)}; --force erases it", path)
    device = blank_device(-(-slot_kib * 1024 // SECTOR_BYTES))
    write_image(path, device)
    return {"image": path, "slot_bytes": device.slot_bytes, "bytes": len(device.flash)}


@dataclass
class Bench:
    """An image file, the chip that it stands for and the device's target."""

    path: str
    target: str
    write_unit: int = 256
    cut: Cut | None = None
    faults: tuple[BadCell, ...] = ()
    die: str | None = None

    def __post_init__(self) -> None:
        self.device = read_image(self.path, FlashModel(write_unit=self.write_unit))
        for cell in self.faults:
            if not 0 <= cell.sector < len(self.device.flash) // SECTOR_BYTES:
                count = len(self.device.flash) // SECTOR_BYTES
                raise Refusal(f"error: there is no sector {cell.sector}: the chip has {count}")
        self.device.flash.cut = self.cut
        self.device.flash.bad = self.faults
        self.trust = Trust(
            target=load_target(self.target),
            key_hash=None if self.die is None else fused_key(read_fuse_file(self.die)),
            minimum_version=self.device.one_time.counter,
        )
        self.verifier = Verifier(self.trust)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was asked for and did not happen."""
        done = self.device.flash.operations
        if self.cut is None or done >= self.cut.operation:
            return ()
        return (f"note: power was not cut: there were {done} operations",)

    def survey(self) -> Survey:
        """Look at the device and change nothing."""
        return survey(self.device, self.verifier)

    def write(self, raw: bytes) -> Booted:
        """Update the device to the blob *raw*, which the firmware must take."""
        image = boot(raw, self.trust.target)
        check_trust(read_blob(raw, target=self.trust.target), self.trust)
        return self._change(lambda: update(self.device, self.verifier, blobs_of(image.program)))

    def boot(self) -> Booted:
        """Boot the device."""
        return self._change(lambda: boot_device(self.device, self.verifier))

    def roll_back(self) -> Booted:
        """Go back to the older model."""
        return self._change(lambda: roll_back(self.device, self.verifier))

    def _change(self, action: Callable[[], Booted]) -> Booted:
        """Do something to the device; keep the image as it is then, also behind a cut."""
        before = self.device.flash.data.copy()
        try:
            return action()
        except PowerCut as cut:
            text = f"error: power was cut {cut}: {self.path} is as the cut left it"
            raise Refusal(text) from cut
        finally:
            if (before != self.device.flash.data).any():
                write_image(self.path, self.device)


def commit(bench: Bench) -> dict[str, Any]:
    """Raise the anti-rollback counter to the security version of the model that boots.

    Raises FirmwareError: SECURITY_VERSION beyond the counter's bits, BAD_SIGNATURE.
    """
    chosen = bench.survey().chosen
    if chosen is None or chosen.blob is None:
        raise FirmwareError(ErrorCode.NO_BOOTABLE_SLOT, "nothing to commit")
    program = read_blob(chosen.blob, target=bench.trust.target).program
    for signature in program.signatures:
        verify_signature(program, key_hash(bytes(signature.public_key)))
    before = bench.device.one_time.counter
    made = OneTimeBits(bench.device.one_time.bits)
    made.raise_to(max(before, security_version(program)))
    bench.device.one_time = made
    if made.counter != before:
        write_image(bench.path, bench.device)
    return {"slot": chosen.slot.name, "counter": made.counter, "before": before}


# --- what there is ------------------------------------------------------------------------------


def status(bench: Bench) -> dict[str, Any]:
    """Return what is on the device, for JSON."""
    found, device = bench.survey(), bench.device
    chosen = found.chosen
    return {
        "image": bench.path,
        "slot_bytes": device.slot_bytes,
        "hint": None if found.hint is None else found.hint.name,
        "counter": device.one_time.counter,
        "slots": {content.slot.name: _slot(content) for content in (found.a, found.b)},
        "boots": None if chosen is None else chosen.slot.name,
        "why": found.rule.why,
    }


def _slot(content: Content) -> dict[str, Any]:
    if content.blob is None:
        state = "empty" if content.empty else "bad"
        return {"state": state, "why": None if content.empty else str(content.why)}
    heal = "one copy of the table is bad" if content.bad else "both copies are damaged"
    damaged = content.bad is not None or content.merged
    return {
        "state": "damaged" if damaged else "valid",
        "why": heal if damaged else None,
        "generation": content.generation,
        "bytes": len(content.blob),
    }


def dump(device: Device) -> Iterator[str]:
    """Yield what lies where, headers byte by byte."""
    yield f"{0:08x}  hint, {SECTOR_BYTES:,} bytes"
    yield from _record(device, Hint, 0)
    for slot in Slot:
        start = device.offset(slot)
        yield f"{start:08x}  slot {slot.name}, {device.slot_bytes:,} bytes"
        if not (yield from _record(device, FileHeader, start)):
            continue
        for kind, offset in _tables(device, slot):
            yield f"{start + offset:08x}  {kind.name} of slot {slot.name}"
            yield from _record(device, TableHeader, start + offset)
    end = len(device.flash)
    counter = device.one_time.counter
    yield f"{end:08x}  one-time bits, anti-rollback counter {counter}"


def _record(device: Device, kind: type[Record], offset: int) -> Generator[str, None, bool]:
    """Yield a record's bytes with their meaning; return whether it is one."""
    raw = device.flash.read(offset, kind.SIZE)
    try:
        yield hexdump(kind.decode(raw), offset)
    except AbiError as error:
        erased = raw == bytes([device.flash.model.erased]) * len(raw)
        yield f"{offset:08x}  {'erased' if erased else f'no {kind.__name__}: {error}'}"
        return False
    return True


def _tables(device: Device, slot: Slot) -> Iterator[tuple[Section, int]]:
    start = device.offset(slot)
    length = FileHeader.decode(device.flash.read(start, FileHeader.SIZE)).length
    try:
        parts = split_sections(device.flash.read(start, min(length, device.slot_bytes)))
    except AbiError:
        return
    for kind in (Section.TABLE_A, Section.TABLE_B):
        yield kind, parts[kind].offset
