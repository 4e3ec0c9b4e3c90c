"""Updates on every kind of chip, cut; and on chips with one bad sector, not cut.

An id of ``ota-chips`` is a chip (erased value, programming, write unit, order, what a cut erase and
a torn unit leave) and one of 40 places in the update, others for each chip. An id of ``ota-cells``
is a defect, a sector, the operation since which it is bad, and whether it recovers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from npuabi.errors import AbiError, ErrorCode
from npuabi.progress import Progress
from npuabi.sections import SECTOR_BYTES
from npufw.flash.layout import Slot
from npufw.flash.nor import WRITE_UNITS, BadCell, Cut, Defect, EraseCut, FlashModel, Tear
from npufw.flash.update import update
from tools.campaigns.base import Campaign, Tally
from tools.campaigns.ota_harness import (
    after_cut,
    bench,
    cut_update,
    operations_of_update,
    spread,
    tally,
    verifier,
)

__all__ = ["CELLS", "CHIPS", "chips"]

_FEW = 4
_PLACES = 40
_STAGES = 48
_FLASH_ERRORS = {
    ErrorCode.FLASH_PROGRAM,
    ErrorCode.FLASH_ERASE,
    ErrorCode.FLASH_READ,
    ErrorCode.FLASH_VERIFY,
}


@cache
def chips() -> tuple[FlashModel, ...]:
    """Return every kind of chip."""
    kinds = itertools.product(
        (0xFF, 0x00), (False, True), WRITE_UNITS, (True, False), EraseCut, Tear
    )
    return tuple(
        FlashModel(
            erased=erased, overwrite=over, write_unit=unit, in_order=order, erase_cut=left,
            tear=tear, seed=seed,
        )
        for seed, (erased, over, unit, order, left, tear) in enumerate(kinds)
    )  # fmt: skip


def run_chips(ids: Sequence[int], progress: Progress) -> Tally:
    """Cut an update on one chip at one place, boot three times, compare."""
    looker = verifier()

    def trial(identity: int) -> str:
        place, number = spread(identity, (_PLACES, len(chips())))
        model = chips()[number]
        plain = FlashModel(
            erased=model.erased, write_unit=model.write_unit, overwrite=model.overwrite
        )
        rig = replace(bench(_FEW, plain), model=model)
        count = len(operations_of_update(_FEW, plain))
        operation = 1 + (place * count + number * 7) // _PLACES % count
        device = cut_update(rig, Cut(operation, number % model.write_unit), looker)
        story = after_cut(device, (rig.old, rig.new), looker)
        return story and f"{model.text}, cut in operation {operation}: {story}"

    return tally(ids, trial, progress, CHIPS.name)


def run_cells(ids: Sequence[int], progress: Progress) -> Tally:
    """Update with one bad sector: a flash error or success, and a model boots afterwards."""
    looker, model = verifier(), FlashModel(write_unit=64)
    rig, count = bench(_FEW, model), len(operations_of_update(_FEW, model))
    ends = {"updated": 0, "refused": 0}

    def trial(identity: int) -> str:
        stage, sector, defect, once = spread(identity, (_STAGES, 1 + 2 * rig.sectors, 5, 2))
        cell = BadCell(
            defect=list(Defect)[defect],
            sector=sector,
            since=stage * count // _STAGES,
            once=bool(once),
        )
        device = rig.device()
        device.flash.bad = (cell,)
        refused = False
        try:
            updated = update(device, looker, rig.make_new)
        except AbiError as error:
            if error.code not in _FLASH_ERRORS:
                return f"{cell}: the update ended with {error}"
            refused = True
        ends["refused" if refused else "updated"] += 1
        if refused and _hint_names_written(device.flash.data.tobytes(), Slot.A):
            return f"{cell}: the update was refused, and the hint names its slot"
        device.flash = device.flash.reboot()
        # A sector that cannot be read may take the old model or the new one with it.
        allowed = (rig.old, rig.older, rig.new) if refused else (rig.old, updated.blob, rig.new)
        story = after_cut(device, allowed, looker, worn=True)
        return story and f"{cell}: {story}"

    found = tally(ids, trial, progress, CELLS.name)
    found.figures = dict(ends)
    return found


def _hint_names_written(image: bytes, slot: Slot) -> bool:
    """Return whether the hint names the slot that the update wrote."""
    return image[8] == slot and image[:8] == b"NPUSLOT\n" and len(image) > SECTOR_BYTES


CHIPS = Campaign(
    name="ota-chips",
    title="updates cut on 840 kinds of chips, at 40 places each: old or new boots",
    short=120,
    long=33_600,
    run=run_chips,
)

CELLS = Campaign(
    name="ota-cells",
    title="updates on chips with one bad sector: an error or success, and a model boots",
    short=100,
    long=4_320,
    run=run_cells,
)
