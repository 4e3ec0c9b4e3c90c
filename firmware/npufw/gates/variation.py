"""Gate 7, silicon variation: 200 dies, each untrimmed and trimmed by the table that it was given.

What counts is whether a die gives the class that the nominal one gives; every answer comes from the
kernels. Each die sees other samples, so that all are seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.progress import Progress
from npufw.boot import Image
from npufw.defences.calibration import Trim, calibrate
from npufw.efuse import GAIN_STEP, Efuse, read_efuse, rows_of
from npufw.engine import Engine
from npufw.fault_models.die import Die, DieHook, Spread
from npufw.faults import Hook
from npufw.gates.base import Gate, Shown, Subject

__all__ = ["DIES", "GATE", "Agreement", "classes", "die_of", "fused", "residual"]

DIES = 200
_SAMPLES = 4
_UNTRIMMED = 50
"""Dies that are run untrimmed, too: the symptom needs no more."""

_SPREADS = (Spread.UNIFORM, Spread.NORMAL, Spread.CORNERS)
_FULL_SCALE = 127


@dataclass(slots=True)
class Agreement:
    """Answers given, those that are the nominal die's, and the worst die's share of these."""

    answers: int = 0
    same: int = 0
    worst: float = 1.0

    def add(self, found: NDArray[np.int64], nominal: NDArray[np.int64]) -> None:
        """Count one die's answers."""
        same = int((found == nominal).sum())
        self.answers += len(found)
        self.same += same
        self.worst = min(self.worst, same / len(found))

    @property
    def share(self) -> float:
        """Of the answers, how many are the nominal die's."""
        return self.same / max(1, self.answers)


def die_of(number: int, cores: int) -> Die:
    """Return die *number* of a wafer: the three spreads take turns."""
    return Die(seed=number, spread=_SPREADS[number % len(_SPREADS)], cores=cores)


def fused(die: Die, image: Image) -> Efuse:
    """Return what the array of *die* holds once it has been calibrated."""
    fuses = calibrate(die, image.target)
    return read_efuse(rows_of(fuses), len(fuses), die.cores)


def classes(
    image: Image, inputs: Mapping[str, NDArray[Any]], hooks: Sequence[Hook] = ()
) -> NDArray[np.int64]:
    """Return the class that *image* gives each sample."""
    (scores, *_) = Engine(image, hooks=hooks).run(inputs).values()
    return np.asarray(scores.reshape(len(scores), -1).argmax(axis=1), np.int64)


def _show(subject: Subject, progress: Progress) -> Shown:
    image, count = subject.image, len(subject.labels)
    nominal = classes(image, subject.inputs)
    bare, held = Agreement(), Agreement()
    before = after = 0.0
    for number in range(DIES):
        die = die_of(number, image.target.cores)
        seen = (np.arange(_SAMPLES) + number * _SAMPLES) % count
        inputs = {name: array[seen] for name, array in subject.inputs.items()}
        efuse = fused(die, image)
        silicon = DieHook(die, number % die.cores)
        trim = Trim(efuse, die.id, silicon.core)
        held.add(classes(image, inputs, (silicon, trim)), nominal[seen])
        if number < _UNTRIMMED:
            bare.add(classes(image, inputs, (silicon,)), nominal[seen])
        before = max(before, float(np.abs(die.gain - 1).max()))
        after = max(after, residual(die, efuse))
        if number % 10 == 0:
            progress("gate 7: dies", number, DIES)
    return Shown(
        undefended={
            "dies": _UNTRIMMED,
            "answers": bare.answers,
            "agreement": bare.share,
            "worst_die": bare.worst,
            "full_scale_error_lsb": before * _FULL_SCALE,
        },
        defended={
            "dies": DIES,
            "answers": held.answers,
            "agreement": held.share,
            "worst_die": held.worst,
            "full_scale_error_lsb": after * _FULL_SCALE,
        },
        surcharge={"cycles": 0, "fuse_bytes": 64 * (2 + image.target.cores)},
        passed=bare.share < 0.99 and held.share >= 0.999 and after * _FULL_SCALE <= 0.5,
    )


def residual(die: Die, efuse: Efuse) -> float:
    """Return the largest gain error of a column that is left when it is trimmed."""
    if efuse.table is None:
        raise ValueError("the array is blank")
    return float(np.abs(die.gain * (1 + efuse.table.gains * GAIN_STEP) - 1).max())


GATE = Gate(
    number=7,
    name="variation",
    fault="no two dies are alike: gain of each column within +-18 %, an offset of its own",
    defence="test pattern at production, codes in eFuse, columns trimmed by them at load",
    show=_show,
)
