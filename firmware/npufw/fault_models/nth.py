"""Reads from DDR that end early, and checks that fail: the n-th of a run, once or from then on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode
from npufw.boot import Image
from npufw.fault_models.base import FaultModel, Field, Values
from npufw.faults import Hook, Machine, Moment, Outcome
from npufw.memory import POISON
from npufw.nth import Nth

__all__ = ["DDR_READ", "NTH_CHECK", "FailingCheck", "ShortRead"]

_FIELDS = (
    Field(name="nth", kind=int, low=1, help="which one fails, counted from the load"),
    Field(name="forever", kind=bool, default=False, help="all after it fail, too"),
)


class ShortRead(Hook):
    """The n-th DMA-in since the load brings its first half; the rest is what nobody has written."""

    def __init__(self, failing: Nth) -> None:
        self.failing = failing

    def transferred(self, machine: Machine, moment: Moment, data: NDArray[Any]) -> NDArray[Any]:
        """Cut the read that is to fail."""
        step = moment.step
        if step is None or step.toa.opcode is not Opcode.DMA_IN or not self.failing():
            return data
        octets = np.frombuffer(bytearray(data.tobytes()), np.uint8)
        half = len(octets) // 2
        octets[half:] = POISON
        text = f"{step.where}: the read ended after {half} of {len(octets)} bytes"
        machine.note("ddr_read", moment, Outcome.INJECTED, text)
        return octets.view(data.dtype).reshape(data.shape)


class FailingCheck(Hook):
    """The n-th comparison of the check unit since the load says that data is bad."""

    def __init__(self, failing: Nth) -> None:
        self.failing = failing

    def compared(self, machine: Machine, moment: Moment, agrees: bool) -> bool:
        """Deny what is to fail."""
        if not self.failing():
            return agrees
        machine.note("check", moment, Outcome.INJECTED, f"check {self.failing.calls} fails")
        return False


def _short_read(image: Image, values: Values) -> Hook:
    return ShortRead(Nth(int(values["nth"]), bool(values["forever"])))


def _failing_check(image: Image, values: Values) -> Hook:
    return FailingCheck(Nth(int(values["nth"]), bool(values["forever"])))


DDR_READ = FaultModel(
    name="ddr-read",
    title="a read from DDR ends after half of its bytes",
    gate="ripple",
    fields=_FIELDS,
    make=_short_read,
    example="ddr-read:nth=3",
)
NTH_CHECK = FaultModel(
    name="check",
    title="the check unit says that sound data is bad",
    gate="ripple",
    fields=_FIELDS,
    make=_failing_check,
    example="check:nth=5,forever=yes",
)
