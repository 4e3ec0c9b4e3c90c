"""A core that computes one instruction wrongly: a bit of what it writes is stuck, in one lane.

Which instruction, which bit, which lane and at which value follow from the seed: one of the
opcodes that the program uses. Such cores are what known-answer tests are for.
"""

from __future__ import annotations

import numpy as np

from npuabi.enums import Opcode, ToaFlag, Unit
from npufw.boot import Image
from npufw.fault_models.base import SEED, FaultModel, Values
from npufw.fault_models.draws import Source
from npufw.faults import Hook, Machine, Moment, Outcome, Phase

__all__ = ["INSTRUCTION", "StuckInstruction"]

_LANES = 16
_BITS = 8
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class StuckInstruction(Hook):
    """*opcode* writes *bit* of every 16th element as *value*.

    Nothing more happens once the core is ``taken_out``: then another one runs.
    """

    def __init__(self, opcode: Opcode, *, bit: int, lane: int, value: int) -> None:
        self.opcode, self.bit, self.lane, self.value = opcode, bit, lane, value
        self.taken_out = False

    @property
    def text(self) -> str:
        """What is wrong, in words."""
        name = self.opcode.name.lower()
        return f"bit {self.bit} of lane {self.lane} is stuck at {self.value} in {name}"

    def at(self, machine: Machine, moment: Moment) -> None:
        """Spoil what the instruction has written, before anybody sees it."""
        step = moment.step
        if moment.phase is Phase.LOADED:
            machine.note("instruction", moment, Outcome.INJECTED, self.text)
        if moment.phase is not Phase.TOA_WRITTEN or step is None or self.taken_out:
            return
        keeps_sums = step.toa.unit is Unit.MAC and not step.toa.flags & ToaFlag.WRITE
        if step.toa.opcode is not self.opcode or keeps_sums:
            return
        view = machine.memory.view(step.output)
        words = view.view(_UNSIGNED[view.dtype.itemsize])
        lane = words[..., self.lane % words.shape[-1] :: _LANES]
        mask = lane.dtype.type(1 << self.bit)
        lane[...] = lane | mask if self.value else lane & ~mask


def _make(image: Image, values: Values) -> StuckInstruction:
    source = Source(int(values["seed"]))
    used = sorted({step.toa.opcode for step in image.steps})
    return StuckInstruction(
        source.one_of(used),
        bit=source.below(_BITS),
        lane=source.below(_LANES),
        value=source.below(2),
    )


INSTRUCTION = FaultModel(
    name="instruction",
    title="the core computes one instruction wrongly: a bit of a lane is stuck",
    gate="core-test",
    fields=(SEED,),
    make=_make,
    example="instruction:seed=3",
)
