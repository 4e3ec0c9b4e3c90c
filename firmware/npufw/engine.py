"""The engine: runs an image's TOAs over emulated memory, in the order that the timeline gives.

At a TOA's start its inputs are read and the result is computed; at its end the output is written.
At equal times ends come before starts. So a wait that is missing shows as wrong data, as on the
machine, and never as a different order of calls.

Invariant: a run that nobody watches goes through a loop that calls nobody; hooks and observers
(npufw.faults) cost nothing until there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.records import TensorDescriptor
from npufw.boot import Image, Port
from npufw.faults import FaultEvent, Hook, Machine, Moment, Phase
from npufw.host import batches, runs_of, state_arrays
from npufw.kernels import KERNELS
from npufw.kernels.base import Arrays, Kernel, Step, Sums
from npufw.kernels.layout import load, store
from npufw.memory import Memory
from npufw.version import VersionRegister

__all__ = ["Engine", "Event", "Observer"]

Observer = Callable[[int, str], None]
"""Called with a TOA's index and "start" before it reads, "end" after it has written."""

Event = tuple[int, bool]
"""A TOA's position in ring order, and whether it starts there or ends."""

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


@dataclass(frozen=True, slots=True)
class _Watch(Hook):
    """An observer as a hook."""

    observe: Observer

    def at(self, machine: Machine, moment: Moment) -> None:
        word = _WORDS.get(moment.phase)
        if word is not None and moment.step is not None:
            self.observe(moment.step.index, word)


_WORDS = {Phase.TOA_READS: "start", Phase.TOA_DONE: "end"}


class Engine:
    """An image loaded into one core's memory, ready to run as often as wanted.

    ``observe`` may be set to a callable. *hooks* are faults and defences, called in their order.
    ``events`` are the starts and ends in the order of execution: that of the timeline, or the
    *events* given, which hold each TOA's start and later its end; whether the program's waits
    allow that order is the caller's business. *register* is the device's version register, which
    each run reads again.
    """

    def __init__(
        self,
        image: Image,
        *,
        observe: Observer | None = None,
        events: Iterable[Event] | None = None,
        hooks: Sequence[Hook] = (),
        register: VersionRegister | None = None,
    ) -> None:
        header = image.program.header
        self.image = image
        self.observe = observe
        self.register = register
        self.memory = Memory.create(
            sram_bytes=image.target.sram_bytes,
            arena_bytes=header.arena_bytes,
            constants=image.program.constants,
            writable=bool(hooks),
        )
        self._sums = Sums()
        self._views: dict[int, NDArray[Any]] = {}
        self._calls = [self._bind(step) for step in image.steps]
        self.events = _order(image) if events is None else _whole(image, events)
        self._inputs = [self._view(port.tensor) for port in image.inputs]
        self._outputs = [self._view(port.tensor) for port in image.outputs]
        self.reset()
        self._runs = 0
        self._hooks = tuple(hooks)
        self._machine = Machine(image, self.memory)
        for hook in self._hooks:
            hook.at(self._machine, Moment(Phase.LOADED, 0))

    @property
    def log(self) -> tuple[FaultEvent, ...]:
        """What faults did since the load."""
        return tuple(self._machine.log)

    @property
    def surcharge(self) -> dict[str, int]:
        """Cycles that defences have cost since the load, by the defence's name."""
        return dict(self._machine.surcharge)

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs, dense in the model's shapes, for *inputs* of N compiled batches.

        A network with states takes the batches as consecutive frames and keeps its states.
        Raises FirmwareError when an array is not what the network takes; see host.py. And
        VERSION_CHANGED when the firmware is another than the one that verified the image.
        """
        image = self.image
        if self.register is not None:
            self.register.confirm(image.firmware)
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

    def reset(self) -> None:
        """Put every state's first value in place."""
        for state in self.image.states:
            self._view(state.tensor)[...] = self._view(state.initial)

    @property
    def states(self) -> dict[str, NDArray[Any]]:
        """The states by name, N, C, H, W as the device has them; a copy."""
        return {s.name: load(self._view(s.tensor), s.tensor).copy() for s in self.image.states}

    @states.setter
    def states(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        state_arrays(self.image.states, arrays)
        for state in self.image.states:
            store(self._view(state.tensor), state.tensor, arrays[state.name])

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
        self._sums.values = None
        if self.observe is None and not self._hooks:
            self._execute_plainly()
        else:
            self._execute_watched()
        self._runs += 1

    def _execute_plainly(self) -> None:
        pending: dict[int, NDArray[Any] | None] = {}
        for position, begins in self.events:
            call = self._calls[position]
            if begins:
                pending[position] = call.compute()
                continue
            result = pending.pop(position)
            if result is not None:
                call.write(result)

    def _execute_watched(self) -> None:
        hooks = self._hooks if self.observe is None else (*self._hooks, _Watch(self.observe))
        pending: dict[int, NDArray[Any] | None] = {}
        slots, whole = self.image.timeline.slots, self.image.timeline.cycles
        before = self._runs * whole
        self._tell(hooks, Moment(Phase.RUN_STARTS, before))
        for position, begins in self.events:
            call, slot = self._calls[position], slots[position]
            if begins:
                moment = Moment(Phase.TOA_READS, before + slot.start, call.step)
                self._tell(hooks, moment)
                pending[position] = self._computed(call, hooks, moment)
                continue
            self._tell(hooks, Moment(Phase.TOA_WRITES, before + slot.end, call.step))
            result = pending.pop(position)
            if result is not None:
                call.write(result)
            self._tell(hooks, Moment(Phase.TOA_DONE, before + slot.end, call.step))
        self._tell(hooks, Moment(Phase.RUN_ENDS, before + whole))

    def _tell(self, hooks: Sequence[Hook], moment: Moment) -> None:
        for hook in hooks:
            hook.at(self._machine, moment)

    def _computed(self, call: _Call, hooks: Sequence[Hook], moment: Moment) -> NDArray[Any] | None:
        self._sums.stage = partial(self._read_out, hooks, moment)
        result = call.compute()
        self._sums.stage = None
        if call.kernel.raw and result is not None:
            for hook in hooks:
                result = hook.transferred(self._machine, moment, result)
        return result

    def _read_out(self, hooks: Sequence[Hook], moment: Moment, sums: NDArray[Any]) -> NDArray[Any]:
        for hook in hooks:
            sums = hook.summed(self._machine, moment, sums)
        return sums


def _whole(image: Image, events: Iterable[Event]) -> list[Event]:
    """Return *events*; ValueError unless each TOA starts once and then ends once."""
    kept, running, left = list(events), set[int](), set(range(len(image.steps)))
    for position, begins in kept:
        if begins and position in left:
            left.remove(position)
            running.add(position)
        elif not begins and position in running:
            running.remove(position)
        else:
            word = "starts" if begins else "ends"
            raise ValueError(f"events: position {position} {word} twice or out of turn")
    if left or running:
        raise ValueError(f"events: {len(left)} TOAs never start, {len(running)} never end")
    return kept


def _order(image: Image) -> list[Event]:
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
