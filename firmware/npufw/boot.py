"""Boot: from a blob's bytes to an image whose every descriptor obeys every rule.

Invariant: nothing is allocated for a program, and nothing of it runs, before all rules hold; an
Image therefore needs no further checks but those of values that DMA brings in at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

from npuabi.container import Event, Loaded, Program, read_blob, symbol_at, target_of
from npuabi.cycles import Work, works_of
from npuabi.enums import Direction
from npuabi.errors import ErrorCode
from npuabi.policy import abi_of
from npuabi.records import NO_TENSOR, Interface, TensorDescriptor, Toa
from npuabi.schemas import ABI_MAJOR, ABI_MINOR, Version
from npuabi.simulate import Timeline, simulate
from npuabi.target import Target, load_target, target_names
from npufw.errors import FirmwareError
from npufw.interface_rules import check_interface
from npufw.kernels.base import Step
from npufw.state_rules import check_states
from npufw.tensor_rules import Room, check_tensor
from npufw.toa_rules import check_step, check_sums
from npufw.version import VersionRegister

__all__ = [
    "Image",
    "Port",
    "StateTensor",
    "boot",
    "device_of",
    "image_of",
    "refusals",
    "unchecked",
]


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

    def shape_of(self, runs: int) -> tuple[int, ...]:
        """The shape of *runs* compiled batches; those of a scalar become a vector."""
        shape = self.shape
        if runs == 1:
            return shape
        return (runs * shape[0], *shape[1:]) if shape else (runs,)


@dataclass(frozen=True, kw_only=True)
class StateTensor:
    """A tensor that is kept from run to run: its name, its place, the place of its first value."""

    name: str
    tensor: TensorDescriptor
    initial: TensorDescriptor


@dataclass(frozen=True, kw_only=True)
class Image:
    """A verified program. ``steps`` stand in ring order, and so do works and timeline.

    ``firmware`` is the version of the firmware that verified it.
    """

    program: Program
    target: Target
    events: tuple[Event, ...]
    steps: tuple[Step, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[StateTensor, ...] = ()
    firmware: Version = (ABI_MAJOR, ABI_MINOR)

    @cached_property
    def works(self) -> list[Work]:
        """The TOAs as the timing model sees them."""
        toas = [step.toa for step in self.steps]
        return works_of(self.program.tensors, toas, self.target)

    @cached_property
    def timeline(self) -> Timeline:
        """When each TOA starts and ends, and what it waits for."""
        return simulate(self.works, self.target)


def boot(raw: bytes, target: Target, register: VersionRegister | None = None) -> Image:
    """Return the verified image of the blob *raw*, healed in memory where one copy is bad.

    *register* says which version the device's firmware has, this code's own by default.

    Raises AbiError: the container's and policy's codes, or one that names the descriptor and the
    rule that it breaks.
    """
    if register is None:
        return image_of(read_blob(raw, target=target), target)
    version = register.read()
    loaded = read_blob(raw, target=target, abi=abi_of(version))
    return replace(image_of(loaded, target), firmware=version)


def device_of(raw: bytes, name: str | None) -> Target:
    """Return the target of that name or file; without one the blob's own, where it is known."""
    if name is None:
        own = target_of(raw)
        name = own if own in target_names() else "edge"
    return load_target(name)


def image_of(loaded: Loaded, target: Target) -> Image:
    """Return the image of a program that was read, after checking every descriptor.

    Raises FirmwareError.
    """
    for refusal in refusals(loaded.program, target):
        raise refusal
    return unchecked(loaded, target)


def unchecked(loaded: Loaded, target: Target) -> Image:
    """Return the image of a program whose descriptors nobody has checked: it must not run."""
    program = loaded.program
    ports = _ports(program)
    return Image(
        program=program,
        target=target,
        events=loaded.events,
        steps=_steps(program, target),
        inputs=tuple(p for p in ports if p.entry.direction is Direction.INPUT),
        outputs=tuple(p for p in ports if p.entry.direction is Direction.OUTPUT),
        states=_states(program),
    )


def refusals(program: Program, target: Target) -> Iterator[FirmwareError]:
    """Yield the refusal of each descriptor that breaks a rule.

    Later rules build on what earlier ones proved: behind a stage of them with refusals there are
    no more.
    """
    for stage in _stages(program, target):
        sound = True
        for check in stage:
            try:
                check()
            except FirmwareError as error:
                sound = False
                yield error
        if not sound:
            return


def _stages(program: Program, target: Target) -> Iterator[Iterable[Callable[[], None]]]:
    arena_bytes, constant_bytes = program.header.arena_bytes, len(program.constants)
    room = Room(target=target, arena_bytes=arena_bytes, constant_bytes=constant_bytes)
    yield [partial(_check_arena, room)]
    yield (
        partial(check_tensor, tensor, room, _called(program, index))
        for index, tensor in enumerate(program.tensors)
    )
    ports, states = _ports(program), _states(program)
    pairs, names = [(p.entry, p.tensor) for p in ports], [p.name for p in ports]
    yield [
        partial(check_interface, pairs, names, target),
        partial(check_states, [(s.name, s.tensor, s.initial) for s in states]),
    ]
    steps = _steps(program, target)
    yield (partial(check_step, step) for step in steps)
    yield [partial(check_sums, steps)]


def _check_arena(room: Room) -> None:
    size, target = room.arena_bytes, room.target
    if size > target.ddr_bytes:
        text = f"the arena has {size} bytes, DDR of {target.name} {target.ddr_bytes}"
        raise FirmwareError(ErrorCode.OUT_OF_DDR, text)


def _called(program: Program, index: int) -> str:
    name = symbol_at(program.symbols, program.tensors[index].symbol)
    return f"tensor {index} ({name})" if name else f"tensor {index}"


def _ports(program: Program) -> list[Port]:
    return [
        Port(
            name=symbol_at(program.symbols, entry.symbol),
            entry=entry,
            tensor=program.tensors[entry.tensor],
        )
        for entry in program.interface
    ]


def _states(program: Program) -> tuple[StateTensor, ...]:
    return tuple(
        StateTensor(
            name=symbol_at(program.symbols, entry.symbol),
            tensor=program.tensors[entry.tensor],
            initial=program.tensors[entry.initial],
        )
        for entry in program.states
    )


def _steps(program: Program, target: Target) -> tuple[Step, ...]:
    return tuple(_step(program, index, target) for index in program.ring)


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
