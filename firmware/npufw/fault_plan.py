"""Faults of a run: which there are, which defences are left out, what is reported of them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from npuabi.errors import AbiError, ErrorCode
from npufw.boot import Image
from npufw.defences import DEFENCES, guarded
from npufw.dies import with_die
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.fault_models.base import FaultModel
from npufw.fault_models.spec import Fault, read_faults
from npufw.faults import FaultEvent, Hook, Outcome
from npufw.version import VersionRegister

__all__ = ["NO_FAULTS", "FaultPlan", "JobRefused", "fault_lines", "plan_of", "survived"]

_SHOWN_EVENTS = 8


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """Faults of a run, and the defences that are left out; *die* is the file of an eFuse array.

    With neither faults nor a die it is a plain run.
    """

    faults: Sequence[Fault] = ()
    without: Collection[str] = ()
    die: str | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a plain run."""
        return not self.faults and self.die is None

    def engine(self, image: Image, register: VersionRegister | None = None) -> Engine:
        """Return *image* loaded, with its faults and the defences."""
        return Engine(image, hooks=self.hooks(image), register=register)

    def hooks(self, image: Image) -> Sequence[Hook]:
        """Return the faults and the defences against them."""
        if self.plain:
            return ()
        faults = [fault.hook(image) for fault in self.faults]
        if self.die is not None:
            faults = self._with_die(image, faults, self.die)
        return guarded(image, faults, self.without)

    def _with_die(self, image: Image, faults: Sequence[Hook], die: str) -> list[Hook]:
        try:
            return with_die(image, faults, die)
        except ValueError as error:
            raise FirmwareError(ErrorCode.FAULT_SPEC, f"--die {die}: {error}") from error

    def leaving_out(self, name: str) -> FaultPlan:
        """Return the plan without one more defence."""
        return replace(self, without=frozenset({*self.without, name}))

    def lines(self) -> list[str]:
        """Return what replays the faults."""
        return [str(fault) for fault in self.faults]

    def replay(self) -> str:
        """Return the options that replay it, as a shell takes them."""
        options = [("--fault", line) for line in self.lines()]
        options += [("--without", name) for name in sorted(self.without)]
        options += [] if self.die is None else [("--die", self.die)]
        return shlex.join(word for option in options for word in option)


def plan_of(specs: Sequence[str], without: Sequence[str], die: str | None = None) -> FaultPlan:
    """Return the plan of the options ``--fault`` and ``--without``; FirmwareError FAULT_SPEC."""
    unknown = [name for name in without if name not in DEFENCES]
    if unknown:
        text = f"--without {unknown[0]}: there is {', '.join(DEFENCES) or 'no defence'}"
        raise FirmwareError(ErrorCode.FAULT_SPEC, text)
    faults = read_faults(specs)
    _fit_together([fault.model for fault in faults], die)
    return FaultPlan(faults=faults, without=frozenset(without), die=die)


def _fit_together(models: Sequence[FaultModel], die: str | None) -> None:
    """Refuse faults of which one would be left out without a word."""
    given = {model.name for model in models} | ({"--die"} if die is not None else set())
    for model in models:
        if model.single and models.count(model) > 1:
            text = f"{model.name} is given {models.count(model)} times: a chip has one"
            raise FirmwareError(ErrorCode.FAULT_SPEC, text)
        if model.needs and model.needs not in given:
            needed = model.needs if model.needs.startswith("--") else f"--fault {model.needs}"
            text = f"--fault {model.name}: does nothing without {needed}"
            raise FirmwareError(ErrorCode.FAULT_SPEC, text)


NO_FAULTS = FaultPlan()


def fault_lines(replay: str, events: Sequence[FaultEvent]) -> Iterator[str]:
    """Yield what happened, for people: the first events, counts, and what replays it."""
    yield from (str(event) for event in events[:_SHOWN_EVENTS])
    if len(events) > _SHOWN_EVENTS:
        yield f"and {len(events) - _SHOWN_EVENTS} more events: use --json"
    counts = Counter(event.outcome for event in events)
    yield "events: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
    yield f"replay: {replay}"


class JobRefused(FirmwareError):
    """A job that a defence refused: the events that led to it, and what replays them."""

    def __init__(self, error: AbiError, engine: Engine, plan: FaultPlan) -> None:
        AbiError.__init__(self, error.code, error.detail)
        self.events, self.faults, self._replay = engine.log, plan.lines(), plan.replay()

    def lines(self) -> Iterator[str]:
        """Yield for people what led to it."""
        return fault_lines(self._replay, self.events)

    def as_dict(self) -> dict[str, Any]:
        """Return the refusal for JSON."""
        return {
            "schema": 1,
            "error": {"code": self.code.name.lower(), "text": str(self)},
            "faults": self.faults,
            "events": [event.as_dict() for event in self.events],
        }


def survived(
    engine: Engine, arrays: Mapping[str, NDArray[Any]], plan: FaultPlan
) -> dict[str, NDArray[Any]]:
    """Return the outputs; JobRefused where a run with faults is refused."""
    try:
        return engine.run(arrays)
    except AbiError as error:
        if plan.plain:
            raise
        raise JobRefused(error, engine, plan) from error
