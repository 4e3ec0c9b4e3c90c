"""The engine: runs an image's TOAs over emulated memory, in the order that the timeline gives.

At a TOA's start its inputs are read and the result is computed; at its end the output is written.
At equal times ends come before starts. So a wait that is missing shows as wrong data, as on the
machine, and never as a different order of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.records import TensorDescriptor
from npufw.boot import Image, Port
from npufw.host import batches, runs_of
from npufw.kernels import KERNELS
from npufw.kernels.base import Arrays, Kernel, Step, Sums
from npufw.kernels.layout import store
from npufw.memory import Memory

__all__ = ["Engine", "Observer"]

Observer = Callable[[int, str], None]
"""Called with a TOA's index and "start" before it reads, "end" after it has written."""

_ABSENT: NDArray[Any] = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class _Call:
    """One TOA bound to its views."""

    step: Step
    kernel: Kernel
    arrays: Arrays

    def compute(self) -> NDArray[Any] | None:
        return self.kernel.run(self.step, self.arrays)

    def write(self, result: NDArray[Any]) -> None:
        if self.kernel.raw:
            self.arrays.output[...] = result
        else:
            store(self.arrays.output, self.step.output, result)


class Engine:
    """An image loaded into one core's memory, ready to run as often as wanted.

    ``observe`` may be set to a callable; None costs nothing. ``events`` are the starts and ends in
    the order of execution, as (position in ring order, whether it starts).
    """

    def __init__(self, image: Image, *, observe: Observer | None = None) -> None:
        header = image.program.header
        self.image = image
        self.observe = observe
        self.memory = Memory.create(
            sram_bytes=image.target.sram_bytes,
            arena_bytes=header.arena_bytes,
            constants=image.program.constants,
        )
        self._sums = Sums()
        self._views: dict[int, NDArray[Any]] = {}
        self._calls = [self._bind(step) for step in image.steps]
        self.events = _order(image)
        self._inputs = [self._view(port.tensor) for port in image.inputs]
        self._outputs = [self._view(port.tensor) for port in image.outputs]

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs, dense in the model's shapes, for *inputs* of N compiled batches.

        Raises FirmwareError when an array is not what the network takes; see host.py.
        """
        image = self.image
        runs = runs_of(image.inputs, inputs)
        given = [batches(port, inputs[port.name], runs) for port in image.inputs]
        results: list[list[NDArray[Any]]] = [[] for _ in image.outputs]
        for run in range(runs):
            for view, arrays in zip(self._inputs, given, strict=True):
                view[...] = arrays[run]
            self._execute()
            for kept, view in zip(results, self._outputs, strict=True):
                kept.append(view.copy())
        return {
            port.name: _dense(port, kept) for port, kept in zip(image.outputs, results, strict=True)
        }

    def _bind(self, step: Step) -> _Call:
        views = [_ABSENT if t is None else self._view(t) for t in step.tensors]
        arrays = Arrays(
            input=views[0],
            weights=views[1],
            parameters=views[2],
            residual=views[3],
            output=views[4],
            sums=self._sums,
        )
        return _Call(step, KERNELS[step.toa.opcode], arrays)

    def _view(self, tensor: TensorDescriptor) -> NDArray[Any]:
        view = self._views.get(id(tensor))
        if view is None:
            view = self._views[id(tensor)] = self.memory.view(tensor)
        return view

    def _execute(self) -> None:
        pending: dict[int, NDArray[Any] | None] = {}
        self._sums.values = None
        for position, begins in self.events:
            call = self._calls[position]
            if begins:
                if self.observe is not None:
                    self.observe(call.step.index, "start")
                pending[position] = call.compute()
                continue
            result = pending.pop(position)
            if result is not None:
                call.write(result)
            if self.observe is not None:
                self.observe(call.step.index, "end")


def _order(image: Image) -> list[tuple[int, bool]]:
    """Return (position in the ring, whether it starts) in the order of time, ends first.

    A TOA of no length ends after it starts.
    """
    events: list[tuple[float, int, int]] = []
    for position, slot in enumerate(image.timeline.slots):
        events.append((slot.start, 1, position))
        events.append((slot.end, 2 if slot.end <= slot.start else 0, position))
    return [(position, kind == 1) for _, kind, position in sorted(events)]


def _dense(port: Port, kept: list[NDArray[Any]]) -> NDArray[Any]:
    shape = port.shape
    if len(kept) == 1 or not shape:
        whole = kept[0] if len(kept) == 1 else np.stack(kept)
        return whole.reshape(shape if len(kept) == 1 else (len(kept),))
    return np.concatenate([values.reshape(shape) for values in kept])
