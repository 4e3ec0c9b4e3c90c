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

__all__ = ["Bytes", "read_arrays", "run_blob", "run_tasks"]

Bytes = Mapping[str, NDArray[np.uint8]]
"""What each buffer held when it was complete, by the buffer's name."""

_ABSENT: NDArray[Any] = np.empty(0, np.uint8)


def read_arrays(
    options: Sequence[str], names: Sequence[str], recipe: Preprocess | None
) -> dict[str, Array]:
    """Return arrays by input from ``--input`` options, as ``npufw run`` reads them."""
    arrays, _spare = read_inputs(options, names, recipe)
    return arrays


def run_tasks(
    program: Program, target: Target, places: Places, inputs: Mapping[str, Array]
) -> Bytes:
    """Run the records of *program*, not its bytes, each buffer in memory of its own."""
    image = image_of(Loaded(program=program, events=()), target)
    memory = _OwnMemory(program, places)
    for port in image.inputs:
        memory.view(port.tensor)[...] = batches(port, inputs[port.name], 1)[0]
    for state in image.states:
        memory.view(state.tensor)[...] = memory.view(state.initial)
    sums = Sums()
    for step in image.steps:
        _run(step, memory, sums)
    return memory.held


def run_blob(blob: bytes, target: Target, places: Places, inputs: Mapping[str, Array]) -> Bytes:
    """Boot and run *blob* in the emulator."""
    image = boot(blob, target)
    engine = Engine(image)
    watch = _Watch(image, engine, places)
    engine.observe = watch.see
    engine.run(inputs)
    return watch.held


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
        place = self.places[symbol_at(self.program.symbols, tensor.symbol)]
        if place.name not in self.held:
            self.held[place.name] = np.full(place.extent, POISON, np.uint8)
        return geometry_of(tensor).view(self.held[place.name], tensor.base - place.base)


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
    """Takes the bytes of each buffer when the last TOA that writes it has ended."""

    def __init__(self, image: Image, engine: Engine, places: Places) -> None:
        self._memory = engine.memory
        self._written = {step.index: self._place(image, places, step) for step in image.steps}
        self._left = Counter(place.name for place in self._written.values())
        self.held: dict[str, NDArray[np.uint8]] = {}

    @staticmethod
    def _place(image: Image, places: Places, step: Step) -> Place:
        return places[symbol_at(image.program.symbols, step.output.symbol)]

    def see(self, index: int, moment: str) -> None:
        """Note that a TOA has started or ended."""
        if moment != "end":
            return
        place = self._written[index]
        self._left[place.name] -= 1
        if not self._left[place.name]:
            space = self._memory.spaces[place.space]
            self.held[place.name] = space[place.base : place.base + place.extent].copy()
