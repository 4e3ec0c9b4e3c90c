"""One kernel call on poisoned memory, and rounding rules written once more, in Python ints."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Opcode, Rounding
from npuabi.records import NO_TENSOR
from npufw.kernels import KERNELS
from npufw.kernels.base import OPERANDS, Arrays, Step, Sums
from npufw.kernels.layout import store
from npufw.memory import Memory
from npufw.toa_rules import check_step
from tests.builders import EDGE, Builder, addresses, put, take

__all__ = ["Call", "operand", "requantise", "words"]

Array = NDArray[Any]
Operand = tuple[Array | tuple[int, ...], dict[str, Any]]


def operand(values: Array | tuple[int, ...], **fields: Any) -> Operand:
    """Return an operand of logical values, or of dims for an output."""
    return values, fields


def words(values: NDArray[np.int32]) -> Operand:
    """Return a parameters operand."""
    row = values.reshape(1, 1, 1, -1)
    return operand(row, dtype=DType.I32, layout=Layout.NCHW)


class Call:
    """A TOA with operands in SRAM full of 0x7F; ``run`` checks, computes and stores."""

    def __init__(
        self,
        opcode: Opcode,
        operands: dict[str, Operand],
        *,
        rounding: Rounding = Rounding.DOUBLE,
        sums: Sums | None = None,
        **fields: Any,
    ) -> None:
        builder = Builder(rounding=rounding)
        indices: dict[str, Any] = {}
        for name, (values, kind) in operands.items():
            dims = values if isinstance(values, tuple) else values.shape
            indices[name] = builder.tensor(dims, **kind)
        builder.toa(opcode, **indices, **fields)
        self.sums = sums or Sums()
        self.memory = Memory.create(sram_bytes=EDGE.sram_bytes, arena_bytes=0, constants=b"")
        self.sram = next(iter(self.memory.spaces.values()))
        for name, (values, _) in operands.items():
            if not isinstance(values, tuple):
                put(self.sram, builder.tensors[indices[name]], values)
        toa = builder.toas[0]
        tensors = tuple(None if i == NO_TENSOR else builder.tensors[i] for i in toa.tensors)
        self.step = Step(
            index=0, toa=toa, tensors=tensors, rounding=rounding, target=EDGE, where="TOA 0"
        )

    def run(self) -> Array | None:
        """Return the output's logical elements; no other byte may have changed."""
        check_step(self.step)
        before = self.sram.copy()
        empty = np.empty(0)
        views = [empty if t is None else self.memory.view(t) for t in self.step.tensors]
        arrays = Arrays(**dict(zip(OPERANDS, views, strict=True)), sums=self.sums)
        result = KERNELS[self.step.toa.opcode].run(self.step, arrays)
        assert (self.sram == before).all(), "a kernel wrote before its end"
        if result is None:
            return None
        store(arrays.output, self.step.output, result)
        octets = addresses(self.step.output)[..., None] + np.arange(self.step.output.dtype.size)
        before[octets] = self.sram[octets]
        assert (self.sram == before).all(), "the store touched bytes outside the output"
        return take(self.sram, self.step.output)


def requantise(acc: int, multiplier: int, shift: int, rounding: Rounding) -> int:
    """Return *acc* rescaled by the rules of design.md section 4, one number at a time."""
    if rounding is Rounding.EVEN:
        scale = np.int32(multiplier).view(np.float32)
        return int(np.rint(np.float32(acc) * scale))
    if rounding is Rounding.SINGLE:
        return (acc * multiplier + (1 << (30 - shift))) >> (31 - shift)
    x = max(-(2**31), min(2**31 - 1, acc << max(shift, 0)))
    # The doubling high multiply rounds ties up; the right shift rounds half away from zero.
    high = (x * multiplier + (1 << 30)) >> 31
    exact = Fraction(high, 1 << max(-shift, 0))
    magnitude = int(abs(exact) + Fraction(1, 2))
    return magnitude if exact >= 0 else -magnitude
