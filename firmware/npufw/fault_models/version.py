"""The version register changes after the blob was checked: a flipped bit, or an update."""

from __future__ import annotations

from npufw.boot import Image
from npufw.fault_models.base import FaultModel, Field, Values
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.version import parse_version

__all__ = ["VERSION", "ChangedVersion"]


class ChangedVersion(Hook):
    """At the load *bit* of the register flips, or it becomes that of version *to*."""

    def __init__(self, bit: int, to: str) -> None:
        self._bit, self._to = bit, parse_version(to) if to else None

    def at(self, machine: Machine, moment: Moment) -> None:
        """Change it once."""
        if moment.phase is not Phase.LOADED:
            return
        if self._to is not None:
            machine.register.write(self._to)
            text = f"the firmware became version {self._to[0]}.{self._to[1]}"
        else:
            machine.register.bits ^= 1 << self._bit
            text = f"bit {self._bit} of the version register flipped"
        machine.note("version", moment, Outcome.INJECTED, text)


def _make(image: Image, values: Values) -> ChangedVersion:
    return ChangedVersion(int(values["bit"]), str(values["to"]))


VERSION = FaultModel(
    name="version",
    title="the version register changes between check and run",
    gate="read again at each run",
    fields=(
        Field(name="bit", kind=int, high=31, default=16, help="the bit that flips"),
        Field(name="to", kind=str, default="", help="instead: the version X.Y of an update"),
    ),
    make=_make,
    example="version:bit=16",
)
