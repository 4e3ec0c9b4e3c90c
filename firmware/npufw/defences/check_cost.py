"""What checks cost: a unit beside each bank sums a row of 64 bytes a cycle, before a TOA runs.

All banks of a TOA's operands are summed at once. What is written is summed on its way into the
bank, what DMA moves on its way through the DMA unit; neither takes a cycle. A record's CRC takes
one, while the descriptor is in the registers and mostly hidden there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from npuabi.costs import operand_of
from npuabi.enums import Space
from npuabi.simulate import simulate
from npufw.boot import Image
from npufw.descriptors import ROW_BYTES
from npufw.kernels.base import Step

__all__ = ["check_cycles", "surcharge"]


def check_cycles(step: Step) -> int:
    """Return the cycles in which *step*'s operands in SRAM are summed."""
    held: Counter[int] = Counter()
    for tensor in step.tensors[:4]:
        if tensor is not None and tensor.space is Space.SRAM:
            held.update(dict(operand_of(tensor, step.target).banks))
    return max((-(-octets // ROW_BYTES) for octets in held.values()), default=0)


def surcharge(image: Image) -> int:
    """Return by how many cycles a run is longer with the checks, when nothing has to be repaired.

    The same simulation as ever, in which data of a TOA moves only when it has been checked.
    """
    works = [
        replace(
            work,
            latency_cycles=work.latency_cycles + check_cycles(step),
            setup_cycles=work.setup_cycles + sum(t is not None for t in (step.toa, *step.tensors)),
        )
        for work, step in zip(image.works, image.steps, strict=True)
    ]
    return simulate(works, image.target).cycles - image.timeline.cycles
