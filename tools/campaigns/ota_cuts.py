"""Cuts at every byte and every erase of an update of 64 descriptors, and pairs of cuts.

An id of ``ota-cuts`` is an operation of the update on a chip that programs single bytes; behind
those come the erases again, cut so that they leave the old bytes, and so that they leave erased
ones. An id of ``ota-pairs`` is a pair: a cut in the update of a model of four descriptors, and a
cut in the recovery that the reboot begins; an id whose recovery ends earlier is no trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from npuabi.progress import Progress
from npufw.flash.nor import CLEAN, Cut, EraseCut, PowerCut
from npufw.flash.update import boot_device
from tools.campaigns.base import Campaign, Tally
from tools.campaigns.ota_harness import (
    after_cut,
    bench,
    cut_update,
    operations_of_update,
    tally,
    verifier,
)

__all__ = ["CUTS", "PAIRS", "points_of"]

_DESCRIPTORS, _FEW = 64, 4
_LAST = 300
"""Operations at the end of an update: headers and hint. Behind cuts before, nothing is healed."""

_LONGEST_RECOVERY = 500


@cache
def points_of(descriptors: int) -> tuple[tuple[int, EraseCut], ...]:
    """Return all cuts of an update: the operation, and what a cut erase leaves."""
    kinds = operations_of_update(descriptors)
    every = [(number, EraseCut.RANDOM) for number in range(1, len(kinds) + 1)]
    erases = [number for number, kind in enumerate(kinds, start=1) if kind == "erase"]
    others = [(number, left) for left in (EraseCut.OLD, EraseCut.ERASED) for number in erases]
    return (*every, *others)


def run_cuts(ids: Sequence[int], progress: Progress) -> Tally:
    """Cut, boot three times, compare."""
    looker, points = verifier(), points_of(_DESCRIPTORS)
    counts = {"old": 0, "new": 0}

    def trial(identity: int) -> str:
        operation, left = points[identity]
        rig = bench(_DESCRIPTORS, replace(CLEAN, erase_cut=left))
        device = cut_update(rig, Cut(operation), looker)
        story = after_cut(device, (rig.old, rig.new), looker)
        if not story:
            counts["new" if boot_device(device, looker).blob == rig.new else "old"] += 1
        return story

    found = tally(ids, trial, progress, CUTS.name)
    found.figures = {"booted the old model": counts["old"], "booted the new model": counts["new"]}
    return found


def run_pairs(ids: Sequence[int], progress: Progress) -> Tally:
    """Cut the update, cut the recovery, boot three times, compare."""
    looker, rig = verifier(), bench(_FEW)
    last = len(operations_of_update(_FEW))

    @cache
    def once(first: int) -> bytes:
        return cut_update(rig, Cut(first), looker).flash.data.tobytes()

    def trial(identity: int) -> str | None:
        back, second = divmod(identity, _LONGEST_RECOVERY)
        first, second = last - back, second + 1
        device = replace(rig, image=once(first)).device()
        device.flash.cut = Cut(second)
        try:
            boot_device(device, looker)
        except PowerCut:
            device.flash = device.flash.reboot()
        else:
            return None
        if second == _LONGEST_RECOVERY:
            return "a recovery is longer than was thought"
        story = after_cut(device, (rig.old, rig.new), looker)
        return story and f"cuts in operation {first} and {second}: {story}"

    return tally(ids, trial, progress, PAIRS.name)


CUTS = Campaign(
    name="ota-cuts",
    title="an update of 64 descriptors, cut at every byte and erase: old or new boots",
    short=120,
    long=8_863,
    run=run_cuts,
)

PAIRS = Campaign(
    name="ota-pairs",
    title="a cut in the update of 4 descriptors and one in the recovery: old or new boots",
    short=150,
    long=_LAST * _LONGEST_RECOVERY,
    run=run_pairs,
)
