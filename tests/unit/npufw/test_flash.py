"""The NOR model: bits, units, cuts, order, bad cells; images of devices."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from npuabi.errors import ErrorCode
from npuabi.sections import SECTOR_BYTES
from npufw.errors import FirmwareError
from npufw.flash.layout import (
    ONE_TIME_BYTES,
    OneTimeBits,
    Slot,
    blank_device,
    device_of_image,
    image_of_device,
)
from npufw.flash.nor import (
    WRITE_UNITS,
    BadCell,
    Cut,
    Defect,
    EraseCut,
    FlashModel,
    NorFlash,
    PowerCut,
    Tear,
)

DATA = bytes(random.Random(1).randrange(256) for _ in range(512))


def cut_program(model: FlashModel, cut: Cut) -> bytes:
    """Return the first 512 cells behind a cut in programming DATA into erased ones."""
    flash = NorFlash.blank(SECTOR_BYTES, model)
    flash.cut = cut
    with pytest.raises(PowerCut):
        flash.program(0, DATA)
    return flash.reboot().read(0, len(DATA))


@pytest.mark.parametrize("erased", [0xFF, 0x00])
def test_programming_moves_bits_away_from_the_erased_value_only(erased: int) -> None:
    flash = NorFlash.blank(SECTOR_BYTES, FlashModel(erased=erased))
    flash.program(0, b"\x0f\xf0")
    flash.program(0, b"\x55\x55")
    assert flash.read(0, 3) == (b"\x05\x50" if erased else b"\x5f\xf5") + bytes([erased])
    flash.erase(0)
    assert set(flash.read(0, SECTOR_BYTES)) == {erased}


def test_an_overwriting_chip_replaces_bytes() -> None:
    flash = NorFlash.blank(SECTOR_BYTES, FlashModel(overwrite=True))
    flash.program(0, b"\x00")
    flash.program(0, b"\xaa")
    assert flash.read(0, 1) == b"\xaa"


@pytest.mark.parametrize("unit", WRITE_UNITS)
def test_a_cut_leaves_a_prefix_of_units_and_of_the_bytes_of_one(unit: int) -> None:
    model, source = FlashModel(write_unit=unit), random.Random(unit)
    for _ in range(20):
        operation = source.randrange(1, len(DATA) // unit + 1)
        octets = source.randrange(unit)
        done = (operation - 1) * unit + octets
        assert cut_program(model, Cut(operation, octets)) == DATA[:done].ljust(512, b"\xff")


@pytest.mark.parametrize("tear", [t for t in Tear if t is not Tear.PARTIAL])
def test_a_torn_unit_holds_rubbish_in_one_byte(tear: Tear) -> None:
    found = cut_program(FlashModel(write_unit=64, tear=tear, overwrite=True), Cut(3))
    level, _, where = tear.partition("_")
    at = 128 + {"first": 0, "middle": 32, "last": 63}[where]
    assert found[:at] == DATA[:at]
    assert found[at] == {"low": 0x33, "high": 0xCC}[level]
    assert set(found[at + 1 :]) == {0xFF}


@pytest.mark.parametrize("left", list(EraseCut))
def test_a_cut_erase_leaves_the_old_bytes_erased_ones_or_rubbish(left: EraseCut) -> None:
    def cut_erase(seed: int) -> bytes:
        flash = NorFlash.blank(2 * SECTOR_BYTES, FlashModel(erase_cut=left, seed=seed))
        flash.program(0, DATA)
        flash.program(SECTOR_BYTES, DATA)
        flash.cut = Cut(1 + flash.operations)
        with pytest.raises(PowerCut):
            flash.erase(0)
        assert flash.read(SECTOR_BYTES, 512) == DATA
        return flash.read(0, SECTOR_BYTES)

    found = cut_erase(1)
    old = DATA.ljust(SECTOR_BYTES, b"\xff")
    assert (found == old) == (left is EraseCut.OLD)
    assert (set(found) == {0xFF}) == (left is EraseCut.ERASED)
    assert cut_erase(1) == found
    assert (cut_erase(2) != found) == (left is EraseCut.RANDOM)


def test_an_out_of_order_chip_loses_any_part_of_what_was_not_synced() -> None:
    seen = set()
    for seed in range(40):
        flash = NorFlash.blank(SECTOR_BYTES, FlashModel(write_unit=64, in_order=False, seed=seed))
        flash.program(0, DATA[:64])
        flash.sync()
        flash.cut = Cut(5)
        with pytest.raises(PowerCut):
            flash.program(64, DATA[64:512])
        found = flash.reboot().read(0, 512)
        assert found[:64] == DATA[:64], "what was synced stays"
        states = []
        for at in range(64, 256, 64):
            piece = found[at : at + 64]
            assert piece in (DATA[at : at + 64], b"\xff" * 64)
            states.append(piece == DATA[at : at + 64])
        assert set(found[256:]) == {0xFF}
        seen.add(tuple(states))
    assert len(seen) == 8, "all parts of three units are seen"


def test_a_cut_in_one_bulk_call_is_a_cut_unit_by_unit() -> None:
    model = FlashModel(write_unit=4)
    for operation in (1, 2, 77, 128):
        slow = NorFlash.blank(SECTOR_BYTES, model)
        slow.cut = Cut(operation, 3)
        with suppress(PowerCut):
            for at in range(0, len(DATA), 4):
                slow.program(at, DATA[at : at + 4])
        assert slow.data[:512].tobytes() == cut_program(model, Cut(operation, 3))


@pytest.mark.parametrize("defect", list(Defect))
def test_a_bad_sector_fails_from_its_operation_on_and_stays_bad(defect: Defect) -> None:
    cell = BadCell(defect=defect, sector=1, since=3)
    flash = NorFlash.blank(3 * SECTOR_BYTES, FlashModel(write_unit=256))
    flash.bad = (cell,)
    flash.program(SECTOR_BYTES, DATA)
    assert flash.read(SECTOR_BYTES, 512) == DATA
    flash.program(0, DATA[:256])
    again = flash.reboot()
    for chip in (flash, again):
        expected = {
            Defect.PROGRAM_ERROR: ErrorCode.FLASH_PROGRAM,
            Defect.ERASE_ERROR: ErrorCode.FLASH_ERASE,
            Defect.READ_ERROR: ErrorCode.FLASH_READ,
        }.get(defect)
        codes = []
        for action, arguments in (
            (chip.erase, (1,)),
            (chip.program, (SECTOR_BYTES, bytes(256))),
            (chip.read, (SECTOR_BYTES, 8)),
        ):
            try:
                action(*arguments)
            except FirmwareError as error:
                codes.append(error.code)
        assert codes == ([] if expected is None else [expected])
        assert chip.read(2 * SECTOR_BYTES, 8) == b"\xff" * 8, "other sectors are well"
    left = again.data[SECTOR_BYTES : SECTOR_BYTES + 512].tobytes()
    if defect is Defect.PROGRAM_NOTHING:
        assert left == b"\xff" * 512
    if defect is Defect.ERASE_NOTHING:
        assert left == bytes(256) + DATA[256:]


@pytest.mark.parametrize("lasting", [False, True])
def test_the_nth_operation_fails_once_or_from_then_on(lasting: bool) -> None:
    flash = NorFlash.blank(SECTOR_BYTES, FlashModel(write_unit=256))
    flash.fails_at, flash.fails_on = 2, lasting
    flash.erase(0)
    with pytest.raises(FirmwareError, match=r"flash_program \(0x60\).*operation 2"):
        flash.program(0, DATA)
    if lasting:
        with pytest.raises(FirmwareError, match="operation 3"):
            flash.program(0, DATA)
    else:
        flash.program(0, DATA)
        assert flash.read(0, 512) == DATA


def test_calls_beyond_the_chip_and_broken_units_are_programming_errors() -> None:
    flash = NorFlash.blank(SECTOR_BYTES, FlashModel(write_unit=4))
    for action in (
        lambda: flash.read(SECTOR_BYTES, 1),
        lambda: flash.program(2, bytes(4)),
        lambda: flash.program(0, bytes(3)),
        lambda: flash.erase(1),
        lambda: NorFlash(np.zeros(100, np.uint8)),
    ):
        with pytest.raises(ValueError, match="bytes"):
            action()


def test_an_image_comes_back_with_its_layout_and_one_time_bits() -> None:
    device = blank_device(3)
    device.flash.program(device.offset(Slot.B), DATA)
    device.one_time.raise_to(9)
    raw = image_of_device(device)
    again = device_of_image(raw)
    assert (len(raw), again.slot_sectors, again.one_time.counter) == (7 * 4096 + 64, 3, 9)
    assert again.flash.data.tobytes() == device.flash.data.tobytes()
    for size in (0, ONE_TIME_BYTES, 64 + 4096, 64 + 2 * 4096, 64 + 4 * 4096, len(raw) - 1):
        with pytest.raises(FirmwareError) as caught:
            device_of_image(bytes(size))
        assert caught.value.code is ErrorCode.FLASH_IMAGE


def test_one_time_bits_only_rise_and_survive_a_fuse_that_is_not_read() -> None:
    fuses = OneTimeBits()
    for version, counter in ((3, 3), (1, 3), (512, 512)):
        fuses.raise_to(version)
        assert fuses.counter == counter
    assert replace(fuses, bits=fuses.bits & ~0b100).counter == 512
    with pytest.raises(FirmwareError):
        fuses.raise_to(513)
