"""Gate 2: the check memory. Every byte that a TOA or the host reads is checked just before.

| what | is bad | then |
| --- | --- | --- |
| constants in SRAM | | read from DDR again, three times at most, until they are what was loaded |
| activations | | their producer runs again, its own inputs checked first; three times at most |
| inputs, states | | the job is refused: nobody else has them |
| descriptors, header | in one copy | read from the twin, which also mends the bad copy |

Invariant: a job ends with what it would have given without the faults, or it is refused. That
holds for flips before the check, as far as a CRC-32 sees them; not for those between check and use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from npuabi.errors import ErrorCode
from npuabi.wire import sealed
from npufw.boot import Image
from npufw.defences.base import Defence
from npufw.defences.check_cost import surcharge
from npufw.defences.check_memory import CheckMap
from npufw.defences.repair import NAME, Repairs
from npufw.defences.sums import HOST, STATE, CheckedSums
from npufw.descriptors import HEADER_ROWS
from npufw.errors import FirmwareError
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.kernels.base import Step

__all__ = ["DEFENCE", "Ripple"]


class Ripple(Hook):
    """The check memory of an image, and what is done when a check fails."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._map = CheckMap(image)
        self._sums = CheckedSums(self._map)
        self._repairs = Repairs(image, self._map, self._sums)
        self._position = {step.index: at for at, step in enumerate(image.steps)}
        self._acts: dict[Phase, Callable[[Machine, Moment], None]] = {
            Phase.LOADED: self._loaded,
            Phase.STATES_SET: self._states_set,
            Phase.RUN_STARTS: self._run_starts,
            Phase.HEADER_CHECKS: self._check_header,
            Phase.TOA_CHECKS: self._check_toa,
            Phase.TOA_WRITTEN: self._written,
            Phase.OUTPUT_CHECKS: self._check_outputs,
            Phase.REFUSED: self._refused,
        }

    def at(self, machine: Machine, moment: Moment) -> None:
        """Note what was written, check what will be read."""
        act = self._acts.get(moment.phase)
        if act is not None:
            act(machine, moment)

    @cached_property
    def _states(self) -> list[int]:
        return [area for s in self._image.program.states for area in self._map.of(s.tensor)]

    @cached_property
    def _inputs(self) -> list[int]:
        return self._of_ports([port.entry.tensor for port in self._image.inputs])

    @cached_property
    def _outputs(self) -> list[int]:
        return self._of_ports([port.entry.tensor for port in self._image.outputs])

    @cached_property
    def _cycles(self) -> int:
        return surcharge(self._image)

    def _of_ports(self, tensors: Sequence[int]) -> list[int]:
        return [area for tensor in tensors for area in self._map.of(tensor)]

    def _loaded(self, machine: Machine, moment: Moment) -> None:
        self._repairs.learn_constants(machine)
        self._states_set(machine, moment)

    def _states_set(self, machine: Machine, moment: Moment) -> None:
        self._sums.note(machine.memory, self._states, STATE)

    def _run_starts(self, machine: Machine, moment: Moment) -> None:
        machine.surcharge[NAME] += self._cycles
        self._sums.keep(self._states)
        # An input that is a state as well was written by the host this time.
        self._sums.note(machine.memory, self._inputs, HOST)

    def _refused(self, machine: Machine, moment: Moment) -> None:
        self._sums.put_back()

    def _check_header(self, machine: Machine, moment: Moment) -> None:
        if not machine.descriptors.dirty.isdisjoint(range(HEADER_ROWS)):
            self._check_rows(machine, moment, list(range(HEADER_ROWS)), "the table's header")

    def _check_toa(self, machine: Machine, moment: Moment) -> None:
        step = _step(moment)
        rows = machine.descriptors.rows_of(step.index) if machine.descriptors.dirty else []
        for row in rows:
            if row in machine.descriptors.dirty:
                self._check_rows(machine, moment, [row], f"a descriptor of {step.where}")
        position = self._position[step.index]
        self._repairs.check(machine, moment, self._repairs.reads[position])
        self._repairs.begin(machine, position)

    def _check_outputs(self, machine: Machine, moment: Moment) -> None:
        self._repairs.check(machine, moment, self._outputs)

    def _written(self, machine: Machine, moment: Moment) -> None:
        self._repairs.end(machine, self._position[_step(moment).index])

    def _check_rows(self, machine: Machine, moment: Moment, rows: list[int], what: str) -> None:
        """Check what *rows*, one record, hold; read them from the twin when they are bad."""
        descriptors = machine.descriptors
        source = descriptors.source(rows[0])
        copies = [b"".join(descriptors.read(row, copy) for row in rows) for copy in (0, 1)]
        if sealed(copies[source]):
            return
        machine.note(NAME, moment, Outcome.DETECTED, f"{what} is bad")
        if not sealed(copies[1 - source]):
            text = f"{what} is bad in both copies"
            machine.note(NAME, moment, Outcome.REFUSED, text)
            raise FirmwareError(ErrorCode.DESCRIPTOR_LOST, text)
        for place, row in enumerate(rows):
            part = copies[1 - source][64 * place : 64 * (place + 1)]
            descriptors.write(row, source, part)
            descriptors.read_from(row, 1 - source)
        machine.surcharge[NAME] += machine.image.target.ddr_latency_cycles
        machine.note(NAME, moment, Outcome.REPAIRED, f"{what} is taken from the twin")


def _step(moment: Moment) -> Step:
    assert moment.step is not None, "phases of TOAs have a step"
    return moment.step


DEFENCE = Defence(
    name=NAME,
    title="a CRC-32 for each 4 KiB, checked before each use; read or computed again when it fails",
    make=lambda image, faults: Ripple(image),
)
