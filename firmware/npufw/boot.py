"""Boot: from a blob's bytes to an image whose every descriptor obeys every rule.

Invariant: nothing is allocated for a program, and nothing of it runs, before all rules hold; an
Image therefore needs no further checks but those of values that DMA brings in at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from npuabi.container import Event, Loaded, Program, read_blob, symbol_at
from npuabi.cycles import Work, works_of
from npuabi.enums import Direction
from npuabi.errors import ErrorCode
from npuabi.records import NO_TENSOR, Interface, StateEntry, TensorDescriptor, Toa
from npuabi.simulate import Timeline, simulate
from npuabi.target import Target
from npufw.errors import FirmwareError
from npufw.interface_rules import check_interface
from npufw.kernels.base import Step
from npufw.state_rules import check_states
from npufw.tensor_rules import Room, check_tensor
from npufw.toa_rules import check_step, check_sums

__all__ = ["Image", "Port", "StateTensor", "boot", "image_of"]


@dataclass(frozen=True, kw_only=True)
class Port:
    """One input or output of the network: its name, interface record and tensor record."""

    name: str
    entry: Interface
    tensor: TensorDescriptor

    @property
    def shape(self) -> tuple[int, ...]:
        """The model's shape, batch first."""
        return self.entry.shape[: self.entry.rank]


@dataclass(frozen=True, kw_only=True)
class StateTensor:
    """A tensor that is kept from run to run: its name, its place, the place of its first value."""

    name: str
    tensor: TensorDescriptor
    initial: TensorDescriptor


@dataclass(frozen=True, kw_only=True)
class Image:
    """A verified program. ``steps`` stand in ring order, and so do works and timeline."""

    program: Program
    target: Target
    events: tuple[Event, ...]
    steps: tuple[Step, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[StateTensor, ...] = ()

    @cached_property
    def works(self) -> list[Work]:
        """The TOAs as the timing model sees them."""
        toas = [step.toa for step in self.steps]
        return works_of(self.program.tensors, toas, self.target)

    @cached_property
    def timeline(self) -> Timeline:
        """When each TOA starts and ends, and what it waits for."""
        return simulate(self.works, self.target)


def boot(raw: bytes, target: Target) -> Image:
    """Return the verified image of the blob *raw*, healed in memory where one copy is bad.

    Raises AbiError: the container's and policy's codes, or one that names the descriptor and the
    rule that it breaks.
    """
    return image_of(read_blob(raw, target=target), target)


def image_of(loaded: Loaded, target: Target) -> Image:
    """Return the image of a program that was read, after checking every descriptor.

    Raises FirmwareError.
    """
    program = loaded.program
    header = program.header
    if header.arena_bytes > target.ddr_bytes:
        text = f"the arena has {header.arena_bytes} bytes, DDR of {target.name} {target.ddr_bytes}"
        raise FirmwareError(ErrorCode.OUT_OF_DDR, text)
    room = Room(
        target=target, arena_bytes=header.arena_bytes, constant_bytes=len(program.constants)
    )
    for index, tensor in enumerate(program.tensors):
        name = symbol_at(program.symbols, tensor.symbol)
        check_tensor(tensor, room, f"tensor {index} ({name})" if name else f"tensor {index}")
    ports = _ports(program)
    check_interface([(p.entry, p.tensor) for p in ports], [p.name for p in ports], target)
    states = tuple(_state(program, entry) for entry in program.states)
    check_states([(s.name, s.tensor, s.initial) for s in states])
    steps = tuple(_step(program, index, target) for index in program.ring)
    for step in steps:
        check_step(step)
    check_sums(steps)
    return Image(
        program=program,
        target=target,
        events=loaded.events,
        steps=steps,
        inputs=tuple(p for p in ports if p.entry.direction is Direction.INPUT),
        outputs=tuple(p for p in ports if p.entry.direction is Direction.OUTPUT),
        states=states,
    )


def _ports(program: Program) -> list[Port]:
    return [
        Port(
            name=symbol_at(program.symbols, entry.symbol),
            entry=entry,
            tensor=program.tensors[entry.tensor],
        )
        for entry in program.interface
    ]


def _state(program: Program, entry: StateEntry) -> StateTensor:
    return StateTensor(
        name=symbol_at(program.symbols, entry.symbol),
        tensor=program.tensors[entry.tensor],
        initial=program.tensors[entry.initial],
    )


def _step(program: Program, index: int, target: Target) -> Step:
    toa: Toa = program.toas[index]
    tensors = tuple(None if i == NO_TENSOR else program.tensors[i] for i in toa.tensors)
    name = symbol_at(program.symbols, program.sources[toa.op].symbol)
    return Step(
        index=index,
        toa=toa,
        tensors=tensors,
        rounding=program.header.rounding,
        target=target,
        where=f"TOA {index} (%{name})",
    )
