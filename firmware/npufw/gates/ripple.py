"""Gate 2, voltage ripple: labelled samples while bits of SRAM flip, without and with the checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import AbiError
from npuabi.progress import Progress
from npufw.defences import guarded
from npufw.defences.check_cost import surcharge
from npufw.engine import Engine
from npufw.fault_models.spec import read_faults
from npufw.faults import Outcome
from npufw.gates.base import Gate, Shown, Subject

__all__ = ["GATE", "Jobs", "jobs_at", "specs_of"]

_HARSH, _MILD = 1e-3, 1e-6
"""Flips of each bit each time that it is written: a supply out of its limits, and a bad day."""
_SAMPLES = 120
_FALL = 0.03


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Jobs of a sample each while bits flip. ``changed``: finished with other bits than without.

    ``right`` are those whose class is the label; ``clean_top1`` is the accuracy without flips.
    """

    count: int
    refused: int
    changed: int
    right: int
    clean_top1: float
    flips: int
    repaired: int
    surcharge_cycles: int

    @property
    def finished(self) -> int:
        """Jobs that gave a result."""
        return self.count - self.refused

    @property
    def top1(self) -> float:
        """Accuracy of those that finished."""
        return self.right / self.finished if self.finished else 0.0


def specs_of(rate: float, seed: int) -> list[str]:
    """Return the faults: weights and activations. Flips in parameters mostly break a rule."""
    return [
        f"flips:rate={rate!r},region={region},seed={seed + place}"
        for place, region in enumerate(("weights", "activations"))
    ]


def jobs_at(subject: Subject, rate: float, count: int, *, checked: bool, seed: int = 2) -> Jobs:
    """Return what becomes of jobs on the first *count* samples while bits flip at *rate*."""
    count = min(count, len(subject.labels))
    faults = [fault.hook(subject.image) for fault in read_faults(specs_of(rate, seed))]
    hooks = guarded(subject.image, faults, () if checked else ("ripple",))
    engine, plain = Engine(subject.image, hooks=hooks), Engine(subject.image)
    labels = subject.labels[:count]
    clean = [_first(plain, subject, at) for at in range(count)]
    found = [(at, _survived(engine, subject, at)) for at in range(count)]
    done = [(at, given) for at, given in found if given is not None]
    outcomes = [event.outcome for event in engine.log]
    return Jobs(
        count=count,
        refused=count - len(done),
        changed=sum(given.tobytes() != clean[at].tobytes() for at, given in done),
        right=sum(int(np.argmax(given) == labels[at]) for at, given in done),
        clean_top1=sum(int(np.argmax(clean[at]) == labels[at]) for at in range(count)) / count,
        flips=outcomes.count(Outcome.INJECTED),
        repaired=outcomes.count(Outcome.REPAIRED),
        surcharge_cycles=engine.surcharge.get("ripple", 0),
    )


def _first(engine: Engine, subject: Subject, at: int) -> NDArray[np.generic]:
    outputs = engine.run({name: array[at : at + 1] for name, array in subject.inputs.items()})
    return next(iter(outputs.values()))


def _survived(engine: Engine, subject: Subject, at: int) -> NDArray[np.generic] | None:
    try:
        return _first(engine, subject, at)
    except AbiError:
        return None


def _show(subject: Subject, progress: Progress) -> Shown:
    bare = jobs_at(subject, _HARSH, _SAMPLES, checked=False)
    progress("gate 2: rates", 1, 3)
    mild = jobs_at(subject, _MILD, _SAMPLES, checked=True)
    progress("gate 2: rates", 2, 3)
    harsh = jobs_at(subject, _HARSH, _SAMPLES, checked=True)
    progress("gate 2: rates", 3, 3)
    cycles, checks = subject.image.timeline.cycles, surcharge(subject.image)
    silent = mild.changed + harsh.changed
    return Shown(
        undefended={
            "flip_rate": f"{_HARSH:g}",
            "top1_share": bare.top1,
            "without_flips_share": bare.clean_top1,
            "changed_results": bare.changed,
            "refused": bare.refused,
        },
        defended={
            "flip_rate": f"{_MILD:g} and {_HARSH:g}",
            "changed_results": silent,
            "repairs": mild.repaired + harsh.repaired,
            f"refused_at_{_MILD:g}_share": mild.refused / mild.count,
            f"refused_at_{_HARSH:g}_share": harsh.refused / harsh.count,
        },
        surcharge={
            "checks_cycles": checks,
            "checks_share": checks / cycles,
            f"with_repairs_at_{_MILD:g}_share": mild.surcharge_cycles / (mild.count * cycles),
        },
        passed=(
            bare.clean_top1 - bare.top1 >= _FALL
            and silent == 0
            and mild.repaired > 0
            and mild.finished > mild.count // 2
        ),
    )


GATE = Gate(
    number=2,
    name="voltage ripple",
    fault="bits of SRAM flip: results are wrong, and nobody knows",
    defence="a CRC-32 for each 4 KiB before each use; data is read or computed again, or refused",
    show=_show,
)
