"""Gate 2: upsets of every kind in a digits run with the check memory on; what became of each.

An id is a cell of regions x shapes x times (id modulo their number) and a seed. An upset is

| outcome | when |
| --- | --- |
| masked | the output is right and nobody noticed |
| repaired | it was noticed and the output is right, bit by bit |
| refused | the job ended with an error |
| silent | the output is wrong |

A trial fails when an upset before the check or after the use is silent, or when the next job on the
same machine is wrong. Upsets between check and use are no failures: no check before a read can see
them. How many are silent is reported with its interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import AbiError
from npuabi.progress import Progress
from npufw.defences.ripple import Ripple
from npufw.engine import Engine
from npufw.fault_models.draws import Source
from npufw.fault_models.flips import TIMES, Upset, Upsets, draw_upset
from npufw.faults import Outcome
from npufw.gates.subject import load_subject
from tools.campaigns.base import Campaign, Tally
from tools.campaigns.wilson import wilson

__all__ = ["CAMPAIGN", "REGIONS", "SHAPES", "Bench", "Cell", "Verdict", "cell_of"]

REGIONS = ("weights", "activations", "bias", "header", "descriptor", "requant")
SHAPES: dict[str, tuple[str, int]] = {
    "1 bit": ("scattered", 1),
    "2 bits": ("scattered", 2),
    "burst of 4": ("burst", 4),
    "byte": ("byte", 1),
    "row of 64": ("row", 1),
}
_CELLS = [(r, s, t) for r in REGIONS for s in SHAPES for t in TIMES]
_SAMPLES = 32
_NEXT_JOB_EVERY = 16

Array = NDArray[Any]


class Verdict(StrEnum):
    """What became of an upset."""

    MASKED = auto()
    REPAIRED = auto()
    REFUSED = auto()
    SILENT = auto()


@dataclass(frozen=True)
class Cell:
    """What is hit, how and when."""

    region: str
    shape: str
    time: str


def cell_of(number: int) -> Cell:
    """Return the cell of the id *number*."""
    return Cell(*_CELLS[number % len(_CELLS)])


@dataclass
class Bench:
    """The digits network on a machine with the check memory, and right outputs to compare with."""

    upsets: Upsets = field(default_factory=Upsets)

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self._image, hooks=[self.upsets, Ripple(self._image)])

    @cached_property
    def _subject(self) -> Any:
        return load_subject()

    @property
    def _image(self) -> Any:
        return self._subject.image

    @cached_property
    def _right(self) -> list[dict[str, Array]]:
        plain = Engine(self._image)
        return [plain.run(self._sample(number)) for number in range(_SAMPLES)]

    def _sample(self, number: int) -> dict[str, Array]:
        at = number % _SAMPLES
        return {name: array[at : at + 1] for name, array in self._subject.inputs.items()}

    def upset(self, number: int) -> Upset:
        """Return the upset of the id *number*."""
        cell = cell_of(number)
        shape, bits = SHAPES[cell.shape]
        source = Source(number)
        return draw_upset(
            self._image, source, region=cell.region, shape=shape, bits=bits, at=cell.time
        )

    def judge(self, number: int, upset: Upset) -> tuple[Verdict, bool]:
        """Return what became of *upset*, and whether the next job was right or not looked at."""
        engine, at = self._engine, number // len(_CELLS)
        engine.reload()
        engine.drain()
        self.upsets.load(upset)
        verdict = self._verdict(at)
        self.upsets.load(None)
        if verdict is not Verdict.REFUSED and number % _NEXT_JOB_EVERY:
            return verdict, True
        return verdict, self._runs_right(at + 1)

    def _verdict(self, at: int) -> Verdict:
        try:
            right = self._runs_right(at)
        except AbiError:
            return Verdict.REFUSED
        if not right:
            return Verdict.SILENT
        noticed = any(event.outcome is Outcome.DETECTED for event in self._engine.log)
        return Verdict.REPAIRED if noticed else Verdict.MASKED

    def _runs_right(self, at: int) -> bool:
        given, right = self._engine.run(self._sample(at)), self._right[at % _SAMPLES]
        return all(np.array_equal(given[name], right[name], equal_nan=True) for name in right)


def _run(ids: Sequence[int], progress: Progress) -> Tally:
    bench, tally = Bench(), Tally()
    counts: Counter[tuple[Cell, Verdict]] = Counter()
    bits: Counter[tuple[int, Verdict]] = Counter()
    for done, number in enumerate(ids, start=1):
        cell, upset = cell_of(number), bench.upset(number)
        verdict, next_right = bench.judge(number, upset)
        counts[cell, verdict] += 1
        if cell.time == "between" and cell.shape == "1 bit" and upset.space is not None:
            bits[upset.masks[0].bit_length() - 1, verdict] += 1
        if verdict is Verdict.SILENT and cell.time != "between":
            tally.failures.append(f"{number}: silent, {cell.time} the use: {upset.text}")
        if not next_right:
            tally.failures.append(f"{number}: the next job is wrong: {upset.text}")
        progress("upsets", done, len(ids))
    tally.trials = len(ids)
    tally.figures = {**_by_time(counts), **_by_region(counts), **_by_shape(counts), **_by_bit(bits)}
    return tally


def _by_time(counts: Counter[tuple[Cell, Verdict]]) -> dict[str, int | float | str]:
    return {time: _row(_sum(counts, time=time)) for time in TIMES}


def _by_region(counts: Counter[tuple[Cell, Verdict]]) -> dict[str, int | float | str]:
    return {
        f"{time}, {region}": _row(_sum(counts, time=time, region=region))
        for time in TIMES
        for region in REGIONS
    }


def _by_shape(counts: Counter[tuple[Cell, Verdict]]) -> dict[str, int | float | str]:
    return {
        f"between, {shape}": _row(_sum(counts, time="between", shape=shape)) for shape in SHAPES
    }


def _by_bit(bits: Counter[tuple[int, Verdict]]) -> dict[str, int | float | str]:
    rows: dict[str, int | float | str] = {}
    for bit in range(8):
        found = Counter({verdict: bits[bit, verdict] for verdict in Verdict})
        rows[f"between, bit {bit} of a byte of a tensor"] = _row(found)
    return rows


def _sum(counts: Counter[tuple[Cell, Verdict]], **wanted: str) -> Counter[Verdict]:
    found: Counter[Verdict] = Counter()
    for (cell, verdict), count in counts.items():
        if all(getattr(cell, name) == value for name, value in wanted.items()):
            found[verdict] += count
    return found


def _row(found: Counter[Verdict]) -> str:
    total = found.total()
    low, high = wilson(found[Verdict.SILENT], total)
    parts = ", ".join(f"{verdict} {found[verdict]:,}" for verdict in Verdict)
    part = found[Verdict.SILENT] / max(1, total)
    return f"{total:,}: {parts} ({part:.2%}, 95 % in {low:.2%} to {high:.2%})"


CAMPAIGN = Campaign(
    name="flips",
    title="upsets in a digits run with the check memory",
    short=360,
    long=38_000,
    run=_run,
)
