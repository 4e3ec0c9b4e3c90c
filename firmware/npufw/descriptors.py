"""The descriptor table as it lies in DDR, twice, so that faults can reach it.

| row of 64 bytes | holds |
| --- | --- |
| 0, 1 | the table's header |
| 2 ... | tensor records, then TOAs |

Invariant: while no byte differs from what was loaded, the engine never looks here; ``dirty`` are
the rows that do differ, in one copy or both.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import ErrorCode
from npuabi.policy import abi_of, check
from npuabi.program import Program, symbol_at
from npuabi.records import NO_TENSOR, TableHeader, TensorDescriptor, Toa
from npuabi.schemas import Version
from npuabi.target import Target
from npufw.errors import FirmwareError
from npufw.kernels.base import Step
from npufw.tensor_rules import Room, check_tensor
from npufw.toa_rules import check_step

__all__ = ["HEADER_ROWS", "ROW_BYTES", "DescriptorMemory"]

ROW_BYTES = 64
HEADER_ROWS = TableHeader.SIZE // ROW_BYTES

Octets = NDArray[np.uint8]


class DescriptorMemory:
    """Both copies of the table; the fetcher reads each row from the copy that ``source`` says."""

    def __init__(self, program: Program, target: Target, firmware: Version) -> None:
        self._program, self._target, self._abi = program, target, abi_of(firmware)
        self.dirty: set[int] = set()
        self._header = program.header
        self._sources: dict[int, int] = {}

    @cached_property
    def _loaded(self) -> Octets:
        program = self._program
        tensors = TensorDescriptor.encode_many(program.tensors)
        raw = program.header.encode() + tensors + Toa.encode_many(program.toas)
        return np.frombuffer(raw, np.uint8)

    @cached_property
    def _copies(self) -> tuple[Octets, Octets]:
        return self._loaded.copy(), self._loaded.copy()

    @property
    def size(self) -> int:
        """Bytes of a copy."""
        return len(self._loaded)

    def rows_of(self, toa: int) -> list[int]:
        """Return the rows of TOA *toa* and of its tensors."""
        program = self._program
        tensors = [i for i in program.toas[toa].tensors if i != NO_TENSOR]
        return [self.toa_row(toa), *(HEADER_ROWS + i for i in tensors)]

    def toa_row(self, toa: int) -> int:
        """Return the row of TOA *toa*."""
        return HEADER_ROWS + len(self._program.tensors) + toa

    def source(self, row: int) -> int:
        """Return the copy from which *row* is read."""
        return self._sources.get(row, 0)

    def read(self, row: int, copy: int | None = None) -> bytes:
        """Return *row* of *copy*, or of the copy from which it is read."""
        chosen = self.source(row) if copy is None else copy
        return self._copies[chosen][row * ROW_BYTES : (row + 1) * ROW_BYTES].tobytes()

    def write(self, row: int, copy: int, raw: bytes) -> None:
        """Put *raw* into *row* of *copy*."""
        part = slice(row * ROW_BYTES, (row + 1) * ROW_BYTES)
        self._copies[copy][part] = np.frombuffer(raw, np.uint8)
        whole = self._loaded[part]
        same = all(bool((held[part] == whole).all()) for held in self._copies)
        (self.dirty.discard if same else self.dirty.add)(row)

    def read_from(self, row: int, copy: int) -> None:
        """Read *row* from *copy* from now on."""
        self._sources[row] = copy

    def reload(self) -> None:
        """Put back what was loaded."""
        for row in list(self.dirty):
            for copy in (0, 1):
                self.write(row, copy, self._loaded[row * ROW_BYTES :][:ROW_BYTES].tobytes())
        self._sources.clear()

    def read_header(self) -> None:
        """Take the header for a job as it lies there, its CRC not looked at.

        Raises AbiError when the firmware does not take what it says.
        """
        self._header = self._program.header
        if self.dirty.isdisjoint(range(HEADER_ROWS)):
            return
        header = TableHeader.decode_many(self.read(0) + self.read(1))[0]
        check(header, self._target, self._abi)
        if header.arena_bytes > self._target.ddr_bytes:
            text = f"the arena has {header.arena_bytes} bytes"
            raise FirmwareError(ErrorCode.OUT_OF_DDR, text)
        self._header = header

    def touched(self, toa: int) -> bool:
        """Whether TOA *toa* may read as another than was loaded."""
        if self._header is not self._program.header:
            return True
        return bool(self.dirty) and not self.dirty.isdisjoint(self.rows_of(toa))

    def step(self, toa: int) -> Step:
        """Return TOA *toa* as its records lie there, their CRCs not looked at.

        Raises AbiError when a record breaks a rule of the machine.
        """
        header, program = self._header, self._program
        if toa >= header.toa_count:
            text = f"the ring names TOA {toa}, the header counts {header.toa_count}"
            raise FirmwareError(ErrorCode.BAD_INDEX, text)
        record = Toa.decode_many(self.read(self.toa_row(toa)))[0]
        known = program.sources[program.toas[toa].op]
        step = Step(
            index=toa,
            toa=record,
            tensors=tuple(self._tensor(index, header) for index in record.tensors),
            rounding=header.rounding,
            target=self._target,
            where=f"TOA {toa} (%{symbol_at(program.symbols, known.symbol)})",
        )
        check_step(step)
        return step

    def _tensor(self, index: int, header: TableHeader) -> TensorDescriptor | None:
        if index == NO_TENSOR:
            return None
        if index >= min(header.tensor_count, len(self._program.tensors)):
            text = f"tensor {index} is named, the table has {header.tensor_count}"
            raise FirmwareError(ErrorCode.BAD_INDEX, text)
        record = TensorDescriptor.decode_many(self.read(HEADER_ROWS + index))[0]
        own = self._program.header
        room = Room(
            target=self._target,
            arena_bytes=own.arena_bytes,
            constant_bytes=len(self._program.constants),
        )
        check_tensor(record, room, f"tensor {index}")
        return record
