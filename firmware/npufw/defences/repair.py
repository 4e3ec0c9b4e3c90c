"""Checks of what is about to be read, and repairs: the TOA that wrote it runs again.

A producer may run again while its inputs are what it read then: the stamps of their areas say so,
and their own checks, or repairs, come first. Only the bytes of the bad area are written; what the
rest of the output has become since is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npuabi.program import symbol_at
from npuabi.records import Toa
from npufw.boot import Image
from npufw.calls import Call
from npufw.defences.check_memory import CheckMap
from npufw.defences.sums import CheckedSums
from npufw.errors import FirmwareError
from npufw.faults import Machine, Moment, Outcome, Phase
from npufw.memory import POISON, Memory

__all__ = ["NAME", "TRIES", "Repairs"]

NAME = "ripple"
"""Of the defence, in the log and in the surcharge."""
TRIES = 3
"""How often data is read from DDR, or computed, again."""
_DEPTH = 8
"""Producers of producers that are run again for one check."""
_PASSES = 4
"""How often a TOA's operands are checked while repairs go on."""


class Repairs:
    """Checks and repairs of one image's areas; ``reads`` are the areas that each TOA reads."""

    def __init__(self, image: Image, areas: CheckMap, sums: CheckedSums) -> None:
        self._image, self._map, self._sums = image, areas, sums
        steps = image.steps
        self.reads = [_all(areas, step.toa.tensors[:4]) for step in steps]
        self._writes = [areas.of(s.toa.tensors[4]) if _writes(s.toa) else () for s in steps]
        self._chains = _chains(image)
        self._constants: dict[int, dict[int, int]] = {}
        self._began: dict[int, tuple[int, ...]] = {}
        self._carried: dict[int, NDArray[np.uint8]] = {}

    def learn_constants(self, machine: Machine) -> None:
        """Take the CRCs of what each DMA brings from the constants, which have been verified."""
        for position, call in enumerate(machine.calls):
            if call.step.input.space is not Space.CONSTANTS:
                continue
            call.write(call.arrays.input.copy())
            self._constants[position] = self._crcs(machine.memory, self._writes[position])
        machine.memory.spaces[Space.SRAM][...] = POISON

    def check(self, machine: Machine, moment: Moment, areas: Sequence[int]) -> None:
        """Check *areas*, repair those that are bad; raise FirmwareError when that fails."""
        self._check(machine, moment, areas, 0)

    def begin(self, machine: Machine, position: int) -> None:
        """Note what a TOA that starts reads."""
        self._began[position] = self._sums.stamped(self.reads[position])
        call = machine.calls[position]
        if call.kernel.raw and call.step.input.space is not Space.CONSTANTS:
            self._carried[position] = call.arrays.input.copy()

    def end(self, machine: Machine, position: int) -> None:
        """Note what a TOA that ends has written."""
        call, writes = machine.calls[position], self._writes[position]
        known = self._constants.get(position)
        if known is None and position in self._carried:
            known = self._as_carried(machine.memory, call, position)
        self._sums.note(machine.memory, writes, position, known)
        if call.kernel.raw:
            self._sums.forget(self._map.spare(call.step.toa.tensors[4]))

    def _as_carried(self, memory: Memory, call: Call, position: int) -> dict[int, int]:
        """Return the CRCs of what a DMA read, as it was checked; they travel with the data."""
        landed = call.arrays.output.copy()
        call.write(self._carried.pop(position))
        known = self._crcs(memory, self._writes[position])
        call.write(landed)
        return known

    def _crcs(self, memory: Memory, areas: Sequence[int]) -> dict[int, int]:
        return {area: self._map.areas[area].crc(memory) for area in areas}

    def _check(self, machine: Machine, moment: Moment, areas: Sequence[int], depth: int) -> None:
        # A repair moves data again, which may be hit again: the last pass must find nothing.
        for _ in range(_PASSES):
            bad = [area for area in areas if not self._holds(machine, moment, area)]
            if not bad:
                return
            for area in bad:
                self._repair(machine, moment, area, depth)
        raise self._refusal(machine, moment, bad[0], "new flips come with every repair")

    def _holds(self, machine: Machine, moment: Moment, area: int) -> bool:
        crc = self._sums.crcs[area]
        return crc is None or machine.holds(moment, crc, self._map.areas[area].crc(machine.memory))

    def _repair(self, machine: Machine, moment: Moment, area: int, depth: int) -> None:
        machine.note(NAME, moment, Outcome.DETECTED, f"{self._named(area)} is bad")
        writer = self._sums.writers[area]
        if writer < 0:
            raise self._refusal(machine, moment, area, "nobody else has it")
        chain = self._chains[writer]
        if depth >= _DEPTH:
            raise self._refusal(machine, moment, area, f"{depth} producers before it are bad")
        for attempt in range(1, TRIES + 1):
            for position in chain:
                self._require_inputs(machine, moment, position, area, depth)
            self._run_again(machine, moment, chain, area)
            if self._holds(machine, moment, area):
                tries = f"try {attempt}" if attempt > 1 else "the first try"
                how = "read" if writer in self._constants else "computed"
                text = f"{self._named(area)} is {how} again, {tries} is right"
                machine.note(NAME, moment, Outcome.REPAIRED, text)
                return
        raise self._refusal(machine, moment, area, self._why(machine, area))

    def _require_inputs(
        self, machine: Machine, moment: Moment, position: int, area: int, depth: int
    ) -> None:
        reads = self.reads[position]
        if self._began.get(position) != self._sums.stamped(reads):
            where = self._image.steps[position].where
            raise self._refusal(machine, moment, area, f"what {where} read is overwritten")
        self._check(machine, moment, reads, depth + 1)

    def _run_again(self, machine: Machine, moment: Moment, chain: Sequence[int], area: int) -> None:
        sums = machine.calls[chain[-1]].arrays.sums
        kept, sums.values = sums.values, None
        for position in chain:
            call = machine.calls[position]
            again = replace(moment, phase=Phase.TOA_READS, step=call.step)
            result = machine.compute(call, again)
            machine.surcharge[NAME] += self._image.works[position].alone_cycles
            if result is not None:
                _write_part(machine.memory, call, result, self._map, area)
                written = self._map.areas[area].octets
                machine.tell(replace(again, phase=Phase.TOA_DONE, written=written))
        sums.values = kept

    def _why(self, machine: Machine, area: int) -> str:
        """Return why no try was right: of constants, whether their copy in DDR is bad, too."""
        writer = self._sums.writers[area]
        if writer not in self._constants:
            return f"{TRIES} tries to compute it again were wrong"
        call = machine.calls[writer]
        held = call.arrays.output.copy()
        call.write(call.arrays.input.copy())
        sound = self._crcs(machine.memory, [area])[area] == self._constants[writer][area]
        call.write(held)
        whose = "SRAM does not hold it" if sound else "its copy in DDR is bad, too"
        return f"{TRIES} tries to read it again were wrong: {whose}"

    def _refusal(self, machine: Machine, moment: Moment, area: int, why: str) -> FirmwareError:
        writer = self._sums.writers[area]
        code = ErrorCode.INPUT_LOST if writer < 0 else ErrorCode.ACTIVATION_LOST
        code = ErrorCode.CONSTANTS_LOST if writer in self._constants else code
        text = f"{self._named(area)} is bad: {why}"
        machine.note(NAME, moment, Outcome.REFUSED, text)
        return FirmwareError(code, text)

    def _named(self, area: int) -> str:
        """Return the tensor of *area*, who wrote it, and where it lies."""
        place, writer = self._map.areas[area], self._sums.writers[area]
        program, target = self._image.program, self._image.target
        where = f"arena 0x{place.first:x}"
        if place.space is Space.SRAM:
            bank = place.first // target.bank_bytes
            where = f"SRAM 0x{place.first:x}, bank {bank}"
        if writer < 0:
            return f"what the host wrote ({where})"
        step = self._image.steps[writer]
        name = symbol_at(program.symbols, step.output.symbol)
        return f"{name}, written by {step.where} ({where})"


def _writes(toa: Toa) -> bool:
    return toa.unit is not Unit.MAC or bool(toa.flags & ToaFlag.WRITE)


def _all(areas: CheckMap, tensors: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(area for tensor in tensors for area in areas.of(tensor)))


def _chains(image: Image) -> list[tuple[int, ...]]:
    """Return for each TOA those that make its output: itself, and the ranges of K before it."""
    chains: list[tuple[int, ...]] = []
    before: tuple[int, ...] = ()
    for position, step in enumerate(image.steps):
        if step.toa.unit is not Unit.MAC:
            chains.append((position,))
            continue
        before = (position,) if step.toa.flags & ToaFlag.CLEAR else (*before, position)
        chains.append(before)
    return chains


def _write_part(
    memory: Memory, call: Call, result: NDArray[np.generic], areas: CheckMap, area: int
) -> None:
    """Write of *result* the bytes of *area* and leave all others as they are."""
    output = call.step.output
    whole = memory.spaces[output.space][output.base : output.base + output.extent]
    held = whole.copy()
    call.write(result)
    part = areas.areas[area].read(memory).copy()
    whole[...] = held
    areas.areas[area].write(memory, part)
