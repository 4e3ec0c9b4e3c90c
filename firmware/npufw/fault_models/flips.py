"""Bits that flip: one upset at a chosen place and time, or each bit at a rate.

Invariant: what an upset hits follows from the image and the seed alone, before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npuabi.records import TensorDescriptor
from npufw.boot import Image
from npufw.descriptors import HEADER_ROWS, ROW_BYTES
from npufw.fault_models.base import SEED, FaultModel, Field, Values
from npufw.fault_models.draws import Source
from npufw.fault_models.places import REGIONS, Site, addresses, name_of, octets_of, sites
from npufw.faults import FREE, Hook, Machine, Moment, Outcome, Phase
from npufw.kernels.base import Step

__all__ = ["FLIP", "FLIPS", "SHAPES", "TIMES", "Flips", "Upset", "Upsets", "draw_upset"]

SHAPES = ("scattered", "burst", "byte", "row")
TIMES = ("before", "between", "after")

_STARTS = {"before": Phase.TOA_STARTS, "between": Phase.TOA_READS, "after": Phase.TOA_DONE}
_OF_HEADER = {"before": Phase.RUN_STARTS, "between": Phase.HEADER_READS, "after": Phase.TOA_DONE}
_OF_OUTPUT = {"before": Phase.RUN_ENDS, "between": Phase.OUTPUT_READS, "after": Phase.RUN_STARTS}
_STUCK_IN = FREE | {Phase.TOA_READS, Phase.OUTPUT_READS, Phase.HEADER_CHECKS, Phase.HEADER_READS}


@dataclass(frozen=True, kw_only=True)
class Upset:
    """What flips, and when: *masks* are XORed to bytes at *places* of *space*, None for the table.

    Places of the table are bytes of a copy. A *stuck* row reads as *value* from then on. It comes
    at *phase* of *toa* in *job*, or as soon as *cycle* has come where that is given.
    """

    space: Space | None
    places: tuple[int, ...]
    masks: tuple[int, ...]
    stuck: bool
    value: int
    phase: Phase
    toa: int | None
    job: int
    text: str
    cycle: int | None = None

    def due(self, moment: Moment, job: int) -> bool:
        """Whether it comes at *moment* of *job*."""
        if self.cycle is not None:
            return moment.phase in FREE and moment.cycle >= self.cycle
        if job != self.job:
            return False
        index = None if moment.step is None else moment.step.index
        return moment.phase is self.phase and self.toa in (None, index)


class Upsets(Hook):
    """Does one upset; ``load`` gives it another, which counts its jobs from then."""

    def __init__(self, upset: Upset | None = None) -> None:
        self.load(upset)

    def load(self, upset: Upset | None) -> None:
        """Take *upset* in the place of what there was."""
        self._upset, self._job, self._hit = upset, -1, False

    def at(self, machine: Machine, moment: Moment) -> None:
        """Flip when it is due; hold what is stuck."""
        upset = self._upset
        if upset is None:
            return
        if moment.phase is Phase.RUN_STARTS:
            self._job += 1
        if not self._hit and upset.due(moment, self._job):
            self._hit = True
            machine.note("upset", moment, Outcome.INJECTED, upset.text)
            _flip(machine, upset)
        elif self._hit and upset.stuck and moment.phase in _STUCK_IN:
            _flip(machine, upset)


def _flip(machine: Machine, upset: Upset) -> None:
    if upset.space is not None:
        memory, places = machine.memory.spaces[upset.space], list(upset.places)
        if upset.stuck:
            memory[places] = upset.value
        else:
            memory[places] ^= np.array(upset.masks, np.uint8)
        return
    descriptors = machine.descriptors
    row = upset.places[0] // ROW_BYTES
    # What is stuck is one copy's row, whichever copy is read later.
    copy = 0 if upset.stuck else descriptors.source(row)
    raw = bytearray(descriptors.read(row, copy))
    for place, mask in zip(upset.places, upset.masks, strict=True):
        at = place % ROW_BYTES
        raw[at] = upset.value if upset.stuck else raw[at] ^ mask
    descriptors.write(row, copy, bytes(raw))


def draw_upset(
    image: Image,
    source: Source,
    *,
    region: str,
    shape: str = "scattered",
    bits: int = 1,
    at: str = "before",
    op: str = "",
    job: int = 0,
    cycle: int | None = None,
) -> Upset:
    """Return an upset in *region*; ValueError when the program has none of it.

    *shape*: *bits* scattered over the tensor, a burst of neighbours, one byte made another, or the
    64-byte row around a byte stuck at 0 or 255.
    """
    found = sites(image, region, op)
    if at == "after":
        found = [s for s in found if s.step is not None or region == "header"] or found
    site = source.one_of(found)
    if site.tensor is None:
        space, places = None, _row(image, site, source)
    else:
        space, places = site.tensor.space, addresses(site.tensor, octets_of(site))
    chosen, masks = _pattern(source, places, shape, bits)
    if shape == "row":
        first = int(chosen[0]) // ROW_BYTES * ROW_BYTES
        end = first + ROW_BYTES if space is None else min(first + ROW_BYTES, _end(image, space))
        chosen, masks = list(range(first, end)), [0] * (end - first)
    phase = _phases(site)[at]
    return Upset(
        space=space,
        places=tuple(chosen),
        masks=tuple(masks),
        stuck=shape == "row",
        value=source.one_of((0, 255)),
        phase=phase,
        toa=None if site.step is None else site.step.index,
        job=job,
        cycle=cycle,
        text=_text(image, site, space, chosen, masks),
    )


def _phases(site: Site) -> dict[str, Phase]:
    if site.step is not None:
        return _STARTS
    return _OF_HEADER if site.tensor is None else _OF_OUTPUT


def _row(image: Image, site: Site, source: Source) -> NDArray[np.int64]:
    """Return the bytes of a row of the header, or of the TOA's records."""
    row = source.below(HEADER_ROWS)
    if site.step is not None:
        tensors = [HEADER_ROWS + i for i in site.step.toa.tensors if i < 2**32 - 1]
        own = HEADER_ROWS + len(image.program.tensors) + site.step.index
        row = source.one_of([own, *tensors])
    return np.arange(row * ROW_BYTES, (row + 1) * ROW_BYTES, dtype=np.int64)


