"""Fuses that fail: a bit that is blown late or not read, and reads that do not settle."""

from __future__ import annotations

from npufw.boot import Image
from npufw.efuse import ROW_BYTES, ReadRow, rows_of
from npufw.fault_models.base import FaultModel, Field, Values
from npufw.faults import Hook
from npufw.nth import Nth

__all__ = ["FUSE", "FUSE_READ", "BadFuse", "FailingFuseRead", "reader"]


class BadFuse(Hook):
    """Fuse *bit* reads as what it is not."""

    def __init__(self, bit: int) -> None:
        self.bit = bit


class FailingFuseRead(Hook):
    """The n-th read of a row does not settle."""

    def __init__(self, failing: Nth) -> None:
        self.failing = failing


def reader(fuses: bytes, faults: list[Hook]) -> ReadRow:
    """Return what reads the rows of *fuses* under *faults*; ValueError for a bit beyond them."""
    array = bytearray(fuses)
    for fault in faults:
        if isinstance(fault, BadFuse):
            if fault.bit >= 8 * len(array):
                raise ValueError(f"bit {fault.bit} of {8 * len(array)} fuses")
            array[fault.bit // 8] ^= 1 << fault.bit % 8
    counts = [fault.failing for fault in faults if isinstance(fault, FailingFuseRead)]
    rows = rows_of(bytes(array))

    def read(row: int) -> bytes | None:
        # Every counter counts every read.
        return None if any([failing() for failing in counts]) else rows(row)

    return read


def _bad_fuse(image: Image, values: Values) -> Hook:
    return BadFuse(int(values["bit"]))


def _fuse_read(image: Image, values: Values) -> Hook:
    return FailingFuseRead(Nth(int(values["nth"]), bool(values["forever"])))


FUSE = FaultModel(
    name="fuse",
    title="a fuse of the --die array is blown late, or is not read",
    gate="variation",
    fields=(
        Field(name="bit", kind=int, high=8 * 66 * ROW_BYTES, help="which, from bit 0 of byte 0"),
    ),
    make=_bad_fuse,
    example="fuse:bit=1100",
    needs="--die",
)
FUSE_READ = FaultModel(
    name="fuse-read",
    title="a read of a row of the --die array does not settle",
    gate="variation",
    fields=(
        Field(name="nth", kind=int, low=1, help="which one fails, counted from the load"),
        Field(name="forever", kind=bool, default=False, help="all after it fail, too"),
    ),
    make=_fuse_read,
    example="fuse-read:nth=2",
    needs="--die",
)
