"""Changing the records of a booted program by hand, and writing them back as a sound blob.

Invariant: CRCs, counts, and the extents and banks of changed records are made right again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from npuabi.container import Program, write_blob
from npuabi.enums import Space, ToaFlag, Unit
from npuabi.records import NO_TENSOR, TensorDescriptor, Toa
from npufw.boot import Image
from npufw.memory import geometry_of

__all__ = [
    "INPUT",
    "OUTPUT",
    "PARAMETERS",
    "RESIDUAL",
    "WAIT_FLAGS",
    "WEIGHTS",
    "Mutation",
    "Plant",
    "planted",
    "with_wait",
]

WAIT_FLAGS = (ToaFlag.WAIT_DMA_IN, ToaFlag.WAIT_DMA_OUT, ToaFlag.WAIT_MAC, ToaFlag.WAIT_VECTOR)
INPUT, WEIGHTS, PARAMETERS, RESIDUAL, OUTPUT = range(5)


@dataclass
class Plant:
    """The records of a booted program, to be changed, and the TOAs that were."""

    image: Image
    tensors: list[TensorDescriptor] = field(init=False)
    toas: list[Toa] = field(init=False)
    ring: list[int] = field(init=False)
    hit: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        program = self.image.program
        self.tensors, self.toas = list(program.tensors), list(program.toas)
        self.ring = list(program.ring)

    def program(self) -> Program:
        """Return the changed program."""
        header = replace(
            self.image.program.header, tensor_count=len(self.tensors), toa_count=len(self.toas)
        )
        return replace(
            self.image.program,
            header=header,
            tensors=tuple(self.tensors),
            toas=tuple(self.toas),
            ring=tuple(self.ring),
        )

    def blob(self) -> bytes:
        """Return it as a blob. Raises AbiError: the rules that the reader holds it to as well."""
        return write_blob(self.program())

    def tensor(self, toa: int, operand: int) -> TensorDescriptor | None:
        """Return the record of an operand."""
        index = self.toas[toa].tensors[operand]
        return None if index == NO_TENSOR else self.tensors[index]

    def point(self, toa: int, operand: int, tensor: int) -> None:
        """Make another tensor the operand."""
        own = list(self.toas[toa].tensors)
        own[operand] = tensor
        self.change(toa, tensors=tuple(own))

    def change(self, toa: int, **fields: Any) -> None:
        """Change fields of a TOA."""
        self.toas[toa] = replace(self.toas[toa], **fields)
        self.hit.add(toa)

    def operand(self, toa: int, operand: int, **fields: Any) -> None:
        """Give the TOA a record of its own for the operand, with other fields."""
        record = self.tensor(toa, operand)
        assert record is not None
        self.tensors.append(self.sound(replace(record, **fields)))
        self.point(toa, operand, len(self.tensors) - 1)

    def everywhere(self, tensor: int, **fields: Any) -> None:
        """Change a record for all that use it."""
        self.tensors[tensor] = self.sound(replace(self.tensors[tensor], **fields))
        self.hit.update(i for i, toa in enumerate(self.toas) if tensor in toa.tensors)

    def sound(self, record: TensorDescriptor) -> TensorDescriptor:
        """Return *record* with the bank and extent that follow from its place and shape."""
        sram = record.space is Space.SRAM
        bank = record.base // self.image.target.bank_bytes if sram else 0
        return replace(record, bank=bank, extent=geometry_of(record).extent)

    def position(self, toa: int) -> int:
        """Return a TOA's place in the ring."""
        return self.ring.index(toa)

    def take_out(self, toa: int) -> None:
        """Remove a TOA; waits for its unit's later ones count one less."""
        self.move_last(toa)
        del self.ring[-1], self.toas[toa]
        self.ring = [i - (i > toa) for i in self.ring]
        self.hit = {i - (i > toa) for i in self.hit - {toa}}

    def move_last(self, toa: int) -> None:
        """Move a TOA to the end of the ring; waits for its unit's later ones count one less."""
        place, unit = self.position(toa), self.toas[toa].unit
        count = sum(self.toas[i].unit is unit for i in self.ring[: place + 1])
        for index in self.ring[place + 1 :]:
            later = self.toas[index]
            if later.flags & WAIT_FLAGS[unit - 1] and later.waits[unit - 1] >= count:
                waits = with_wait(later, unit, later.waits[unit - 1] - 1)
                self.toas[index] = replace(later, waits=waits)
        del self.ring[place]
        self.ring.append(toa)
        self.hit.add(toa)


@dataclass(frozen=True)
class Mutation:
    """A fault by name: how it is planted at a TOA, and the findings or refusals that name it.

    ``shows`` is False where no run can show it: nothing is computed from what is wrong. ``named``
    is False where it shows between other TOAs than the one that it is planted in.
    """

    name: str
    plant: Callable[[Plant, int], bool]
    expected: frozenset[str]
    shows: bool = True
    named: bool = True

    @property
    def is_refused(self) -> bool:
        """Whether boot refuses it wherever it is planted."""
        return all(word.startswith(("bad_", "misaligned", "out_of")) for word in self.expected)


def planted(mutation: Mutation, image: Image, random: Random, count: int) -> Iterator[Plant]:
    """Yield *count* plants of *mutation* at TOAs drawn by *random*, fewer if it fits fewer."""
    order = list(range(len(image.steps)))
    random.shuffle(order)
    for toa in order:
        plant = Plant(image)
        if mutation.plant(plant, toa):
            yield plant
            count -= 1
        if not count:
            return


def with_wait(toa: Toa, unit: Unit, count: int) -> tuple[int, ...]:
    """Return a TOA's waits with another count for *unit*."""
    return tuple(count if u is unit else n for u, n in zip(Unit, toa.waits, strict=True))
