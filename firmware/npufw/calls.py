"""TOAs bound to memory: what the engine calls, once for each TOA, when it loads a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.records import TensorDescriptor
from npufw.kernels import KERNELS
from npufw.kernels.base import Arrays, Kernel, Step, Sums
from npufw.kernels.layout import store
from npufw.memory import Memory

__all__ = ["Binder", "Call"]

_ABSENT: NDArray[Any] = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Call:
    """One TOA bound to its views."""

    step: Step
    kernel: Kernel
    arrays: Arrays

    def compute(self) -> NDArray[Any] | None:
        """Read the operands and return the output, None when the sums stay in the accumulators."""
        return self.kernel.run(self.step, self.arrays)

    def write(self, result: NDArray[Any]) -> None:
        """Put *result* into memory."""
        if self.kernel.raw:
            self.arrays.output[...] = result
        else:
            store(self.arrays.output, self.step.output, result)


class Binder:
    """Binds steps to one memory and one MAC unit's sums; a record's view is made once."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.sums = Sums()
        self._views: dict[int, NDArray[Any]] = {}

    def bind(self, step: Step) -> Call:
        """Return *step* with views of its operands."""
        return self._call(step, [_ABSENT if t is None else self.view(t) for t in step.tensors])

    def bind_once(self, step: Step) -> Call:
        """Return *step* with views that nobody keeps: its records may be gone tomorrow."""
        memory = self.memory
        return self._call(step, [_ABSENT if t is None else memory.view(t) for t in step.tensors])

    def view(self, tensor: TensorDescriptor) -> NDArray[Any]:
        """Return *tensor*'s elements; the record must outlive the binder."""
        view = self._views.get(id(tensor))
        if view is None:
            view = self._views[id(tensor)] = self.memory.view(tensor)
        return view

    def _call(self, step: Step, views: list[NDArray[Any]]) -> Call:
        arrays = Arrays(
            input=views[0],
            weights=views[1],
            parameters=views[2],
            residual=views[3],
            output=views[4],
            sums=self.sums,
        )
        return Call(step, KERNELS[step.toa.opcode], arrays)
