"""Gate 6, OTA tear: power fails while a model is updated.

Without the defence there is one slot, and the update erases it and writes the new model from its
first byte to its last. With it the update is that of flash/update.py. Both are cut at the same
places, spread over all operations of the update; what comes up behind each cut is compared, bit by
bit, with the old model and the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from npuabi.container import verify_blob
from npuabi.errors import AbiError
from npuabi.program import TABLE_MAGIC, Program
from npuabi.progress import Progress
from npuabi.sections import BLOB_MAGIC, SECTOR_BYTES
from npuabi.target import Target
from npufw.flash.layout import Device, blank_device
from npufw.flash.nor import Cut, FlashModel, NorFlash, PowerCut
from npufw.flash.slots import Trust, Verifier
from npufw.flash.update import blobs_of, boot_device, update
from npufw.gates.base import Gate, Shown, Subject

__all__ = ["GATE", "in_place", "outcomes"]

_SPREAD, _LAST = 120, 40
"""Cuts over the whole update, and at its last operations, where the switch is."""

_MODEL = FlashModel(write_unit=64)


@dataclass
class _Counts:
    """What came up behind cuts."""

    old: int = 0
    new: int = 0
    dead: int = 0
    mixed: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.old + self.new + self.dead + self.mixed

    def count(self, found: bytes | None, old: bytes, new: bytes) -> None:
        """Count what was found; None is nothing."""
        if found is None:
            self.dead += 1
        elif found == old:
            self.old += 1
        elif found == new:
            self.new += 1
        else:
            self.mixed += 1


def in_place(flash: NorFlash, blob: bytes) -> None:
    """Erase the only slot and write *blob* from its first byte on."""
    for sector in range(len(blob) // SECTOR_BYTES):
        flash.erase(sector)
    flash.program(0, blob)


def outcomes(program: Program, target: Target, cuts: int, progress: Progress) -> dict[str, _Counts]:
    """Return what comes up behind *cuts* cuts and some more: ``single``, ``trusting``, ``two``.

    The single slot is read by a loader that checks every CRC, and by one that looks for the magic
    words only.
    """
    old = blobs_of(program)
    flipped = bytes(byte ^ 1 for byte in program.constants)
    new = blobs_of(replace(program, constants=flipped))
    found = {name: _Counts() for name in ("single", "trusting", "two")}
    _single(old(1), new(2), target, cuts, found["single"], found["trusting"])
    progress("update gate", 1, 2)
    _two(cache(old), cache(new), target, cuts, found["two"])
    progress("update gate", 2, 2)
    return found


def _places(operations: int, cuts: int) -> list[Cut]:
    spread = [1 + number * operations // cuts for number in range(cuts)]
    last = range(max(1, operations - _LAST + 1), operations + 1)
    return [Cut(place, number % _MODEL.write_unit) for number, place in enumerate([*spread, *last])]


def _single(
    old: bytes, new: bytes, target: Target, cuts: int, careful: _Counts, trusting: _Counts
) -> None:
    start = NorFlash.blank(len(old), _MODEL)
    start.program(0, old)
    whole = start.reboot()
    in_place(whole, new)
    for cut in _places(whole.operations, cuts):
        flash = start.reboot()
        flash.cut = cut
        with suppress(PowerCut):
            in_place(flash, new)
        raw = flash.data.tobytes()
        careful.count(raw if _verifies(raw, target) else None, old, new)
        named = raw.startswith(BLOB_MAGIC) and TABLE_MAGIC in raw
        trusting.count(raw if named else None, old, new)


def _verifies(raw: bytes, target: Target) -> bool:
    try:
        verify_blob(raw, target=target)
    except AbiError:
        return False
    return True


def _two(
    old: Callable[[int], bytes],
    new: Callable[[int], bytes],
    target: Target,
    cuts: int,
    counts: _Counts,
) -> None:
    verifier = Verifier(Trust(target=target))
    start = blank_device(len(old(1)) // SECTOR_BYTES, _MODEL)
    update(start, verifier, old)
    whole = Device(start.flash.reboot())
    update(whole, verifier, new)
    for cut in _places(whole.flash.operations, cuts):
        device = Device(start.flash.reboot())
        device.flash.cut = cut
        with suppress(PowerCut):
            update(device, verifier, new)
        device.flash = device.flash.reboot()
        try:
            found = boot_device(device, verifier).blob
        except AbiError:
            counts.count(None, old(1), new(2))
        else:
            counts.count(found, old(1), new(2))


def _show(subject: Subject, progress: Progress) -> Shown:
    image = subject.image
    found = outcomes(image.program, image.target, _SPREAD, progress)
    single, trusting, two = found["single"], found["trusting"], found["two"]
    size = len(subject.raw)
    return Shown(
        undefended={
            "cuts": single.total,
            "no_model_boots": single.dead,
            "mixture_run_if_only_magic_is_checked": trusting.mixed,
        },
        defended={
            "cuts": two.total,
            "no_model_boots": two.dead,
            "mixture_boots": two.mixed,
            "old_boots": two.old,
            "new_boots": two.new,
        },
        surcharge={"flash_bytes": size + SECTOR_BYTES, "run_cycles": 0},
        passed=single.dead > 0 and trusting.mixed > 0 and two.dead == two.mixed == 0,
    )


GATE = Gate(
    number=6,
    name="OTA tear",
    fault="power is cut while a model is updated",
    defence="two slots with a redundant table each: write the spare, verify, switch by generation",
    show=_show,
)
