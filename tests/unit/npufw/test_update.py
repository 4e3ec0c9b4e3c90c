"""Updates, boots and rollbacks: decision table, short campaigns, cases C16, C17 and C19."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace

import pytest

from npuabi.enums import Section
from npuabi.errors import ErrorCode
from npuabi.progress import silent
from npuabi.records import FileHeader, SectionEntry, TableHeader
from npuabi.sections import split_sections
from npuabi.wire import Record, seal
from npufw.errors import FirmwareError
from npufw.flash import update as update_module
from npufw.flash.decisions import (
    BOOT_RULES,
    HEADER_RULES,
    PAIR_RULES,
    Choice,
    CopyState,
    Field,
    Header,
    Newer,
    Pair,
    boot_choice,
    header_state,
    newer_of,
    pair_state,
)
from npufw.flash.layout import Device, Slot, blank_device
from npufw.flash.nor import Cut, EraseCut, FlashModel, NorFlash, PowerCut
from npufw.flash.slots import Trust, Verifier
from npufw.flash.update import blobs_of, boot_device, roll_back, survey, update
from tools.campaigns import forgery, ota_chips, ota_cuts, ota_cycles, ota_headers
from tools.campaigns.base import Campaign
from tools.campaigns.ota_cuts import points_of
from tools.campaigns.ota_harness import (
    TARGET,
    Bench,
    after_cut,
    bench,
    cut_update,
    operations_of_update,
    small_program,
    verifier,
)

FEW = 4


def updated(rig: Bench) -> Device:
    device = rig.device()
    update(device, verifier(), rig.make_new)
    return device


# --- the decision table -------------------------------------------------------------------------


def test_the_decision_table_is_total_and_has_no_idle_row() -> None:
    """All 4^4 x 4^4 headers, 3 hints, 2 states of the other slot: 393,216 states."""
    headers = {f: header_state(*f) for f in itertools.product(Field, repeat=4)}
    assert set(headers.values()) == set(HEADER_RULES)
    kinds = {rule.result for rule in headers.values()}
    used, decided = set(), 0
    for a, b in itertools.product(kinds, repeat=2):
        whole = [CopyState.WHOLE if h is Header.NEW else CopyState.BAD for h in (a, b)]
        pair = pair_state(*whole)
        used.add(pair)
        weight = [sum(rule.result is h for rule in headers.values()) for h in (a, b)]
        for other, hint in itertools.product((True, False), (Slot.A, Slot.B, None)):
            verifies = pair.result is not Pair.MERGE
            rule = boot_choice(verifies, other, Newer.A, hint)
            decided += weight[0] * weight[1]
            assert rule.result is (Choice.A if verifies else Choice.B if other else Choice.NONE), (
                "a new model that verifies boots, else the old one"
            )
    assert decided == 4**8 * 6
    assert used == set(PAIR_RULES)
    states = itertools.product((True, False), (True, False), Newer, (Slot.A, Slot.B, None))
    assert {boot_choice(*state) for state in states} == set(BOOT_RULES)


@pytest.mark.parametrize(
    ("a", "b", "newer"),
    [
        (1, 2, Newer.B),
        (2, 1, Newer.A),
        (0xFFFFFFFF, 0, Newer.B),
        (0, 0xFFFFFFFF, Newer.A),
        (0x7FFFFFFF, 0x80000000, Newer.B),
        (5, 5, Newer.NEITHER),
        (0, 0x80000000, Newer.NEITHER),
    ],
)
def test_generations_are_serial_numbers_that_wrap(a: int, b: int, newer: Newer) -> None:
    assert newer_of(a, b) is newer


def test_an_update_crosses_the_wrap_and_the_new_model_boots() -> None:
    rig, looker = bench(FEW), verifier()
    device = blank_device(rig.sectors)
    update(device, looker, lambda _: blobs_of(small_program(FEW, 1))(0xFFFFFFFF))
    booted = update(device, looker, rig.make_new)
    assert (booted.generation, boot_device(device, looker).generation) == (0, 0)


@pytest.mark.parametrize(("hint", "slot"), [(Slot.A, "A"), (Slot.B, "B"), (None, "A")])
def test_of_equal_generations_the_hint_decides(hint: Slot | None, slot: str) -> None:
    looker, maker = verifier(), blobs_of(small_program(FEW, 1))
    device = blank_device(len(maker(7)) // 4096)
    for place in Slot:
        start = device.offset(place)
        device.flash.data[start : start + len(maker(7))] = memoryview(maker(7))
    if hint is not None:
        list(update_module._point(device, hint, 7, None))
    assert boot_device(device, looker).slot.name == slot


def test_neither_slot_valid_is_one_defined_error() -> None:
    device = blank_device(2)
    with pytest.raises(FirmwareError, match=r"slot A: slot_empty.*slot B: slot_empty") as caught:
        boot_device(device, verifier())
    assert caught.value.code is ErrorCode.NO_BOOTABLE_SLOT
    device.flash.data[:] = 0x5A
    with pytest.raises(FirmwareError) as caught:
        boot_device(device, verifier())
    assert caught.value.code is ErrorCode.NO_BOOTABLE_SLOT


# --- campaigns, short forms ---------------------------------------------------------------------

CAMPAIGNS = [
    ota_cuts.CUTS,
    ota_cuts.PAIRS,
    ota_chips.CHIPS,
    ota_chips.CELLS,
    ota_headers.HEADERS,
    ota_headers.FLIPS,
    ota_cycles.CYCLES,
    ota_cycles.KILL,
    forgery.FORGERY,
]


@pytest.mark.parametrize("campaign", CAMPAIGNS, ids=lambda c: c.name)
def test_no_trial_of_a_campaign_fails(campaign: Campaign) -> None:
    found = campaign.run(campaign.ids(campaign.short), silent)
    assert found.trials > 0
    assert found.failures == []


def test_the_campaigns_have_as_many_ids_as_they_say() -> None:
    assert ota_cuts.CUTS.long == len(points_of(64))
    assert ota_chips.CHIPS.long == 40 * len(ota_chips.chips())
    assert len(operations_of_update(64)) > 8452, "all that an update of 64 descriptors programs"


def test_a_cut_before_the_headers_leaves_nothing_to_recover() -> None:
    """So that the pairs of cuts need to begin at the headers only."""
    rig, looker, count = bench(FEW), verifier(), len(operations_of_update(FEW))
    for operation in range(1, count - 300, 61):
        device = cut_update(rig, Cut(operation), looker)
        boot_device(device, looker)
        assert device.flash.operations == 0


def _in_use(device: Device, slot: Slot, blob: bytes) -> None:
    _WRITE_SLOT(device, slot.other, blob)


_WRITE_SLOT = update_module._write_slot


@pytest.mark.parametrize(
    ("name", "planted", "campaign"),
    [
        ("_write_slot", _in_use, ota_cuts.CUTS),
        ("_heal", lambda *_: (), ota_cuts.PAIRS),
    ],
    ids=["writes the slot in use", "heals nothing"],
)
def test_the_campaigns_find_a_planted_fault(
    monkeypatch: pytest.MonkeyPatch, name: str, planted: object, campaign: Campaign
) -> None:
    for descriptors in (FEW, 64):
        operations_of_update(descriptors)  # before the fault is in
    monkeypatch.setattr(update_module, name, planted)
    try:
        failures = campaign.run(campaign.ids(200), silent).failures
    except FirmwareError:
        return  # the update saw it itself
    assert failures


# --- cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [0, 1], ids=["first", "second"])
def test_c16_a_cut_at_any_byte_of_a_header_boots_old_or_new(header: int) -> None:
    rig, looker = bench(FEW), verifier()
    kinds = operations_of_update(FEW)
    behind = len(kinds) - kinds[::-1].index("erase")  # the hint's erase follows the headers
    offset = split_sections(rig.new)[Section.TABLE_A].offset
    size = sum(byte != 0xFF for byte in rig.new[offset : offset + TableHeader.SIZE])
    assert size > 100
    found = set()
    for operation in range(behind - (2 - header) * size, behind - (1 - header) * size):
        device = cut_update(rig, Cut(operation), looker)
        assert after_cut(device, (rig.old, rig.new), looker) == ""
        found.add(boot_device(device, looker).blob == rig.new)
    assert found == {header == 1}, "the first header is the switch"


def _resealed(device: Device, slot: Slot, record: str, bit: int) -> None:
    """Flip a bit of a length or count in a slot and make the CRC of its record anew."""
    start = device.offset(slot)
    places: dict[str, tuple[type[Record], int, str]] = {
        "file length": (FileHeader, 0, "length"),
        "section count": (FileHeader, 0, "section_count"),
        "header bytes": (FileHeader, 0, "header_bytes"),
        "span": (SectionEntry, 64, "span"),
        "length": (SectionEntry, 64, "length"),
        "offset": (SectionEntry, 64, "offset"),
        "toa count": (TableHeader, _table_offset(device, slot), "toa_count"),
        "tensor count": (TableHeader, _table_offset(device, slot), "tensor_count"),
    }
    kind, offset, field = places[record]
    at = next(o for o, name, _ in kind.rows() if name == field)
    cells = device.flash.data[start + offset : start + offset + kind.SIZE]
    cells[at + bit // 8] ^= 1 << bit % 8
    cells[:] = memoryview(seal(cells.tobytes()))


def _table_offset(device: Device, slot: Slot) -> int:
    raw = device.flash.data[device.offset(slot) :].tobytes()
    length = FileHeader.decode(raw[:64]).length
    return split_sections(raw[:length])[Section.TABLE_A].offset


FIELDS = {
    "file length": 64,
    "section count": 16,
    "header bytes": 32,
    "span": 64,
    "length": 64,
    "offset": 64,
    "toa count": 32,
    "tensor count": 32,
}


@pytest.mark.parametrize("record", FIELDS)
def test_c17_no_length_that_flash_states_is_trusted(record: str) -> None:
    """A boot reads each slot once at most and its headers, whatever a length says."""
    rig, looker = bench(FEW), verifier()
    new = updated(rig).flash.data
    for bit in range(FIELDS[record]):
        device = rig.device()
        device.flash.data[:] = new
        _resealed(device, Slot.A, record, bit)
        booted = boot_device(device, looker)
        assert booted.blob in (rig.old, rig.new)
        assert device.flash.bytes_read <= 2 * 2 * device.slot_bytes


@pytest.mark.parametrize("left", list(EraseCut))
def test_c19_a_cut_in_a_rollback_is_done_or_not_and_stays_so(left: EraseCut) -> None:
    rig, looker = bench(FEW), verifier()
    start = updated(rig)
    whole = Device(start.flash.reboot())
    assert roll_back(whole, looker).blob == rig.old
    outcomes = set()
    for operation in range(1, whole.flash.operations + 1):
        device = Device(start.flash.reboot())
        model = replace(device.flash.model, erase_cut=left)
        device.flash = NorFlash(device.flash.data, model, cut=Cut(operation))
        with pytest.raises(PowerCut):
            roll_back(device, looker)
        device.flash = device.flash.reboot()
        assert after_cut(device, (rig.old, rig.new), looker) == ""
        outcomes.add(boot_device(device, looker).blob == rig.old)
    assert outcomes == ({True, False} if left is EraseCut.OLD else {True})


class _Once(NorFlash):
    """A chip whose units are programmed once between erases, as those with ECC ask for."""

    def program(self, offset: int, data: bytes) -> None:
        cells = self.data[offset : offset + len(data)]
        assert (cells == self.model.erased).all(), f"bytes at {offset} are programmed twice"
        super().program(offset, data)


@pytest.mark.parametrize("unit", [1, 256])
def test_no_unit_is_programmed_twice_between_erases(unit: int) -> None:
    model = FlashModel(write_unit=unit)
    rig, looker = bench(FEW, model), verifier()
    count = len(operations_of_update(FEW, model))
    for operation in range(max(1, count - 300), count + 2, 1 if unit > 1 else 9):
        device = rig.device()
        device.flash = _Once(device.flash.data, model, cut=Cut(operation))
        with suppress(PowerCut):
            update(device, looker, rig.make_new)
        device.flash = _Once(device.flash.data, model)
        boot_device(device, looker)
        with suppress(FirmwareError):
            roll_back(device, looker)


# --- refusals -------------------------------------------------------------------------------------


def test_a_rollback_needs_an_older_model_that_verifies() -> None:
    rig, looker = bench(FEW), verifier()
    device = rig.device()
    assert roll_back(device, looker).blob == rig.older
    before = device.flash.data.copy()
    with pytest.raises(FirmwareError) as caught:
        roll_back(device, looker)
    assert caught.value.code is ErrorCode.NO_ROLLBACK
    assert (device.flash.data == before).all()


def test_a_blob_longer_than_a_slot_is_refused_before_anything_is_erased() -> None:
    device = blank_device(1)
    with pytest.raises(FirmwareError) as caught:
        update(device, verifier(), bench(FEW).make_new)
    assert (caught.value.code, device.flash.operations) == (ErrorCode.SLOT_SIZE, 0)


def test_models_below_the_anti_rollback_counter_do_not_boot() -> None:
    rig = bench(FEW)
    looker = Verifier(Trust(target=TARGET, minimum_version=1))
    found = survey(rig.device(), looker)
    assert found.chosen is None
    assert {c.why.code for c in (found.a, found.b) if c.why} == {ErrorCode.SECURITY_VERSION}


@pytest.mark.parametrize("lasting", [False, True])
def test_the_nth_failure_of_flash_leaves_a_model_and_no_other_error(lasting: bool) -> None:
    model = FlashModel(write_unit=64)
    rig, looker = bench(FEW, model), verifier()
    count = len(operations_of_update(FEW, model))
    for number in range(1, count + 2):
        device = rig.device()
        device.flash.fails_at, device.flash.fails_on = number, lasting
        with suppress(FirmwareError):
            update(device, looker, rig.make_new)
        device.flash = device.flash.reboot()
        assert after_cut(device, (rig.old, rig.new), looker) == "", number
        booted = update(device, looker, rig.make_new)
        assert boot_device(device, looker).blob == booted.blob, "the next update is right"
