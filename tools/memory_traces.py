"""Seeded allocation traces of many shapes, and what plays them against an allocator."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from npuabi.errors import ErrorCode
from npufw.allocator import Allocator
from npufw.errors import FirmwareError

__all__ = ["TRACES", "Player", "churn"]

_KIB, _MIB = 1 << 10, 1 << 20


def _libfabric(rng: random.Random) -> int:
    """Half small, a third of middle size, the rest large: 50, 37 and 13 in a hundred."""
    low, high = rng.choices([(1, 8 * _KIB), (8 * _KIB, 256 * _KIB), (256 * _KIB, 4 * _MIB)],
                            [50, 37, 13])[0]  # fmt: skip
    return rng.randrange(low, high)


SIZES: dict[str, Callable[[random.Random], int]] = {
    "uniform": lambda rng: rng.randrange(64 * _KIB, 8 * _MIB),
    "log-uniform": lambda rng: int(2 ** rng.uniform(12, 23)),
    "libfabric": _libfabric,
    "models": lambda rng: rng.choice([311_296, 4_567_040, 3_907_584, 11_960_320, 106_496]),
    "units": lambda rng: rng.choice([1, 64 * _KIB, 64 * _KIB + 1, 128 * _KIB]),
}

TRACES = (*SIZES, "sawtooth", "half holes", "half full", "quite full")
"""What ``Player`` plays."""


class Player:
    """Plays one trace on one allocator; what does not fit is passed over."""

    def __init__(self, allocator: Allocator, trace: str, seed: int) -> None:
        self.it, self.trace = allocator, trace
        self._rng = random.Random(f"{trace} {seed}")
        self._held: list[int] = []
        self._fresh = allocator.blocks()
        self._size = SIZES.get(trace, SIZES["log-uniform"])
        self._done = 0

    def play(self, operations: int, *, check_each: int) -> None:
        """Do so many operations and check the invariants after each *check_each* of them."""
        for _ in range(operations):
            self._done += 1
            if self._grows():
                self._allocate()
            elif self._held:
                self.it.free(self._held.pop(self._victim()))
            if self._done % check_each == 0:
                self.it.check()

    def finish(self) -> None:
        """Free everything, in a random order; the pool must be as it was."""
        self._rng.shuffle(self._held)
        for address in self._held:
            self.it.free(address)
        self._held.clear()
        self.it.check()
        if self.it.blocks() != self._fresh:
            raise AssertionError(f"{self.trace}: the pool is not what it was")

    def _allocate(self) -> None:
        try:
            self._held.append(self.it.allocate(self._size(self._rng), self.trace))
        except FirmwareError as error:
            if error.code not in (ErrorCode.OUT_OF_MEMORY, ErrorCode.BAD_SIZE):
                raise
            if self._held:
                self.it.free(self._held.pop(self._victim()))

    def _grows(self) -> bool:
        used = self.it.usage().used / self.it.pool
        if self.trace == "sawtooth":
            return self._done % 100 < 60
        if self.trace == "half full":
            return used < 0.5
        if self.trace == "quite full":
            return True
        return self._rng.random() < 0.55

    def _victim(self) -> int:
        if self.trace == "half holes":
            return self._rng.randrange(0, len(self._held), 2)
        return self._rng.randrange(len(self._held))


def churn(pool: Allocator, *, threads: int, operations: int) -> None:
    """Let *threads* allocate, fill with their own token, and find it whole when they free."""
    memory, broken = bytearray(pool.pool), list[str]()

    def work(token: int) -> None:
        rng, held = random.Random(token), list[tuple[int, int]]()
        for _ in range(operations):
            if held and (len(held) > 6 or rng.random() < 0.5):
                address, size = held.pop(rng.randrange(len(held)))
                if memory[address : address + size] != bytes([token]) * size:
                    broken.append(f"thread {token} at {address}")
                pool.free(address)
                continue
            size = rng.randrange(1, 100_000)
            try:
                address = pool.allocate(size, str(token))
            except FirmwareError:
                continue
            memory[address : address + size] = bytes([token]) * size
            held.append((address, size))
        for address, _ in held:
            pool.free(address)

    running = [threading.Thread(target=work, args=(token,)) for token in range(1, threads + 1)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    pool.check()
    if broken or pool.usage().used:
        raise AssertionError(f"{broken or pool.usage()}")
