"""Device memory: what every allocator of it shares, whichever way it chooses a place.

A block is what an allocation takes: the bytes asked for, then its guard, then what rounding leaves.

    block     | size bytes of the owner | guard: canary | rest | 64 bytes of canary |

The canaries are written only where there is a memory to write them to; they are checked when the
block is freed and on demand. A write beyond the end meets the first, one before the start the last
canary of the block in front.

Invariants, checked by ``check``: blocks lie in the pool and do not overlap; used and free bytes
make up the pool; an error leaves the state as it was. All methods may be called from any thread.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from operator import index
from typing import NamedTuple, NoReturn, SupportsIndex

from npuabi.errors import ErrorCode
from npufw.errors import FirmwareError
from npufw.nth import Nth

__all__ = ["Allocator", "Block", "GuardedMemory", "Usage"]

GuardedMemory = bytearray | memoryview
"""The bytes of the device memory, as far as canaries need them."""

_TAIL = 64
_MAGIC = 0x5AFE_CA9A_12D5_0000
_MASK = (1 << 64) - 1
_FILL = "#+:-=*%@"


class Block(NamedTuple):
    """A piece of the pool: ``span`` bytes from ``address``, of which the owner asked for ``size``.

    A free piece has size 0 and no owner.
    """

    address: int
    span: int
    size: int
    owner: str

    @property
    def free(self) -> bool:
        """Whether nobody has it."""
        return self.size == 0


class Usage(NamedTuple):
    """Bytes of a pool. ``asked`` is what owners asked for, ``largest`` the largest free piece."""

    pool: int
    used: int
    asked: int
    free: int
    largest: int
    blocks: int

    @property
    def fragmentation(self) -> float:
        """External fragmentation: the part of the free bytes that the largest piece lacks."""
        return 1 - self.largest / self.free if self.free else 0.0

    @property
    def waste(self) -> float:
        """Internal waste: the part of the used bytes that nobody asked for, guards included."""
        return 1 - self.asked / self.used if self.used else 0.0


class Allocator(ABC):
    """Gives out pieces of a pool of *pool* bytes, each with a guard of *guard* bytes behind it.

    *memory*, where there is one, holds the pool from its first byte. Raises ValueError for a pool
    that holds nothing.
    """

    unit: int
    """Addresses are multiples of it, and so are spans."""

    def __init__(self, pool: int, *, guard: int, memory: GuardedMemory | None = None) -> None:
        if pool // self.unit < 1 or guard < 0:
            raise ValueError(f"a pool has at least {self.unit} bytes, got {pool}, guard {guard}")
        if memory is not None and len(memory) < pool:
            raise ValueError(f"{len(memory)} bytes of memory for a pool of {pool}")
        self.pool = pool // self.unit * self.unit
        self.guard = guard
        self._memory = memory
        self._held: dict[int, Block] = {}
        self._used = self._asked = 0
        self._failing: Nth | None = None
        self._lock = threading.RLock()

    # --- what an allocator decides ----------------------------------------------------------------

    @abstractmethod
    def _take(self, span: int) -> tuple[int, int] | None:
        """Take a piece of at least *span* bytes: its address and span; None without one."""

    @abstractmethod
    def _give(self, address: int, span: int) -> None:
        """Take back a piece that ``_take`` gave."""

    @abstractmethod
    def _free(self) -> list[tuple[int, int]]:
        """Return (address, span) of every free piece, by address."""

    @abstractmethod
    def largest_free(self) -> int:
        """Return the span of the largest free piece in bytes."""

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold; costs time in the number of blocks."""
        with self._lock:
            pieces = self.blocks()
            assert sum(p.span for p in pieces) == self.pool, "pieces do not make up the pool"
            assert sum(p.span for p in pieces if not p.free) == self._used, "used bytes"
            assert not pieces or pieces[0].address == 0, "the pool does not begin with a piece"
            for first, second in pairwise(pieces):
                assert first.address + first.span == second.address, f"{first} meets {second}"
            for piece in pieces:
                assert piece.address % self.unit == 0 == piece.span % self.unit, f"{piece}"
                assert piece.free or piece.size + self.guard <= piece.span, f"{piece}"

    # --- what owners call -------------------------------------------------------------------------

    def allocate(self, size: int, owner: str = "") -> int:
        """Return the address of *size* bytes for *owner*.

        Raises FirmwareError: BAD_SIZE, OUT_OF_MEMORY.
        """
        with self._lock:
            try:
                size = index(size)  # numpy's whole numbers, too
            except TypeError:
                self._refuse_size(size)
            if not 0 < size <= self.pool - self.guard:
                self._refuse_size(size)
            if self._failing is not None and self._failing():
                raise FirmwareError(ErrorCode.OUT_OF_MEMORY, f"{size} bytes: made to fail")
            found = self._take(size + self.guard)
            if found is None:
                self._refuse_room(size)
            address, span = found
            block = Block(address, span, size, owner)
            self._held[address] = block
            self._used += span
            self._asked += size
            if self._memory is not None:
                self._arm(self._memory, block)
            return address

    def free(self, address: int) -> None:
        """Give back the block at *address*.

        Raises FirmwareError: DOUBLE_FREE, BAD_ADDRESS; GUARD_BROKEN, and then the block is still
        held (see ``discard``).
        """
        with self._lock:
            block = self._held.get(address)
            if block is None:
                self._refuse_address(address)
            if self._memory is not None:
                self._confirm(self._memory, block)
            self._release(block)

    def discard(self, address: int) -> None:
        """Give back the block at *address* though its guard is broken; else as ``free``."""
        with self._lock:
            block = self._held.get(address)
            if block is None:
                self._refuse_address(address)
            self._release(block)

    def check_guards(self) -> None:
        """Check every block's canaries. Raises FirmwareError GUARD_BROKEN for the first broken."""
        with self._lock:
            if self._memory is not None:
                for block in sorted(self._held.values()):
                    self._confirm(self._memory, block)

    def fail_at(self, number: int, *, forever: bool = False) -> None:
        """Let the *number*-th allocation from now fail, from 1, and with *forever* all after it.

        0 ends that.
        """
        with self._lock:
            self._failing = Nth(number, forever) if number else None

    # --- what can be seen -------------------------------------------------------------------------

    def blocks(self) -> list[Block]:
        """Return every piece of the pool by address, the free ones too: the occupancy map."""
        with self._lock:
            free = [Block(address, span, 0, "") for address, span in self._free()]
            return sorted([*self._held.values(), *free])

    def usage(self) -> Usage:
        """Return the bytes in use and free."""
        with self._lock:
            free = self.pool - self._used
            largest = self.largest_free()
            return Usage(self.pool, self._used, self._asked, free, largest, len(self._held))

    def drawn(self, width: int = 64) -> str:
        """Return the occupancy as *width* characters: ``.`` is free, others are used, by owner."""
        pieces, line = self.blocks(), [" "] * width
        signs = {name: _FILL[i % len(_FILL)] for i, name in enumerate(self._owners(pieces))}
        for piece in pieces:
            first = piece.address * width // self.pool
            last = max(first, ((piece.address + piece.span) * width - 1) // self.pool)
            for place in range(first, last + 1):
                if not piece.free or line[place] == " ":
                    line[place] = "." if piece.free else signs[piece.owner]
        return "".join(line)

    @staticmethod
    def _owners(pieces: list[Block]) -> Iterator[str]:
        return iter(dict.fromkeys(piece.owner for piece in pieces if not piece.free))

    # --- inside -----------------------------------------------------------------------------------

    def _release(self, block: Block) -> None:
        del self._held[block.address]
        self._used -= block.span
        self._asked -= block.size
        self._give(block.address, block.span)

    def _refuse_size(self, size: object) -> NoReturn:
        text = f"{size} bytes, of a pool of {self.pool} with guards of {self.guard}"
        raise FirmwareError(ErrorCode.BAD_SIZE, text)

    def _refuse_room(self, size: int) -> NoReturn:
        usage = self.usage()
        holders: dict[str, int] = {}
        for block in self._held.values():
            holders[block.owner or "nobody"] = holders.get(block.owner or "nobody", 0) + block.span
        most = sorted(holders.items(), key=lambda item: -item[1])[:3]
        held = ", ".join(f"{name} {span}" for name, span in most) or "none"
        text = (
            f"{size} bytes and a guard of {self.guard}: {usage.free} bytes are free,"
            f" {usage.largest} in one piece; held: {held}"
        )
        raise FirmwareError(ErrorCode.OUT_OF_MEMORY, text)

    def _refuse_address(self, address: object) -> NoReturn:
        if not isinstance(address, SupportsIndex) or not 0 <= index(address) < self.pool:
            text = f"address {address} is outside the pool of {self.pool} bytes"
            raise FirmwareError(ErrorCode.BAD_ADDRESS, text)
        address = index(address)
        inside = next((b for b in self._held.values() if b.address < address < sum(b[:2])), None)
        if inside is None:
            raise FirmwareError(ErrorCode.DOUBLE_FREE, f"nobody holds address {address:#x}")
        text = (
            f"address {address:#x} lies inside the block at {inside.address:#x} of {inside.owner}"
        )
        raise FirmwareError(ErrorCode.BAD_ADDRESS, text)

    @staticmethod
    def _spans(block: Block, guard: int) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of a block's canaries; they do not overlap."""
        end = block.address + block.span
        first = block.address + block.size
        stop = min(first + guard, end)
        yield first, stop
        if guard and stop < end:
            yield max(stop, end - _TAIL), end

    def _arm(self, memory: GuardedMemory, block: Block) -> None:
        for first, end in self._spans(block, self.guard):
            memory[first:end] = _canary(block.address, end - first)

    def _confirm(self, memory: GuardedMemory, block: Block) -> None:
        for first, end in self._spans(block, self.guard):
            found, whole = bytes(memory[first:end]), _canary(block.address, end - first)
            if found != whole:
                at = next(i for i, (a, b) in enumerate(zip(found, whole, strict=True)) if a != b)
                raise FirmwareError(ErrorCode.GUARD_BROKEN, _story(block, first + at))


def _canary(address: int, size: int) -> bytes:
    word = ((_MAGIC ^ address * 0x9E37_79B9_7F4A_7C15) & _MASK).to_bytes(8, "little")
    return (word * (size // 8 + 1))[:size]


def _story(block: Block, at: int) -> str:
    beyond = at - block.address - block.size
    return (
        f"byte {at:#x}, {beyond} bytes behind the {block.size} bytes"
        f" of {block.owner or 'nobody'} at {block.address:#x}, is no canary any more"
    )
