"""The engine: runs an image's TOAs over emulated memory, in the order that the timeline gives.

At a TOA's start its inputs are read and the result is computed; at its end the output is written.
At equal times ends come before starts. So a wait that is missing shows as wrong data, as on the
machine, and never as a different order of calls.

Invariant: a run that nobody watches goes through a loop that calls nobody; hooks and observers
(npufw.faults) and the pauses between TOAs cost nothing until there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npuabi.errors import AbiError
from npufw.boot import Image
from npufw.calls import Binder, Call
from npufw.descriptors import DescriptorMemory
from npufw.errors import FirmwareError
from npufw.faults import FaultEvent, Hook, Machine, Moment, Outcome, Phase
from npufw.host import batches, runs_of, state_arrays
from npufw.kernels.base import Sums
from npufw.kernels.layout import load, store
from npufw.memory import Memory
from npufw.toa_rules import check_range
from npufw.version import VersionRegister

__all__ = ["Engine", "Event", "Observer"]

Observer = Callable[[int, str], None]
"""Called with a TOA's index and "start" before it reads, "end" after it has written."""

Event = tuple[int, bool]
"""A TOA's position in ring order, and whether it starts there or ends."""


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

    ``observe`` may be set to a callable, and so may ``pause``: it is called after each TOA, when
    the core could be given to another program. *hooks* are faults and defences, called in their
    order. ``events`` are the starts and ends in the order of execution: that of the timeline, or
    the *events* given, which hold each TOA's start and later its end; whether the program's waits
    allow that order is the caller's business. *register* is the device's version register, which
    each run reads again. *memory* is where the program runs, unless it is to make its own.
    """

    def __init__(
        self,
        image: Image,
        *,
        observe: Observer | None = None,
        events: Iterable[Event] | None = None,
        hooks: Sequence[Hook] = (),
        register: VersionRegister | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.image = image
        self.observe = observe
        self.pause: Callable[[], None] | None = None
        self.register = register or VersionRegister(image.firmware)
        self.memory = _memory_of(image, writable=bool(hooks)) if memory is None else memory
        self._binder = Binder(self.memory)
        self._calls = [self._binder.bind(step) for step in image.steps]
        self.events = _order(image) if events is None else _whole(image, events)
        self._inputs = [self._binder.view(port.tensor) for port in image.inputs]
        self._outputs = [self._binder.view(port.tensor) for port in image.outputs]
        self._runs = 0
        self._machine = Machine(
            image=image,
            memory=self.memory,
            calls=self._calls,
            descriptors=DescriptorMemory(image.program, image.target, image.firmware),
            register=self.register,
            hooks=tuple(hooks),
        )
        self._put_first_states()
        self._machine.tell(Moment(Phase.LOADED, 0))

    @property
    def log(self) -> tuple[FaultEvent, ...]:
        """What faults did since the load."""
        return tuple(self._machine.log)

    def drain(self) -> tuple[FaultEvent, ...]:
        """Return what the log holds, and empty it."""
        events = self.log
        self._machine.log.clear()
        return events

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Faults and defences, in the order in which they are called."""
        return self._machine.hooks

    @property
    def guarded(self) -> bool:
        """Whether there are faults and defences, so that a run may be refused."""
        return bool(self._machine.hooks)

    @property
    def sums(self) -> Sums:
        """What the MAC unit holds between TOAs."""
        return self._binder.sums

    @property
    def surcharge(self) -> dict[str, int]:
        """Cycles that defences have cost since the load, by the defence's name."""
        return dict(self._machine.surcharge)

    @contextmanager
    def without(self, kinds: tuple[type[Hook], ...]) -> Iterator[None]:
        """Leave out hooks of these *kinds* for a while."""
        whole = self._machine
        kept = tuple(hook for hook in whole.hooks if not isinstance(hook, kinds))
        self._machine = replace(whole, hooks=kept)
        try:
            yield
        finally:
            self._machine = whole

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs, dense in the model's shapes, for *inputs* of N compiled batches.

        A network with states takes the batches as consecutive frames and keeps its states.
        Raises FirmwareError when an array is not what the network takes (host.py),
        VERSION_CHANGED when the firmware is another than the one that verified the image, and
        when a defence refuses a batch; then the states are those of before that batch.
        """
        image = self.image
        self._confirm_version()
        runs = runs_of(image.inputs, inputs)
        given = [batches(port, inputs[port.name], runs) for port in image.inputs]
        taken = [np.empty((runs, *view.shape), view.dtype) for view in self._outputs]
        self.transfer(given, taken)
        return {
            port.name: array.reshape(port.shape_of(runs))
            for port, array in zip(image.outputs, taken, strict=True)
        }

    def transfer(self, given: Sequence[NDArray[Any]], taken: Sequence[NDArray[Any]]) -> None:
        """Run the batches of *given* and put the outputs into *taken*.

        They hold an array (runs, N, C, H, W) for each input and output, in order, with any strides;
        whoever calls has checked them, as ``run`` does.
        """
        for run in range(len(taken[0])):
            for view, arrays in zip(self._inputs, given, strict=True):
                view[...] = arrays[run]
            self._execute()
            for arrays, view in zip(taken, self._outputs, strict=True):
                arrays[run] = view

    def _confirm_version(self) -> None:
        try:
            self.register.confirm(self.image.firmware)
        except FirmwareError as error:
            moment = Moment(Phase.REFUSED, self._runs * self.image.timeline.cycles)
            self._machine.note("version", moment, Outcome.REFUSED, error.detail)
            raise

    def reset(self) -> None:
        """Put every state's first value in place."""
        self._put_first_states()
        self._tell(Phase.STATES_SET)

    def reload(self) -> None:
        """Put constants, descriptors and states back as they were loaded, as from flash."""
        constants = np.frombuffer(self.image.program.constants, np.uint8)
        if self._machine.hooks:
            self.memory.spaces[Space.CONSTANTS][...] = constants
        self._machine.descriptors.reload()
        self.reset()

    @property
    def states(self) -> dict[str, NDArray[Any]]:
        """The states by name, N, C, H, W as the device has them; a copy."""
        view = self._binder.view
        return {s.name: load(view(s.tensor), s.tensor).copy() for s in self.image.states}

    @states.setter
    def states(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        state_arrays(self.image.states, arrays)
        for state in self.image.states:
            store(self._binder.view(state.tensor), state.tensor, arrays[state.name])
        self._tell(Phase.STATES_SET)

    def _put_first_states(self) -> None:
        for state in self.image.states:
            self._binder.view(state.tensor)[...] = self._binder.view(state.initial)

    def _tell(self, phase: Phase) -> None:
        self._machine.tell(Moment(phase, self._runs * self.image.timeline.cycles))

    def _execute(self) -> None:
        self._binder.sums.values = None
        if self.observe is not None or self._machine.hooks:
            self._execute_guarded()
        else:
            self._execute_plainly()
        self._runs += 1

    def _execute_plainly(self) -> None:
        pending: dict[int, NDArray[Any] | None] = {}
        pause = self.pause
        for position, begins in self.events:
            call = self._calls[position]
            if begins:
                pending[position] = call.compute()
                continue
            result = pending.pop(position)
            if result is not None:
                call.write(result)
            if pause is not None:
                pause()

    def _execute_guarded(self) -> None:
        hooks, machine = self._machine.hooks, self._machine
        if self.observe is not None:
            machine = replace(machine, hooks=(*hooks, _Watch(self.observe)))
        kept = [self._binder.view(s.tensor).copy() for s in self.image.states]
        try:
            self._execute_watched(machine)
        except AbiError:
            for state, values in zip(self.image.states, kept, strict=True):
                self._binder.view(state.tensor)[...] = values
            self._runs += 1
            self._tell(Phase.REFUSED)
            raise

    def _execute_watched(self, machine: Machine) -> None:
        pending: dict[int, tuple[Call, NDArray[Any] | None]] = {}
        slots, whole = self.image.timeline.slots, self.image.timeline.cycles
        before = self._runs * whole
        for phase in (Phase.RUN_STARTS, Phase.HEADER_CHECKS, Phase.HEADER_READS):
            machine.tell(Moment(phase, before))
        machine.descriptors.read_header()
        for position, begins in self.events:
            call, slot = self._calls[position], slots[position]
            if begins:
                pending[position] = self._begun(machine, position, before + slot.start)
                continue
            machine.tell(Moment(Phase.TOA_WRITES, before + slot.end, call.step))
            call, result = pending.pop(position)
            if result is not None:
                call.write(result)
            machine.tell(Moment(Phase.TOA_WRITTEN, before + slot.end, call.step))
            machine.tell(Moment(Phase.TOA_DONE, before + slot.end, call.step))
            if self.pause is not None:
                self.pause()
        for phase in (Phase.RUN_ENDS, Phase.OUTPUT_CHECKS, Phase.OUTPUT_READS):
            machine.tell(Moment(phase, before + whole))

    def _begun(
        self, machine: Machine, position: int, cycle: int
    ) -> tuple[Call, NDArray[Any] | None]:
        """Start a TOA: return it as its descriptors say, and what it computes."""
        call = self._calls[position]
        machine.tell(Moment(Phase.TOA_STARTS, cycle, call.step))
        machine.tell(Moment(Phase.TOA_CHECKS, cycle, call.step))
        moment = Moment(Phase.TOA_READS, cycle, call.step)
        machine.tell(moment)
        if machine.descriptors.touched(call.step.index):
            call = self._fetched(machine, call)
        return call, machine.compute(call, moment)

    def _fetched(self, machine: Machine, call: Call) -> Call:
        """Return *call* as the descriptors in memory say, which may have been hit."""
        step = machine.descriptors.step(call.step.index)
        if step == call.step:
            return call
        check_range(call.step, step)
        return self._binder.bind_once(step)


def _memory_of(image: Image, *, writable: bool) -> Memory:
    return Memory.create(
        sram_bytes=image.target.sram_bytes,
        arena_bytes=image.program.header.arena_bytes,
        constants=image.program.constants,
        writable=writable,
    )


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
