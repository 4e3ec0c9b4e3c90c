"""Host memory for inputs and outputs: aligned blocks that go back to a pool, and who leaked some.

Invariant: a block is lent to one holder at a time. A block whose arrays somebody still holds when
it comes back is never lent again: it is left to them (CPython's reference counts tell).
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["ALIGNMENT", "Block", "BufferPool", "Leak"]

ALIGNMENT = 64 << 10
"""What the base of memory that the device reaches is a multiple of."""

_KEPT_BYTES = 256 << 20


class Block:
    """Aligned host memory; ``array`` gives a look at it as a tensor."""

    __slots__ = ("_at_rest", "_first", "_raw", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._raw: NDArray[np.uint8] = np.empty(size + ALIGNMENT, np.uint8)
        self._first = -self._raw.ctypes.data % ALIGNMENT
        self._at_rest = sys.getrefcount(self._raw)

    def array(
        self, shape: Sequence[int], dtype: DTypeLike, strides: Sequence[int] | None = None
    ) -> NDArray[Any]:
        """Return the block's first bytes as an array; each call gives another look at them."""
        return np.ndarray(shape, dtype, self._raw, self._first, strides)

    @property
    def held(self) -> bool:
        """Whether somebody still holds an array of it."""
        return sys.getrefcount(self._raw) > self._at_rest


@dataclass(frozen=True, slots=True)
class Leak:
    """Outputs that nobody released: of which job, how many bytes, and the line that made it."""

    job: int
    size: int
    place: str
    at_close: bool

    def __str__(self) -> str:
        how = "still held when the service closed" if self.at_close else "dropped unreleased"
        return (
            f"{self.place}: the outputs of job {self.job} ({self.size:,} bytes) were {how}; use"
            " 'with future.result() as outputs:' or call outputs.release()"
        )


@dataclass(slots=True)
class BufferPool:
    """Blocks of powers of two from 64 KiB, lent and taken back."""

    _free: dict[int, list[Block]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _dropped: deque[Sequence[Block]] = field(default_factory=deque)
    _lent_bytes: int = 0
    _free_bytes: int = 0
    retired_bytes: int = 0
    """Bytes that were left to those who held their arrays."""

    @property
    def lent_bytes(self) -> int:
        """Bytes that are lent now."""
        self._settle()
        return self._lent_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes that wait to be lent."""
        return self._free_bytes

    def lend(self, size: int) -> Block:
        """Return a block of at least *size* bytes. Raises MemoryError."""
        self._settle()
        whole = _block_bytes(size)
        with self._lock:
            waiting = self._free.get(whole)
            block = waiting.pop() if waiting else None
            self._lent_bytes += whole
            self._free_bytes -= whole if block else 0
        return block or self._made(whole)

    def take_back(self, blocks: Sequence[Block]) -> None:
        """Take *blocks* back; who calls holds no array of them any more."""
        for block in blocks:
            held = block.held
            with self._lock:
                self._lent_bytes -= block.size
                if held:
                    self.retired_bytes += block.size
                elif self._free_bytes + block.size <= _KEPT_BYTES:
                    self._free.setdefault(block.size, []).append(block)
                    self._free_bytes += block.size

    def drop(self, blocks: Sequence[Block]) -> None:
        """Take *blocks* back later: for destructors, which may run while the pool is locked."""
        self._dropped.append(blocks)

    def _made(self, size: int) -> Block:
        try:
            return Block(size)
        except MemoryError:
            with self._lock:
                self._lent_bytes -= size
            raise

    def _settle(self) -> None:
        while self._dropped:
            try:
                blocks = self._dropped.popleft()
            except IndexError:
                return
            self.take_back(blocks)


def _block_bytes(size: int) -> int:
    units = math.ceil(size / ALIGNMENT)
    return ALIGNMENT << (units - 1).bit_length() if units > 1 else ALIGNMENT
