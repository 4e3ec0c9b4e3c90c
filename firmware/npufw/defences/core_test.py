"""The known-answer test of the core before a run: one that fails is taken out, the next one runs.

Faults sit in one core. The test sees only that core's own, as it would be tested at boot; what hits
memory, the die's gain or the clock is another defence's business.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuabi.errors import ErrorCode
from npufw.boot import Image
from npufw.defences.base import Defence
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.fault_models.instruction import StuckInstruction
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.selftest import selftest

__all__ = ["CORE_TEST", "DEFENCE", "CoreTest"]

CORE_TEST = "core-test"
"""Its name, by which ``npufw selftest`` leaves it out."""


class CoreTest(Hook):
    """Says at the load what the test found; *text* is its result."""

    def __init__(self, text: str) -> None:
        self.text = text

    def at(self, machine: Machine, moment: Moment) -> None:
        """Log it once."""
        if moment.phase is Phase.LOADED:
            bad = f"core 0 fails the known-answer test: {self.text}"
            machine.note("core_test", moment, Outcome.DETECTED, bad)
            machine.note("core_test", moment, Outcome.REPAIRED, "core 0 is out, core 1 runs")


def _make(image: Image, faults: Sequence[Hook]) -> CoreTest | None:
    sick = [fault for fault in faults if isinstance(fault, StuckInstruction)]
    if not sick:
        return None
    found = selftest(Engine(image, hooks=sick))
    if found.passed:
        return None
    if image.target.cores == 1:
        raise FirmwareError(ErrorCode.NO_CORE, f"core 0: {found.text}")
    for fault in sick:
        fault.taken_out = True
    return CoreTest(found.text)


DEFENCE = Defence(
    name=CORE_TEST,
    title="known-answer test of the core; one that fails is taken out and the next one runs",
    make=_make,
)
