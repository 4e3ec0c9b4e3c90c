"""Gate 7's defence: the trim of the read-out, one multiplication and one sum behind each column.

Firmware writes the codes of the eFuse table into the trim registers once, when a program is loaded;
parameters stay as the compiler wrote them, so nothing is corrected twice, and every product has the
same correction, be it a convolution or a matmul with one multiplier for all columns.

    trimmed = round((read - offset) * (1 + gain / 4096))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import ErrorCode
from npuabi.target import Target
from npufw.boot import Image
from npufw.defences.base import Defence
from npufw.efuse import GAIN_STEP, Efuse, Table, read_efuse, rows_of, size_for, with_table
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.fault_models.die import Die, DieHook
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.pattern import COLUMNS, pattern_codes, pattern_image

__all__ = ["DEFENCE", "Fuses", "Trim", "calibrate", "measured"]


class Fuses(Hook):
    """The die's eFuse array; ``--die`` gives it. Without a table the trim stays at unity."""

    def __init__(self, efuse: Efuse) -> None:
        self.efuse = efuse


class Trim(Hook):
    """The trim registers of core *core*, written once at load."""

    def __init__(self, efuse: Efuse, die: int, core: int = 0) -> None:
        table = efuse.table
        if table is not None and table.die != die:
            text = f"the table is die {table.die:016x}'s, this is die {die:016x}"
            raise FirmwareError(ErrorCode.WRONG_DIE, text)
        self._unity, self._again = table is None, efuse.again
        self._die, self._core = die, core
        none = np.zeros(COLUMNS, np.int64)
        self._offset = none if table is None else table.offsets[core]
        self._factor = 1 + (none if table is None else table.gains[core]) * GAIN_STEP

    def at(self, machine: Machine, moment: Moment) -> None:
        """Say at load which rows were read again, and whether there is no table."""
        if moment.phase is not Phase.LOADED:
            return
        for row in self._again:
            machine.note("efuse", moment, Outcome.REPAIRED, f"row {row} was read again")
        if self._unity:
            text = "the eFuse is blank: the die is not calibrated, unity gain"
            machine.note("efuse", moment, Outcome.DETECTED, text)

    def report(self) -> dict[str, Any]:
        """Return which die runs, and whether its table is in force."""
        found = {"id": f"{self._die:016x}", "core": self._core, "trimmed": not self._unity}
        return {"die": found}

    def report_lines(self) -> Iterator[str]:
        """Yield the same for people."""
        how = "at unity gain" if self._unity else "trimmed by its eFuse table"
        yield f"die {self._die:016x}, core {self._core}: {how}"

    def summed(self, machine: Machine, moment: Moment, sums: NDArray[Any]) -> NDArray[Any]:
        """Trim what the columns have read."""
        if self._unity:
            return sums
        lanes = np.arange(sums.shape[-1]) % COLUMNS
        if sums.dtype == np.float32:
            return np.asarray(sums * self._factor[lanes].astype(np.float32))
        made = sums - self._offset[lanes]
        made *= self._factor[lanes]
        return np.asarray(np.rint(made, out=made))


def _trim(image: Image, faults: Sequence[Hook]) -> Trim | None:
    die = next((hook for hook in faults if isinstance(hook, DieHook)), None)
    fuses = next((hook for hook in faults if isinstance(hook, Fuses)), None)
    if die is None or fuses is None:
        return None
    return Trim(fuses.efuse, die.die.id, die.core)


DEFENCE = Defence(
    name="variation",
    title="trims each column by the die's eFuse table",
    make=_trim,
)


# --- production ---------------------------------------------------------------------------------


def calibrate(die: Die, target: Target, fuses: bytes | None = None) -> bytes:
    """Return the array *fuses*, blank by default, with the table of *die* blown.

    Each core runs the standard pattern, untrimmed. Raises FirmwareError NOT_CALIBRATED for a die
    whose columns lie beyond what codes can say, FUSE_BLOWN for an array that has a table.
    """
    array = bytes(size_for(target.cores)) if fuses is None else fuses
    found = read_efuse(rows_of(array), len(array), target.cores)
    if found.table is not None:
        text = f"the array has the table of die {found.table.die:016x} already"
        raise FirmwareError(ErrorCode.FUSE_BLOWN, text)
    image = pattern_image(target)
    pairs = [measured(image, DieHook(die, core)) for core in range(target.cores)]
    gains, offsets = (np.array(part) for part in zip(*pairs, strict=True))
    table = Table(
        die=die.id,
        gains=np.rint((1 / gains - 1) / GAIN_STEP).astype(np.int64),
        offsets=np.rint(offsets).astype(np.int64),
    )
    return with_table(array, table)


def measured(image: Image, *hooks: Hook) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gain and offset of each column, by a line of least squares through the pattern."""
    given = pattern_codes().reshape(COLUMNS, -1).astype(np.float64)
    (read,) = Engine(image, hooks=hooks).run({"pattern": pattern_codes()}).values()
    found = read.reshape(COLUMNS, -1).astype(np.float64)
    if np.abs(found).max() >= np.iinfo(np.int16).max or found.std(axis=1).min() == 0:
        raise FirmwareError(ErrorCode.NOT_CALIBRATED, "a column is stuck or beyond full scale")
    centred = given - given.mean(axis=1, keepdims=True)
    gain = (centred * found).sum(axis=1) / (centred**2).sum(axis=1)
    return gain, found.mean(axis=1) - gain * given.mean(axis=1)
