"""Where things lie in flash, and the one-time bits beside it.

    sector 0            hint: which slot was written last; 32 bytes, only a hint
    sectors 1 .. S      slot A: a whole blob, as npuc writes it but for its generation
    sectors S+1 .. 2S   slot B
    beside the array    one-time bits, 64 bytes: they go from 0 to 1 and never back

Invariant: offsets follow from the number of sectors alone; an image file is these bytes in this
order, and its length says how long a slot is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from npuabi.errors import AbiError, ErrorCode
from npuabi.sections import MAX_BLOB_BYTES, SECTOR_BYTES
from npuabi.wire import Record, chars, crc32, enum8, record, reserved, u32
from npufw.errors import FirmwareError
from npufw.flash.nor import CLEAN, FlashModel, NorFlash

__all__ = [
    "HINT_MAGIC",
    "MAX_SLOT_SECTORS",
    "ONE_TIME_BYTES",
    "Device",
    "Hint",
    "OneTimeBits",
    "Slot",
    "blank_device",
    "device_of_image",
    "image_of_device",
]

HINT_MAGIC = b"NPUSLOT\n"
ONE_TIME_BYTES = 64
MAX_SLOT_SECTORS = MAX_BLOB_BYTES // SECTOR_BYTES
_HINT_SECTORS = 1
_READS = 3


class Slot(IntEnum):
    """One of the two places of a model."""

    A = 1
    B = 2

    @property
    def other(self) -> Slot:
        """The other one."""
        return Slot.B if self is Slot.A else Slot.A


@record(size=32)
class Hint(Record):
    """Which slot was written last. Nothing but the choice between equals depends on it."""

    magic: bytes = chars(8, "NPUSLOT then a line feed")
    slot: Slot = enum8(Slot, "the slot that was written last")
    pad0: bytes = reserved(3)
    generation: int = u32("generation of the model in it")
    pad1: bytes = reserved(12)
    crc: int = crc32("CRC-32 of bytes 0..27")


@dataclass
class OneTimeBits:
    """Fuses: bits that are blown from 0 to 1 and never back; they hold the anti-rollback counter.

    The counter is the number of the highest blown bit, from 1, so that a fuse below it that is not
    read lowers nothing.
    """

    bits: int = 0

    @property
    def counter(self) -> int:
        """The lowest security version that the device takes."""
        return self.bits.bit_length()

    def raise_to(self, version: int) -> None:
        """Raise the counter; it is never lowered. Raises FirmwareError SECURITY_VERSION."""
        if version > 8 * ONE_TIME_BYTES:
            detail = f"the counter has {8 * ONE_TIME_BYTES} bits, got version {version}"
            raise FirmwareError(ErrorCode.SECURITY_VERSION, detail, remedy="sign a lower version")
        self.bits |= (1 << version) - 1


@dataclass
class Device:
    """A flash chip laid out for two slots, and the one-time bits."""

    flash: NorFlash
    one_time: OneTimeBits = field(default_factory=OneTimeBits)

    @property
    def slot_sectors(self) -> int:
        """Sectors of a slot."""
        return (len(self.flash) // SECTOR_BYTES - _HINT_SECTORS) // 2

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        return self.slot_sectors * SECTOR_BYTES

    def first_sector(self, slot: Slot) -> int:
        """Return the first sector of a slot."""
        return _HINT_SECTORS + (slot - 1) * self.slot_sectors

    def offset(self, slot: Slot) -> int:
        """Return the first byte of a slot."""
        return self.first_sector(slot) * SECTOR_BYTES

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes, asked for three times at most. Raises FirmwareError FLASH_READ."""
        for _ in range(_READS - 1):
            try:
                return self.flash.read(offset, size)
            except FirmwareError:
                continue
        return self.flash.read(offset, size)

    def hint(self) -> Slot | None:
        """Return the slot that the hint names, None where it cannot be read or is rubbish."""
        try:
            found = Hint.decode(self.read(0, Hint.SIZE))
        except AbiError:
            return None
        return found.slot if found.magic == HINT_MAGIC else None


def blank_device(slot_sectors: int, model: FlashModel = CLEAN) -> Device:
    """Return an erased device whose slots have so many sectors."""
    if not 1 <= slot_sectors <= MAX_SLOT_SECTORS:
        raise ValueError(f"a slot has 1 to {MAX_SLOT_SECTORS} sectors, got {slot_sectors}")
    return Device(NorFlash.blank((_HINT_SECTORS + 2 * slot_sectors) * SECTOR_BYTES, model))


def image_of_device(device: Device) -> bytes:
    """Return the image: the flash array, then the one-time bits."""
    return device.flash.data.tobytes() + device.one_time.bits.to_bytes(ONE_TIME_BYTES, "little")


def device_of_image(raw: bytes, model: FlashModel = CLEAN) -> Device:
    """Return the device that an image describes. Raises FirmwareError FLASH_IMAGE."""
    array = len(raw) - ONE_TIME_BYTES
    sectors, rest = divmod(array, SECTOR_BYTES)
    if rest or sectors < _HINT_SECTORS + 2 or (sectors - _HINT_SECTORS) % 2:
        least = (_HINT_SECTORS + 2) * SECTOR_BYTES
        detail = (
            f"{len(raw)} bytes; an image has {least} and any number of times {2 * SECTOR_BYTES}"
            f" for the slots, and {ONE_TIME_BYTES} of one-time bits"
        )
        raise FirmwareError(ErrorCode.FLASH_IMAGE, detail)
    cells = np.frombuffer(raw[:array], np.uint8).copy()
    return Device(NorFlash(cells, model), OneTimeBits(int.from_bytes(raw[array:], "little")))
