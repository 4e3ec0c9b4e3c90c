"""The device's memory as the runtime hands it out: constants of models, arenas of jobs.

The firmware's buddy allocator places them, with canaries behind each; the bytes are real, so a
program that writes beyond its arena is found as on a board.

Invariant: what is allocated has one holder, by name; exhaustion is an error that names them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npufw.buddy import BuddyAllocator
from npufw.errors import FirmwareError
from npurt.buffers import ALIGNMENT
from npurt.errors import DeviceMemoryFull

__all__ = ["DeviceMemory", "Region"]

_LOG = logging.getLogger("npurt")


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A range of device memory; ``memory`` are its bytes."""

    address: int
    size: int
    memory: NDArray[np.uint8]


class DeviceMemory:
    """*size* bytes of device memory, a whole number of units of 64 KiB."""

    def __init__(self, size: int) -> None:
        # Pages that nobody has touched cost the host nothing.
        raw: NDArray[np.uint8] = np.empty(size + ALIGNMENT, np.uint8)
        first = -raw.ctypes.data % ALIGNMENT
        self._bytes = raw[first : first + size]
        self.allocator = BuddyAllocator(size, memory=self._bytes.data)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.allocator.pool

    @property
    def free_bytes(self) -> int:
        """Bytes that nobody holds."""
        return self.allocator.usage().free

    @property
    def largest_free(self) -> int:
        """Bytes of the largest block that nobody holds."""
        return self.allocator.usage().largest

    def allocate(self, size: int, holder: str) -> Region:
        """Return *size* bytes for *holder*. Raises DeviceMemoryFull, which says who holds what."""
        size = max(1, size)
        try:
            address = self.allocator.allocate(size, holder)
        except FirmwareError as error:
            raise DeviceMemoryFull(f"{holder}: {error.detail}") from error
        return Region(address, size, self._bytes[address : address + size])

    def free(self, region: Region) -> None:
        """Take *region* back; one whose guard was written to is taken back too, and logged."""
        try:
            self.allocator.free(region.address)
        except FirmwareError as error:
            _LOG.error("device memory: %s", error)
            self.allocator.discard(region.address)

    def occupancy(self) -> Iterator[str]:
        """Yield the lines of a map: a bar of the memory, then each block with its holder."""
        usage = self.allocator.usage()
        free = f"{usage.largest:,} free in one piece"
        yield f"{usage.used:,} of {usage.pool:,} bytes are held, {free}"
        yield f"|{self.allocator.drawn()}|"
        for block in self.allocator.blocks():
            if not block.free:
                text = f"{block.size:,} bytes in a block of {block.span:,}"
                yield f"  0x{block.address:08x} {block.owner}: {text}"
