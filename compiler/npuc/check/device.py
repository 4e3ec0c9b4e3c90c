"""The two lower levels: a program's tasks on memory of their own, and its blob in the emulator.

The one module of the compiler that imports the firmware. Invariant: a buffer's bytes are taken
when its last writer has ended, before anything else may use its memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npuabi.preprocess import Preprocess
from npuabi.program import Loaded, Program, symbol_at
from npuabi.records import TensorDescriptor
from npuabi.target import Target
from npuc.check.places import Place, Places
from npuc.ir.core import Array
from npufw.boot import Image, boot, image_of
from npufw.engine import Engine
from npufw.host import batches
from npufw.hostfiles import read_inputs
from npufw.kernels import KERNELS
from npufw.kernels.base import Arrays, Step, Sums
from npufw.kernels.layout import store
from npufw.memory import POISON, geometry_of

__all__ = ["BlobDevice", "Bytes", "TaskDevice", "read_arrays"]

Bytes = Mapping[str, NDArray[np.uint8]]
"""What each buffer held when it was complete, by its name: inputs and states before the run."""

_ABSENT: NDArray[Any] = np.empty(0, np.uint8)


def read_arrays(
    options: Sequence[str], names: Sequence[str], recipe: Preprocess | None
) -> dict[str, Array]:
    """Return arrays by input from ``--input`` options, as ``npufw run`` reads them."""
    arrays, _spare = read_inputs(options, names, recipe)
    return arrays


class TaskDevice:
    """Runs the records of a program, not its bytes, each buffer in memory of its own.

    States go on from batch to batch.
    """

    def __init__(self, program: Program, target: Target, places: Places) -> None:
        self._image = image_of(Loaded(program=program, events=()), target)
        self._memory = _OwnMemory(program, places)
        for state in self._image.states:
            self._memory.view(state.tensor)[...] = self._memory.view(state.initial)
        self._kept = {self._memory.place(state.tensor).name for state in self._image.states}

    def run(self, inputs: Mapping[str, Array]) -> Bytes:
        """Run one batch; return what :data:`Bytes` says."""
        memory = self._memory
        memory.held = {name: memory.held[name] for name in self._kept}
        for port in self._image.inputs:
            memory.view(port.tensor)[...] = batches(port, inputs[port.name], 1)[0]
        begin = {name: held.copy() for name, held in memory.held.items()}
        sums = Sums()
        for step in self._image.steps:
            _run(step, memory, sums)
        return {**memory.held, **begin}


class BlobDevice:
    """Runs a blob, booted, in the emulator; states go on from batch to batch."""

    def __init__(self, blob: bytes, target: Target, places: Places) -> None:
        self._image = boot(blob, target)
        self._engine = Engine(self._image)
        self._places = places

    def run(self, inputs: Mapping[str, Array]) -> Bytes:
        """Run one batch; return what :data:`Bytes` says."""
        watch = _Watch(self._image, self._engine, self._places)
        self._engine.observe = watch.see
        self._engine.run(inputs)
        return {**watch.held, **watch.begin}


@dataclass
class _OwnMemory:
    """Bytes for each buffer; constants lie where the program has them."""

    program: Program
    places: Places

    def __post_init__(self) -> None:
        self.held: dict[str, NDArray[np.uint8]] = {}
        self._constants = np.frombuffer(self.program.constants, np.uint8)

    def view(self, tensor: TensorDescriptor) -> NDArray[Any]:
        """Return *tensor*'s elements in the bytes of its buffer."""
        if tensor.space is Space.CONSTANTS:
            return geometry_of(tensor).view(self._constants, tensor.base)
        place = self.place(tensor)
        if place.name not in self.held:
            self.held[place.name] = np.full(place.extent, POISON, np.uint8)
        return geometry_of(tensor).view(self.held[place.name], tensor.base - place.base)

    def place(self, tensor: TensorDescriptor) -> Place:
        """Return the buffer in which *tensor* lies."""
        return self.places[symbol_at(self.program.symbols, tensor.symbol)]


def _run(step: Step, memory: _OwnMemory, sums: Sums) -> None:
    views = [_ABSENT if t is None else memory.view(t) for t in step.tensors]
    names = ("input", "weights", "parameters", "residual", "output")
    arrays = Arrays(**dict(zip(names, views, strict=True)), sums=sums)
    kernel = KERNELS[step.toa.opcode]
    result = kernel.run(step, arrays)
    if result is None:
        return
    if kernel.raw:
        arrays.output[...] = result
    else:
        store(arrays.output, step.output, result)


class _Watch:
    """Takes the bytes of inputs and states before a run, of others when their last writer ends."""

    def __init__(self, image: Image, engine: Engine, places: Places) -> None:
        self._memory = engine.memory
        given = [*(p.tensor for p in image.inputs), *(s.tensor for s in image.states)]
        self._given = [self._place(image, places, tensor) for tensor in given]
        self._written = {
            step.index: self._place(image, places, step.output) for step in image.steps
        }
        self._left = Counter(place.name for place in self._written.values())
        self.begin: dict[str, NDArray[np.uint8]] = {}
        self.held: dict[str, NDArray[np.uint8]] = {}

    @staticmethod
    def _place(image: Image, places: Places, tensor: TensorDescriptor) -> Place:
        return places[symbol_at(image.program.symbols, tensor.symbol)]

    def see(self, index: int, moment: str) -> None:
        """Note that a TOA has started or ended."""
        if not self.begin:
            self.begin = {place.name: self._bytes(place) for place in self._given}
        if moment != "end":
            return
        place = self._written[index]
        self._left[place.name] -= 1
        if not self._left[place.name]:
            self.held[place.name] = self._bytes(place)

    def _bytes(self, place: Place) -> NDArray[np.uint8]:
        space = self._memory.spaces[place.space]
        return space[place.base : place.base + place.extent].copy()
