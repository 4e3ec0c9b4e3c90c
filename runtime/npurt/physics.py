"""How long work takes when cores share DDR, in emulated time.

A job alternates between computing and reading DDR; DDR serves one reader at a time. With q_j the
share of time that another core's work is at DDR, a read takes 1 + sum(q_j) times as long: the mean
value analysis of a closed network with one queue (Reiser and Lavenberg 1980), in the fixed-point
form of Schweitzer.

Invariant: the slowdown depends on what the cores do at this moment and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

__all__ = ["LOADING", "Machine", "Work", "slowdowns"]

_ENOUGH = 1e-12
_MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What a core does: its time alone, and how much of that it is at DDR. Compared by identity."""

    alone_us: int
    ddr_us: int

    def __post_init__(self) -> None:
        if not 0 <= self.ddr_us <= self.alone_us or not self.alone_us:
            text = f"DDR takes 0 to all of a work's time, got {self.ddr_us} of {self.alone_us} us"
            raise ValueError(text)


LOADING = Work(alone_us=1, ddr_us=1)
"""Moving a context in: DDR alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The device's physical parameters. Times in emulated microseconds."""

    cores: int = 3
    switch_us: int = 5_000
    """A context switch: drain the units, save and load registers."""
    quantum_us: int = 10_000
    """What a time-sliced context runs before the next one of its core."""
    reload_us: int = 4_500
    """Moving a context's memory back in when it was displaced, DDR undisturbed."""
    resident: int = 2
    """Contexts that a core's memory holds."""


@lru_cache(maxsize=1 << 16)
def slowdowns(works: tuple[Work, ...]) -> tuple[float, ...]:
    """Return by what each of *works*, which run at the same time, takes longer than alone."""
    shares = [0.5] * len(works)
    for _ in range(_MOST_ROUNDS):
        total = sum(shares)
        stretched = [
            work.ddr_us * (1 + total - share) for work, share in zip(works, shares, strict=True)
        ]
        found = [
            ddr / (work.alone_us - work.ddr_us + ddr) if ddr else 0.0
            for work, ddr in zip(works, stretched, strict=True)
        ]
        moved = max((abs(a - b) for a, b in zip(shares, found, strict=True)), default=0.0)
        shares = found
        if moved < _ENOUGH:
            break
    total = sum(shares)
    return tuple(
        (work.alone_us - work.ddr_us + work.ddr_us * (1 + total - share)) / work.alone_us
        for work, share in zip(works, shares, strict=True)
    )
