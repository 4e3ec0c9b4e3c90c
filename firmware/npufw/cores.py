"""The cores of a device: each has faults of its own, and one that computes wrongly is taken out.

A core's test is the known answer of a program: at boot, and whenever it is asked for. What belongs
to the gain of a die's columns is bypassed in it, as the compiler's answer knows of no die.

Invariant: a job runs on a core that has passed its last test, or it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from npuabi.errors import AbiError, ErrorCode
from npufw.boot import Image
from npufw.defences.calibration import Trim
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.fault_models.die import DieHook
from npufw.faults import Hook
from npufw.selftest import SelfTest, selftest
from npufw.version import VersionRegister

__all__ = ["CoreTest", "Cores", "tested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTest:
    """What the known-answer test of one core gave; ``error`` where it was refused."""

    core: int
    result: SelfTest | None
    error: AbiError | None = None

    @property
    def passed(self) -> bool:
        """Whether the core may be used."""
        return self.result is not None and self.result.passed

    @property
    def text(self) -> str:
        """What was found, in words."""
        return self.result.text if self.result is not None else str(self.error)


class Cores:
    """A device's cores with one program loaded, tested once at boot.

    *faults* are the hooks of single cores, by the core's number; a core's hooks are its own.
    ``boot_test`` is what the first test gave, ``out`` says why cores were taken out. *register* is
    the device's version register, which each run reads again.
    """

    def __init__(
        self,
        image: Image,
        faults: Mapping[int, Sequence[Hook]] | None = None,
        register: VersionRegister | None = None,
    ) -> None:
        count, given = image.target.cores, dict(faults or {})
        for core in given:
            if not 0 <= core < count:
                raise ValueError(f"core {core}: {image.target.name} has 0 to {count - 1}")
        self.image = image
        self.engines = [
            Engine(image, hooks=given.get(core, ()), register=register) for core in range(count)
        ]
        self._next = 0
        self.out: dict[int, str] = {}
        self.boot_test = self.test()

    @property
    def healthy(self) -> list[int]:
        """The numbers of the cores that take jobs."""
        return [core for core in range(len(self.engines)) if core not in self.out]

    @property
    def verdict(self) -> str:
        """What the test at boot found, in words."""
        if not self.out:
            return f"{self.boot_test[0].text}, on {_count(len(self.engines))}"
        found = "; ".join(f"core {core}: {text}" for core, text in self.out.items())
        return f"{found}; taken out, {_left(self.healthy)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the test at boot for JSON: the first core's answer, and which were taken out."""
        first = next((found.result for found in self.boot_test if found.result is not None), None)
        out = {str(core): text for core, text in self.out.items()}
        answer = {} if first is None else first.as_dict()
        return {"passed": not self.out, **answer, "cores": len(self.engines), "out": out}

    def test(self) -> list[CoreTest]:
        """Test every core, those that are out as well; one that passes does not come back in."""
        return [self.test_core(core) for core in range(len(self.engines))]

    def test_core(self, core: int) -> CoreTest:
        """Test one core, and take it out when it fails."""
        found = tested(core, self.engines[core])
        if not found.passed:
            self.out.setdefault(core, found.text)
        return found

    def pick(self) -> int:
        """Return the core of the next job: the healthy ones take turns.

        Raises FirmwareError NO_CORE.
        """
        healthy = self.healthy
        if not healthy:
            text = "; ".join(f"core {core}: {text}" for core, text in self.out.items())
            raise FirmwareError(ErrorCode.NO_CORE, text)
        core = next((c for c in healthy if c >= self._next), healthy[0])
        self._next = core + 1
        return core

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs of a job on the next healthy core; FirmwareError NO_CORE."""
        return self.run_on(self.pick(), inputs)

    def run_on(self, core: int, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs of a job on *core*; NO_CORE when it was taken out."""
        if core in self.out:
            raise FirmwareError(ErrorCode.NO_CORE, f"core {core} is out: {self.out[core]}")
        return self.engines[core].run(inputs)


def _left(healthy: Sequence[int]) -> str:
    if len(healthy) == 1:
        return f"core {healthy[0]} goes on"
    return f"cores {', '.join(map(str, healthy))} go on" if healthy else "none is left"


def _count(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def tested(core: int, engine: Engine) -> CoreTest:
    """Run the known-answer test of *core* on *engine*, what belongs to its die's gain left out."""
    try:
        with engine.without((DieHook, Trim)):
            return CoreTest(core=core, result=selftest(engine))
    except AbiError as error:
        return CoreTest(core=core, result=None, error=error)