def _pattern(
    source: Source, places: NDArray[np.int64], shape: str, bits: int
) -> tuple[list[int], list[int]]:
    count = 8 * len(places)
    if shape == "scattered":
        hit = source.distinct(count, bits)
    elif shape == "burst":
        first = source.below(max(1, count - bits + 1))
        hit = list(range(first, min(first + bits, count)))
    else:
        octet = source.below(len(places))
        return [int(places[octet])], [1 + source.below(255)]
    masks: dict[int, int] = {}
    for bit in hit:
        place = int(places[bit // 8])
        masks[place] = masks.get(place, 0) ^ 1 << bit % 8
    return list(masks), list(masks.values())


def _end(image: Image, space: Space) -> int:
    program = image.program
    sizes = {
        Space.SRAM: image.target.sram_bytes,
        Space.ARENA: program.header.arena_bytes,
        Space.CONSTANTS: len(program.constants),
    }
    return sizes[space]


def _text(
    image: Image, site: Site, space: Space | None, places: list[int], masks: list[int]
) -> str:
    where = "the table" if space is None else space.name.lower()
    named = "" if site.tensor is None else f" of {name_of(image, site.tensor)}"
    reader = "the host" if site.step is None else site.step.where
    what = f"{sum(m.bit_count() for m in masks)} bits" if any(masks) else "64 bytes stuck"
    return f"{what} at 0x{places[0]:x} of {where}, {site.region}{named}, read by {reader}"


class Flips(Hook):
    """Each bit of what is written flips at *rate*, once for each write, before anybody reads it.

    *parts* has the tensors that are hit, by the TOA that writes them. In DDR also the constants and
    the inputs, in each job before its first TOA.
    """

    def __init__(
        self, rate: float, seed: int, parts: Mapping[int, Sequence[TensorDescriptor]], *, ddr: bool
    ) -> None:
        self._rate, self._source, self._parts, self._ddr = rate, Source(seed), parts, ddr
        self._started = False

    def at(self, machine: Machine, moment: Moment) -> None:
        """Flip what has just been written."""
        if moment.phase is Phase.RUN_STARTS:
            self._started = False
        elif moment.phase is Phase.TOA_STARTS and self._ddr and not self._started:
            self._started = True
            self._flip_ddr(machine, moment)
        step = moment.step if moment.phase is Phase.TOA_DONE else None
        if step is not None and step.index in self._parts:
            for tensor in self._parts[step.index]:
                self._flip(machine, moment, tensor, step.where)

    def _flip_ddr(self, machine: Machine, moment: Moment) -> None:
        memory = machine.memory.spaces[Space.CONSTANTS]
        hit = self._source.hits(8 * len(memory), self._rate)
        _xor(memory, hit // 8, hit % 8)
        self._tell(machine, moment, len(hit), "the constants")
        for port in machine.image.inputs:
            self._flip(machine, moment, port.tensor, "the host")

    def _flip(
        self, machine: Machine, moment: Moment, tensor: TensorDescriptor, writer: str
    ) -> None:
        places, memory = moment.written, machine.memory
        if places is None:
            hit = self._source.hits(8 * memory.view(tensor).nbytes, self._rate)
            where = addresses(tensor, hit // 8)
        else:
            within = places[(places >= tensor.base) & (places < tensor.base + tensor.extent)]
            hit = self._source.hits(8 * len(within), self._rate)
            where = within[hit // 8]
        _xor(memory.spaces[tensor.space], where, hit % 8)
        self._tell(machine, moment, len(hit), f"{name_of(machine.image, tensor)}, by {writer}")

    def _tell(self, machine: Machine, moment: Moment, count: int, what: str) -> None:
        if count:
            machine.note("bit_flips", moment, Outcome.INJECTED, f"{count} bits of {what}")


def _xor(memory: NDArray[np.uint8], places: NDArray[np.int64], bits: NDArray[np.int64]) -> None:
    np.bitwise_xor.at(memory, places, (1 << bits).astype(np.uint8))


def _make_flips(image: Image, values: Values) -> Hook:
    space, region, op = str(values["space"]), str(values["region"]), str(values["op"])
    ddr = space == "ddr"
    if ddr and (op or region != "all"):
        raise ValueError("op and region choose tensors in sram; in ddr all is hit")
    parts = {
        step.index: hit
        for step in image.steps
        if (step.output.space is Space.ARENA) == ddr
        and (not op or f"(%{op})" in step.where)
        and (hit := _hit_parts(image, step, region))
    }
    if not parts and not ddr:
        raise ValueError(f"nothing in {space} is {region}{f' of {op!r}' if op else ''}")
    return Flips(float(values["rate"]), int(values["seed"]), parts, ddr=ddr)


def _hit_parts(image: Image, step: Step, region: str) -> list[TensorDescriptor]:
    """Return the tensors in *step*'s output that belong to *region*."""
    constants = step.input.space is Space.CONSTANTS
    if region == "all" or (region == "activations" and not constants):
        return [step.output]
    if region == "activations" or not constants:
        return []
    first, end = step.output.base, step.output.base + step.output.extent
    found: dict[tuple[object, ...], TensorDescriptor] = {}
    for site in sites(image, region):
        tensor, reader = site.tensor, site.step
        if tensor is None or reader is None or reader.toa.op != step.toa.op:
            continue
        if first <= tensor.base and tensor.base + tensor.extent <= end:
            found[tensor.base, tensor.dims, tensor.strides] = tensor
    return list(found.values())


def _make_flip(image: Image, values: Values) -> Hook:
    upset = draw_upset(
        image,
        Source(int(values["seed"])),
        region=str(values["region"]),
        shape=str(values["shape"]),
        bits=int(values["bits"]),
        at=str(values["at"]),
        op=str(values["op"]),
        job=int(values["job"]),
        cycle=int(values["cycle"]) if int(values["cycle"]) >= 0 else None,
    )
    return Upsets(upset)


_OP = Field(name="op", kind=str, default="", help="only of the op or tensor of this name")

FLIPS = FaultModel(
    name="flips",
    title="each bit flips at a rate, once for each time that it is written",
    gate="ripple",
    fields=(
        Field(name="rate", kind=float, high=1, help="probability for each bit"),
        Field(
            name="space",
            kind=str,
            default="sram",
            choices=("sram", "ddr"),
            help="the memory; ddr: constants and inputs in each job, and what DMA writes there",
        ),
        Field(
            name="region",
            kind=str,
            default="all",
            choices=("all", "weights", "activations", "parameters"),
            help="what is hit in SRAM, by who reads it",
        ),
        _OP,
        SEED,
    ),
    make=_make_flips,
    example="flips:space=sram,rate=1e-6,seed=7",
)
FLIP = FaultModel(
    name="flip",
    title="one upset at one place and time",
    gate="ripple",
    fields=(
        Field(name="region", kind=str, choices=tuple(REGIONS), help="what is hit"),
        Field(
            name="shape",
            kind=str,
            default="scattered",
            choices=SHAPES,
            help="bits anywhere in the tensor, neighbours, a byte, or 64 bytes stuck at 0 or 255",
        ),
        Field(name="bits", kind=int, default=1, low=1, high=4096, help="how many flip"),
        Field(
            name="at",
            kind=str,
            default="before",
            choices=TIMES,
            help="before the check, between check and use, after use",
        ),
        _OP,
        Field(name="job", kind=int, default=0, help="in which run, from 0"),
        Field(
            name="cycle",
            kind=int,
            low=-1,
            default=-1,
            help="hit as soon as this cycle since the load has come, whatever is read; -1: see at",
        ),
        SEED,
    ),
    make=_make_flip,
    example="flip:region=weights,bits=2,at=before",
)
