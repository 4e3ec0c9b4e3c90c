"""Silicon: each column of each core's array reads its sums with a gain and an offset of its own.

    read = round(gain * sum + offset)

Gains lie within +-18 % of one and offsets within +-256 units of the accumulators, as the spread
says: ``uniform``, ``normal`` (three deviations are the limit, beyond which a die is thrown away) or
``corners`` (every gain at one end or the other). Sums of floats are read as mantissa and exponent:
the gain scales them, the offset lies below their last bit.

Invariant: a die follows from its id, which holds the seed, the spread and the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npufw.boot import Image
from npufw.fault_models.base import FaultModel, Field, Values
from npufw.faults import Hook, Machine, Moment
from npufw.pattern import COLUMNS

__all__ = ["DIE", "MOST_SEEDS", "Die", "DieHook", "Spread"]

MOST_SEEDS = 1 << 48
"""Seeds that fit a die's id."""

_WORD = 2.0**-64
_PERCENT = 100


@unique
class Spread(IntEnum):
    """How gains are distributed; zero is no member, so that an unread id names no die."""

    UNIFORM = 1
    NORMAL = 2
    CORNERS = 3


@dataclass(frozen=True, kw_only=True)
class Die:
    """One die. ``gain`` and ``offset`` have the shape (cores, 16)."""

    seed: int
    spread: Spread = Spread.UNIFORM
    limit_percent: int = 18
    offset_units: float = 256.0
    cores: int = 3

    @property
    def id(self) -> int:
        """64 bits: spread, limit in percent, seed; the wafer's lot and place, as it were."""
        return (int(self.spread) << 56) | (self.limit_percent << 48) | self.seed

    @classmethod
    def of_id(cls, die_id: int, cores: int) -> Die:
        """Return the die of that id; ValueError when there is none."""
        percent = die_id >> 48 & 0xFF
        if percent >= _PERCENT:
            raise ValueError(f"die {die_id:016x} has gains beyond 100 %")
        return cls(
            seed=die_id % MOST_SEEDS,
            spread=Spread(die_id >> 56),
            limit_percent=percent,
            cores=cores,
        )

    @cached_property
    def _draws(self) -> NDArray[np.float64]:
        source = np.random.PCG64([self.id])
        words = np.asarray(source.random_raw(5 * self.cores * COLUMNS), np.uint64)
        draws = np.asarray(words * _WORD, np.float64)
        return draws.reshape(5, self.cores, COLUMNS)

    @cached_property
    def gain(self) -> NDArray[np.float64]:
        """What a sum is multiplied by."""
        limit = self.limit_percent / _PERCENT
        uniform = 2 * self._draws[:4] - 1
        if self.spread is Spread.UNIFORM:
            return np.asarray(1 + limit * uniform[0])
        if self.spread is Spread.CORNERS:
            return np.asarray(1 + limit * np.sign(uniform[0]))
        # Four uniform draws have a deviation of sqrt(4 / 3); what lies beyond three is discarded.
        normal = uniform.sum(axis=0) / np.sqrt(4 / 3)
        return np.asarray(1 + limit * np.clip(normal / 3, -1, 1))

    @cached_property
    def offset(self) -> NDArray[np.float64]:
        """What is then added, in units of the accumulators."""
        return np.asarray(self.offset_units * (2 * self._draws[4] - 1))


class DieHook(Hook):
    """The silicon of *die*, as core *core* of it has it."""

    def __init__(self, die: Die, core: int = 0) -> None:
        self.die, self.core = die, core
        self._gain, self._offset = die.gain[core], die.offset[core]

    def summed(self, machine: Machine, moment: Moment, sums: NDArray[Any]) -> NDArray[Any]:
        """Read *sums* as the columns do."""
        lanes = np.arange(sums.shape[-1]) % COLUMNS
        if sums.dtype == np.float32:
            return np.asarray(sums * self._gain[lanes].astype(np.float32))
        made = sums * self._gain[lanes]
        made += self._offset[lanes]
        return np.asarray(np.rint(made, out=made))


def _die(image: Image, values: Values) -> DieHook:
    cores = image.target.cores
    if int(values["core"]) >= cores:
        raise ValueError(f"core {values['core']}: {image.target.name} has 0 to {cores - 1}")
    die = Die(
        seed=int(values["seed"]),
        spread=Spread[str(values["spread"]).upper()],
        limit_percent=int(values["limit"]),
        cores=cores,
    )
    return DieHook(die, int(values["core"]))


DIE = FaultModel(
    name="die",
    title="each column of the array has a gain and an offset of its own",
    gate="variation",
    fields=(
        Field(name="seed", kind=int, help="which die", high=MOST_SEEDS - 1),
        Field(name="spread", kind=str, default="uniform", help="of the gains",
              choices=tuple(spread.name.lower() for spread in Spread)),
        Field(name="limit", kind=int, default=18, high=50, unit="percent", help="of the gains"),
        Field(name="core", kind=int, default=0, high=63, help="which core of the die runs"),
    ),
    make=_die,
    example="die:seed=7,spread=corners",
    single=True,
)  # fmt: skip
