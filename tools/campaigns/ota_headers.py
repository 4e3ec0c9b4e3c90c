"""Headers in every state of the decision table, and the new model with any one bit flipped.

An id of ``ota-headers`` gives each of four fields of both copies' headers one of four contents: as
the update leaves it, as it was before, erased, rubbish. What boots must be what the table says. An
id of ``ota-flips`` is a bit of a copy of the table, flipped in one copy or in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from npuabi.enums import Section
from npuabi.progress import Progress
from npuabi.records import TableHeader
from npuabi.sections import split_sections
from npufw.flash.decisions import (
    Choice,
    CopyState,
    Field,
    Header,
    Newer,
    Pair,
    boot_choice,
    header_state,
    pair_state,
)
from npufw.flash.layout import Device, Slot
from npufw.flash.update import update
from tools.campaigns.base import Campaign, Tally
from tools.campaigns.ota_harness import after_cut, bench, spread, tally, verifier

__all__ = ["FLIPS", "HEADERS", "expected_choice"]

_DESCRIPTORS, _FEW = 64, 4
_FIELDS = ("magic", "valid", "generation", "crc")
_SPANS = {name: (offset, wire.size) for offset, name, wire in TableHeader.rows() if name in _FIELDS}
_TABLES = (Section.TABLE_A, Section.TABLE_B)
_RUBBISH = 0x5A
_STATES = 4 ** len(_FIELDS)


def expected_choice(a: Sequence[Field], b: Sequence[Field], hint: Slot | None) -> Choice:
    """Return what boots by the tables: slot A was being updated, slot B holds the old model."""
    whole = [
        CopyState.WHOLE if header_state(*fields).result is Header.NEW else CopyState.BAD
        for fields in (a, b)
    ]
    verifies = pair_state(*whole).result is not Pair.MERGE
    return boot_choice(verifies, True, Newer.A, hint).result


@cache
def _updated(descriptors: int) -> tuple[bytes, tuple[int, int]]:
    """Return the array behind a whole update, and the places of the new tables' headers in it."""
    rig = bench(descriptors)
    device = rig.device()
    update(device, verifier(), rig.make_new)
    base = device.offset(Slot.A)
    parts = split_sections(rig.new)
    places = [base + parts[kind].offset for kind in _TABLES]
    return device.flash.data.tobytes(), (places[0], places[1])


def _device(descriptors: int) -> Device:
    rig = bench(descriptors)
    device = rig.device()
    device.flash.data[:] = memoryview(_updated(descriptors)[0])
    return device


def _fields(number: int) -> list[Field]:
    return [list(Field)[digit] for digit in spread(number, (4,) * len(_FIELDS))]


def _set_fields(device: Device, place: int, fields: Sequence[Field], old: bytes) -> None:
    for name, state in zip(_FIELDS, fields, strict=True):
        offset, size = _SPANS[name]
        cells = device.flash.data[place + offset : place + offset + size]
        if state is Field.OLD:
            cells[:] = memoryview(old[offset : offset + size])
        elif state is not Field.NEW:
            cells[:] = device.flash.model.erased if state is Field.ERASED else _RUBBISH


def run_headers(ids: Sequence[int], progress: Progress) -> Tally:
    """Put two headers into a state, boot three times, compare with the table."""
    looker, rig = verifier(), bench(_FEW)
    places = _updated(_FEW)[1]
    start = split_sections(rig.older)[Section.TABLE_A].offset
    old = rig.older[start : start + TableHeader.SIZE]

    def trial(identity: int) -> str:
        first, second = spread(identity, (_STATES, _STATES))
        states = _fields(first), _fields(second)
        device = _device(_FEW)
        for place, fields in zip(places, states, strict=True):
            _set_fields(device, place, fields, old)
        hint = (Slot.A, Slot.B, None)[identity % 3]
        if hint is None:
            device.flash.data[:32] = _RUBBISH
        elif hint is Slot.B:
            device.flash.data[:32] = memoryview(rig.image[:32])
        wanted = expected_choice(*states, hint)
        story = after_cut(device, [rig.new if wanted is Choice.A else rig.old], looker)
        return story and f"A {states[0]}, B {states[1]}, hint {hint}: {story}"

    return tally(ids, trial, progress, HEADERS.name)


def run_flips(ids: Sequence[int], progress: Progress) -> Tally:
    """Flip a bit in one copy: the new model boots, healed. In both: the old one boots."""
    looker, rig = verifier(), bench(_DESCRIPTORS)
    places, bits = _updated(_DESCRIPTORS)[1], _flipped_bits()
    healed = 0

    def trial(identity: int) -> str:
        nonlocal healed
        bit, where = spread(identity, (bits, 3))
        device = _device(_DESCRIPTORS)
        for copy in ((0,), (1,), (0, 1))[where]:
            device.flash.data[places[copy] + bit // 8] ^= 1 << bit % 8
        story = after_cut(device, [rig.old if where == 2 else rig.new], looker)
        if not story and where < 2:
            healed += device.flash.data.tobytes() == _updated(_DESCRIPTORS)[0]
        return story

    found = tally(ids, trial, progress, FLIPS.name)
    found.figures = {"healed in flash to the bit": healed}
    return found


def _flipped_bits() -> int:
    return 8 * (TableHeader.SIZE + 64 * _DESCRIPTORS)


HEADERS = Campaign(
    name="ota-headers",
    title="both table headers in 256 states each: what boots is what the decision table says",
    short=150,
    long=_STATES * _STATES,
    run=run_headers,
)

FLIPS = Campaign(
    name="ota-flips",
    title="each of 33,792 bits of the table, in the first copy, the second, both: new, new, old",
    short=120,
    long=3 * 33_792,
    run=run_flips,
)
