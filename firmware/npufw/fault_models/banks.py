"""SRAM that is stuck: a bank, or a row of 64 bytes in it, reads as one value whatever it is."""

from __future__ import annotations

from npuabi.enums import Space
from npufw.boot import Image
from npufw.descriptors import ROW_BYTES
from npufw.fault_models.base import FaultModel, Field, Values
from npufw.faults import FREE, Hook, Machine, Moment, Outcome, Phase

__all__ = ["STUCK", "StuckBank"]

_HELD = FREE | {Phase.TOA_READS}


class StuckBank(Hook):
    """Bytes *first* to *end* of SRAM read as *value*."""

    def __init__(self, first: int, end: int, value: int, text: str) -> None:
        self._part, self._value, self._text = slice(first, end), value, text

    def at(self, machine: Machine, moment: Moment) -> None:
        """Undo what was written there."""
        if moment.phase is Phase.LOADED:
            machine.note("stuck_bank", moment, Outcome.INJECTED, self._text)
        if moment.phase in _HELD:
            machine.memory.spaces[Space.SRAM][self._part] = self._value


def _make(image: Image, values: Values) -> Hook:
    target = image.target
    bank, row, value = int(values["bank"]), int(values["row"]), 255 * int(values["value"])
    if bank >= target.banks:
        raise ValueError(f"bank is {bank}: {target.name} has banks 0 to {target.banks - 1}")
    first, size = bank * target.bank_bytes, target.bank_bytes
    what = f"bank {bank}"
    if row >= 0:
        if (row + 1) * ROW_BYTES > size:
            raise ValueError(f"row is {row}: a bank has rows 0 to {size // ROW_BYTES - 1}")
        first, size, what = first + row * ROW_BYTES, ROW_BYTES, f"row {row} of {what}"
    return StuckBank(first, first + size, value, f"{what} reads as 0x{value:02x}")


STUCK = FaultModel(
    name="stuck-bank",
    title="an SRAM bank, or a row of it, reads as one value",
    gate="ripple",
    fields=(
        Field(name="bank", kind=int, high=255, help="which bank, from 0"),
        Field(name="row", kind=int, low=-1, high=65535, default=-1, help="64-byte row; -1: all"),
        Field(name="value", kind=int, high=1, default=0, help="each bit reads as this"),
    ),
    make=_make,
    example="stuck-bank:bank=3,value=0",
)
