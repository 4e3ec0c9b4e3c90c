"""A NOR flash chip, with the ways in which it fails.

Sectors of 4 KiB are erased to one value; programming in whole write units moves bits away from that
value and never back (or overwrites bytes, for chips that do). Operations are counted from 1: a
sector erased, a unit programmed. Power can be cut in any of them, behind a byte of it; cells and
operations can fail.

    program(unit)  ... k bytes of the unit are in, the rest is not, or one byte holds rubbish
    erase(sector)  ... the sector is as it was, or erased, or holds rubbish
    before sync()  ... an out-of-order chip has done any part of what it was told

Invariant: what is in flash is a function of the calls, the model and the seed. :class:`PowerCut` is
raised once, behind which only ``reboot`` is allowed; nothing but a test harness or the command that
asked for the cut catches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto

import numpy as np

from npuabi.errors import ErrorCode
from npuabi.sections import SECTOR_BYTES
from npufw.errors import FirmwareError

__all__ = [
    "CLEAN",
    "WRITE_UNITS",
    "BadCell",
    "Cut",
    "Defect",
    "EraseCut",
    "FlashModel",
    "NorFlash",
    "Operation",
    "PowerCut",
    "Tear",
]

WRITE_UNITS = (1, 4, 8, 64, 256)
"""Bytes that are programmed at once, of the chips that are modelled."""


class PowerCut(Exception):
    """Power has failed in the middle of a flash operation."""


class EraseCut(StrEnum):
    """What a cut inside an erase leaves."""

    OLD = auto()
    ERASED = auto()
    RANDOM = auto()


class Tear(StrEnum):
    """What a cut inside a unit leaves: a part of its bytes, or rubbish in one byte."""

    PARTIAL = auto()
    LOW_FIRST = auto()
    LOW_MIDDLE = auto()
    LOW_LAST = auto()
    HIGH_FIRST = auto()
    HIGH_MIDDLE = auto()
    HIGH_LAST = auto()


_RUBBISH = {"low": 0x33, "high": 0xCC}


class Defect(StrEnum):
    """How a bad sector fails."""

    PROGRAM_ERROR = auto()
    ERASE_ERROR = auto()
    READ_ERROR = auto()
    PROGRAM_NOTHING = auto()
    ERASE_NOTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashModel:
    """Which chip it is. ``overwrite``: programming replaces bytes instead of moving bits."""

    erased: int = 0xFF
    write_unit: int = 1
    overwrite: bool = False
    in_order: bool = True
    erase_cut: EraseCut = EraseCut.RANDOM
    tear: Tear = Tear.PARTIAL
    seed: int = 0

    @property
    def text(self) -> str:
        """The model in a few words."""
        order = "in order" if self.in_order else "out of order"
        how = "overwrite" if self.overwrite else "bits"
        cuts = f"{self.erase_cut}, {self.tear}"
        return f"{self.erased:#04x}, unit {self.write_unit}, {how}, {order}, {cuts}"


CLEAN = FlashModel()
"""The usual chip: erased to 0xFF, bytes programmed one by one, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCell:
    """A sector that fails from operation *since* on; ``once`` means that it recovers."""

    defect: Defect
    sector: int
    since: int = 0
    once: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Where power fails: in operation *operation* (from 1), behind *octets* bytes of its unit."""

    operation: int
    octets: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """What was told to the chip: bytes at an offset, or an erased sector where there are none."""

    offset: int
    data: bytes | None


@dataclass
class NorFlash:
    """The chip. ``data`` is what its cells hold.

    ``fails_at`` makes the n-th operation from now fail with an error, ``fails_on`` all behind it.
    """

    data: np.ndarray[tuple[int], np.dtype[np.uint8]]
    model: FlashModel = CLEAN
    bad: Sequence[BadCell] = ()
    cut: Cut | None = None
    fails_at: int = 0
    fails_on: bool = False
    operations: int = 0
    bytes_programmed: int = 0
    bytes_read: int = 0
    erases: int = 0
    _pending: list[Operation] = field(default_factory=list)
    _base: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None
    _spent: set[BadCell] = field(default_factory=set)

    @classmethod
    def blank(cls, size: int, model: FlashModel = CLEAN) -> NorFlash:
        """Return an erased chip of *size* bytes, whole sectors."""
        return cls(np.full(size, model.erased, np.uint8), model)

    def __post_init__(self) -> None:
        if not len(self.data) or len(self.data) % SECTOR_BYTES:
            raise ValueError(f"a flash has whole sectors, got {len(self.data)} bytes")

    def __len__(self) -> int:
        return len(self.data)

    # --- what the firmware calls -------------------------------------------------------------

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes. Raises FirmwareError FLASH_READ in a sector that cannot be read."""
        self._check_range(offset, size)
        self.bytes_read += size
        for sector in range(offset // SECTOR_BYTES, -(-(offset + size) // SECTOR_BYTES)):
            self._fail_if(Defect.READ_ERROR, sector, ErrorCode.FLASH_READ)
        return self.data[offset : offset + size].tobytes()

    def erase(self, sector: int) -> None:
        """Erase a sector. Raises FirmwareError FLASH_ERASE, PowerCut."""
        self._check_range(sector * SECTOR_BYTES, SECTOR_BYTES)
        self._begin(ErrorCode.FLASH_ERASE, sector)
        self._fail_if(Defect.ERASE_ERROR, sector, ErrorCode.FLASH_ERASE)
        told = Operation(sector * SECTOR_BYTES, None)
        if self.cut is not None and self.operations >= self.cut.operation:
            self._die(told, 0)
        self.erases += 1
        if not self._fails(Defect.ERASE_NOTHING, sector):
            self._do(told)

    def program(self, offset: int, data: bytes) -> None:
        """Program whole units. Raises FirmwareError FLASH_PROGRAM, PowerCut."""
        unit = self.model.write_unit
        self._check_range(offset, len(data))
        if offset % unit or len(data) % unit:
            raise ValueError(f"{len(data)} bytes at {offset} are no whole units of {unit}")
        for start, end in _by_sector(offset, len(data)):
            self._program(start, data[start - offset : end - offset])

    def sync(self) -> None:
        """Wait until everything is in the cells."""
        self._pending.clear()
        self._base = None

    # --- what a harness calls ----------------------------------------------------------------

    def reboot(self) -> NorFlash:
        """Return the chip with power back, what was torn in its cells; counters begin anew.

        A sector that was bad stays so; one that recovered, too.
        """
        bad = [replace(c, since=0) if c.since <= self.operations else c for c in self.bad]
        left = [c for c, was in zip(bad, self.bad, strict=True) if was not in self._spent]
        return NorFlash(self.data.copy(), self.model, bad=left)

    # --- inside ----------------------------------------------------------------------------------

    def _apply(self, told: Operation, octets: int | None = None) -> None:
        """Change cells as *told*; with *octets* as a cut behind so many bytes leaves them."""
        if told.data is None:
            self._erase_cells(told.offset, whole=octets is None)
        elif octets is None:
            self._program_cells(told.offset, np.frombuffer(told.data, np.uint8))
        else:
            self._tear(told, octets)

    def _program(self, offset: int, data: bytes) -> None:
        """Program units that lie in one sector."""
        unit, sector = self.model.write_unit, offset // SECTOR_BYTES
        while data:
            calm = self._calm(len(data) // unit)
            told = Operation(offset, data[: max(calm, 1) * unit])
            if calm:
                self.operations += calm
                self.bytes_programmed += calm * unit
                self._do(told)
            else:
                self._program_unit(told, sector)
            offset, data = offset + len(told.data or b""), data[len(told.data or b"") :]

    def _program_unit(self, told: Operation, sector: int) -> None:
        self._begin(ErrorCode.FLASH_PROGRAM, sector)
        self._fail_if(Defect.PROGRAM_ERROR, sector, ErrorCode.FLASH_PROGRAM)
        if self.cut is not None and self.operations >= self.cut.operation:
            self._die(told, self.cut.octets)
        self.bytes_programmed += self.model.write_unit
        if not self._fails(Defect.PROGRAM_NOTHING, sector):
            self._do(told)

    def _calm(self, count: int) -> int:
        """Return in how many of the next *count* operations nothing that is counted happens."""
        if self.bad:
            return 0
        due = [at for at in (self.cut.operation if self.cut else 0, self.fails_at) if at]
        if self.fails_on and self.fails_at and self.operations >= self.fails_at:
            return 0
        ahead = [at - 1 - self.operations for at in due if at > self.operations]
        return max(0, min([count, *ahead]))

    def _begin(self, code: ErrorCode, sector: int) -> None:
        self.operations += 1
        due = self.operations == self.fails_at
        if self.fails_at and (due or (self.fails_on and self.operations > self.fails_at)):
            raise FirmwareError(code, f"sector {sector}, operation {self.operations}")

    def _do(self, told: Operation) -> None:
        if not self.model.in_order:
            if self._base is None:
                self._base = self.data.copy()
            self._pending.append(told)
        self._apply(told)

    def _die(self, told: Operation, octets: int) -> None:
        """Lose power in *told*; out of order, any part of what is pending is in the cells."""
        if self._base is not None:
            source = self._source()
            self.data[:] = self._base
            for earlier in self._units(self._pending):
                if int(source.random_raw()) & 1:
                    self._apply(earlier)
        self._apply(told, octets)
        raise PowerCut(f"in operation {self.operations}")

    def _units(self, told: Sequence[Operation]) -> Iterator[Operation]:
        unit = self.model.write_unit
        for each in told:
            if each.data is None:
                yield each
                continue
            for at in range(0, len(each.data), unit):
                yield Operation(each.offset + at, each.data[at : at + unit])

    def _source(self) -> np.random.PCG64:
        return np.random.PCG64([self.model.seed, self.operations])

    def _erase_cells(self, offset: int, *, whole: bool) -> None:
        cells = self.data[offset : offset + SECTOR_BYTES]
        if whole or self.model.erase_cut is EraseCut.ERASED:
            cells[:] = self.model.erased
        elif self.model.erase_cut is EraseCut.RANDOM:
            words = self._source().random_raw(SECTOR_BYTES // 8)
            cells[:] = np.asarray(words, "<u8").view(np.uint8)

    def _program_cells(self, offset: int, new: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        cells = self.data[offset : offset + len(new)]
        if self.model.overwrite:
            cells[:] = new
        elif self.model.erased:
            cells &= new
        else:
            cells |= new

    def _tear(self, told: Operation, octets: int) -> None:
        data = told.data or b""
        tear = self.model.tear
        if tear is Tear.PARTIAL:
            self._program_cells(told.offset, np.frombuffer(data[:octets], np.uint8))
            return
        level, _, where = tear.partition("_")
        at = {"first": 0, "middle": len(data) // 2, "last": len(data) - 1}[where]
        torn = data[:at] + bytes([_RUBBISH[level]])
        self._program_cells(told.offset, np.frombuffer(torn, np.uint8))

    def _fail_if(self, defect: Defect, sector: int, code: ErrorCode) -> None:
        if self._fails(defect, sector):
            raise FirmwareError(code, f"sector {sector}")

    def _fails(self, defect: Defect, sector: int) -> bool:
        for cell in self.bad:
            fits = (cell.defect, cell.sector) == (defect, sector) and cell not in self._spent
            if fits and self.operations >= cell.since:
                if cell.once:
                    self._spent.add(cell)
                return True
        return False

    def _check_range(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise ValueError(f"{size} bytes at {offset} are beyond {len(self.data)} bytes of flash")


def _by_sector(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the parts of a range, cut at sectors."""
    start, end = offset, offset + size
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, stop
        start = stop
