"""What the campaigns on updates share: small models, devices that hold them, the reboot check.

A device is prepared with two models, so that an update erases the older one. ``after_cut`` reboots
it three times: it has to boot one of the models that it may, bit by bit, and boots 2 and 3 must
leave the flash as boot 1 did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from npuabi.enums import (
    Direction,
    DType,
    Layout,
    Mode,
    Opcode,
    Precision,
    Rounding,
    Space,
    ToaFlag,
    Unit,
)
from npuabi.errors import AbiError
from npuabi.program import Program, pack_symbols, table_header
from npuabi.progress import Progress
from npuabi.records import NO_TENSOR, Interface, KnownAnswer, SourceEntry, TensorDescriptor, Toa
from npuabi.sections import SECTOR_BYTES
from npuabi.target import load_target
from npufw.flash.layout import Device, OneTimeBits, blank_device
from npufw.flash.nor import CLEAN, Cut, FlashModel, NorFlash, PowerCut
from npufw.flash.slots import Trust, Verifier
from npufw.flash.update import blobs_of, boot_device, update
from tools.campaigns.base import Tally

__all__ = [
    "Bench",
    "after_cut",
    "bench",
    "cut_update",
    "operations_of_update",
    "small_program",
    "tally",
    "verifier",
]

TARGET = load_target("edge")
_SYMBOLS, _AT = pack_symbols(["x", "y", "op"])


@cache
def small_program(descriptors: int, seed: int) -> Program:
    """Return a program of so many descriptors, half of them tensors; *seed* changes its bytes."""
    count = descriptors // 2
    tensors = tuple(_tensor(i) for i in range(count))
    toas = tuple(_toa(i, seed) for i in range(descriptors - count))
    constants = bytes((seed * 31 + i * 7) % 251 for i in range(96))
    return Program(
        header=table_header(
            target=TARGET,
            tensors=tensors,
            toas=toas,
            constants=constants,
            arena_bytes=4096,
            macs=seed,
            cycles=1,
            rounding=Rounding.DOUBLE,
            precision=Precision.INT8,
        ),
        tensors=tensors,
        toas=toas,
        ring=tuple(range(len(toas))),
        constants=constants,
        interface=(
            Interface(
                direction=Direction.INPUT,
                rank=4,
                dtype=DType.I8,
                tensor=0,
                symbol=_AT["x"],
                shape=(1, 16, 1, 1),
            ),
        ),
        sources=(
            SourceEntry(symbol=_AT["y"], kind=_AT["op"], file=0, line=1, column=1, macs=seed),
        ),
        symbols=_SYMBOLS,
        known_answer=KnownAnswer(seed=seed, std=1.0, output_crc=0, samples=0, offset=0),
    )


def _tensor(index: int) -> TensorDescriptor:
    return TensorDescriptor(
        base=64 * index,
        dims=(1, 16, 1, 1),
        strides=(16, 16, 16, 16),
        space=Space.ARENA,
        dtype=DType.I8,
        layout=Layout.NCHW16C,
        alignment_log2=4,
        bank=0,
        lane=0,
        zero_point=0,
        scale=1.0,
        symbol=_AT["x"],
        extent=16,
    )


def _toa(index: int, seed: int) -> Toa:
    return Toa(
        opcode=Opcode.COPY,
        unit=Unit.VECTOR,
        precision=Precision.INT8,
        mode=Mode.NONE,
        flags=ToaFlag(0),
        op=0,
        tensors=(0, NO_TENSOR, NO_TENSOR, NO_TENSOR, 0),
        waits=(0, 0, 0, 0),
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        pads=(0, 0, 0, 0),
        groups=1,
        clamp=(-128, 127),
        setup_cycles=2,
        sample_taps=0,
        cycles=1000 * seed + index,
    )


def verifier() -> Verifier:
    """Return a verifier of the harness's target, with room for what many trials look at."""
    return Verifier(Trust(target=TARGET), keep=64)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A device that holds *older* and *old*, and the blob *new* that an update writes over older.

    The blobs are as they lie in flash, with their generations.
    """

    image: bytes
    model: FlashModel
    older: bytes
    old: bytes
    new: bytes
    sectors: int
    make_new: Callable[[int], bytes]

    def device(self) -> Device:
        """Return the device, as it was before the update."""
        import numpy as np

        cells = np.frombuffer(self.image, np.uint8).copy()
        return Device(NorFlash(cells, self.model), OneTimeBits())


@cache
def bench(descriptors: int, model: FlashModel = CLEAN) -> Bench:
    """Return the bench of models of so many descriptors on a chip of that *model*."""
    makers = [_maker(descriptors, seed) for seed in (1, 2, 3)]
    blobs = [make(generation) for generation, make in enumerate(makers, start=1)]
    sectors = len(blobs[0]) // SECTOR_BYTES
    device, looker = blank_device(sectors, model), verifier()
    for make in makers[:2]:
        update(device, looker, make)
    return Bench(
        image=device.flash.data.tobytes(),
        model=model,
        older=blobs[0],
        old=blobs[1],
        new=blobs[2],
        sectors=sectors,
        make_new=makers[2],
    )


@cache
def _maker(descriptors: int, seed: int) -> Callable[[int], bytes]:
    return cache(blobs_of(small_program(descriptors, seed)))


@cache
def operations_of_update(descriptors: int, model: FlashModel = CLEAN) -> tuple[str, ...]:
    """Return the operations of the update, each ``erase`` or ``program``."""
    rig = bench(descriptors, model)
    device = rig.device()
    kinds: list[str] = []

    class Watched(NorFlash):
        def erase(self, sector: int) -> None:
            super().erase(sector)
            kinds.append("erase")

        def program(self, offset: int, data: bytes) -> None:
            super().program(offset, data)
            kinds.extend(["program"] * (len(data) // self.model.write_unit))

    device.flash = Watched(device.flash.data, model)
    update(device, verifier(), rig.make_new)
    return tuple(kinds)


def cut_update(rig: Bench, cut: Cut, looker: Verifier) -> Device:
    """Return the device as power comes back, after a cut in the update."""
    device = rig.device()
    device.flash.cut = cut
    with contextlib.suppress(PowerCut):
        update(device, looker, rig.make_new)
    device.flash = device.flash.reboot()
    return device


def after_cut(
    device: Device, allowed: Sequence[bytes], looker: Verifier, *, worn: bool = False
) -> str:
    """Boot three times; return what is wrong, nothing if all is well.

    Unless the chip is *worn*, the slot that boots holds its blob behind the first boot.
    """
    kept: list[bytes] = []
    for number in (1, 2, 3):
        try:
            booted = boot_device(device, looker)
        except AbiError as error:
            return f"boot {number}: {error}"
        if booted.blob not in allowed:
            return f"boot {number}: slot {booted.slot.name} is neither the old model nor the new"
        start = device.offset(booted.slot)
        held = device.flash.data[start : start + len(booted.blob)].tobytes()
        if held != booted.blob and not worn:
            return f"boot {number}: slot {booted.slot.name} was not healed"
        kept.append(booted.blob + device.flash.data.tobytes())
    if kept[1] != kept[0] or kept[2] != kept[0]:
        return "boot 2 or 3 changed what boot 1 left"
    return ""


def tally(
    ids: Sequence[int], trial: Callable[[int], str | None], progress: Progress, name: str
) -> Tally:
    """Run trials; each gives what is wrong, "" if nothing, None if there was nothing to try."""
    found = Tally()
    for number, identity in enumerate(ids):
        story = trial(identity)
        if story is None:
            continue
        found.trials += 1
        if story:
            found.failures.append(f"{name} --replay {identity}: {story}")
        if number % 64 == 0:
            progress(name, number, len(ids))
    return found


def spread(identity: int, sizes: Sequence[int]) -> Iterator[int]:
    """Yield the digits of a number in mixed radix, the first size's digit first."""
    for size in sizes:
        identity, digit = divmod(identity, size)
        yield digit
