"""Faults planted by hand in the records of real programs, each a function of one TOA.

Invariant: what is planted changes what the program means. A plant returns False where it would
not, so that a sample of TOAs is a sample of faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from npuabi.enums import DType, Layout, Opcode, Space, ToaFlag, Unit
from npuabi.records import NO_TENSOR, TensorDescriptor
from npufw.boot import Image
from npufw.memory import geometry_of
from tests.hazards import Access, accesses, hazards
from tests.plant import (
    INPUT,
    OUTPUT,
    PARAMETERS,
    RESIDUAL,
    WAIT_FLAGS,
    WEIGHTS,
    Mutation,
    Plant,
    with_wait,
)

__all__ = ["MUTATIONS"]

_DMA = (Unit.DMA_IN, Unit.DMA_OUT)

MUTATIONS: list[Mutation] = []
"""All of them, in the order of this file."""


def _fault(*expected: str, **marks: bool) -> Callable[[Any], Any]:
    def add(plant: Callable[[Plant, int], bool]) -> Callable[[Plant, int], bool]:
        name = plant.__name__.removeprefix("_").replace("_", " ")
        MUTATIONS.append(Mutation(name, plant, frozenset(expected), **marks))
        return plant

    return add


def _sram(p: Plant, toa: int, operand: int) -> TensorDescriptor | None:
    record = p.tensor(toa, operand)
    return record if record is not None and record.space is Space.SRAM else None


ASTRAY = ("uninitialised", "out_of_bounds", "overwrite", "use_after_free")
"""What becomes of a read that meets other bytes than its own."""


def _compute(p: Plant, toa: int) -> bool:
    return p.toas[toa].unit not in _DMA


def _opened(p: Plant) -> bool:
    """Return whether the changed waits leave a hazard open that was none, by brute force."""
    touched = _touched(p.image)
    return bool(hazards([p.toas[i] for i in p.ring], touched))


_KNOWN: dict[int, list[Access]] = {}


def _touched(image: Image) -> list[Access]:
    if id(image) not in _KNOWN:
        _KNOWN[id(image)] = accesses(image)
    return _KNOWN[id(image)]


def _waits(p: Plant, toa: int) -> list[Unit]:
    return [unit for unit in Unit if p.toas[toa].flags & WAIT_FLAGS[unit - 1]]


def _issued(p: Plant, toa: int, unit: Unit) -> int:
    return sum(p.toas[i].unit is unit for i in p.ring[: p.position(toa)])


@_fault("bad_bank")
def _bank_field_wrong(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, OUTPUT)
    if record is None:
        return False
    p.tensors.append(replace(record, bank=(record.bank + 1) % p.image.target.banks))
    p.point(toa, OUTPUT, len(p.tensors) - 1)
    return True


def _next_bank(p: Plant, record: TensorDescriptor) -> int:
    size = p.image.target.bank_bytes
    base = record.base + size
    return base if base + record.extent <= p.image.target.sram_bytes else record.base % size


@_fault(*ASTRAY, "race")
def _input_taken_from_the_next_bank(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, INPUT)
    if record is None:
        return False
    p.operand(toa, INPUT, base=_next_bank(p, record))
    return True


@_fault(*ASTRAY, "race", "lost", "bad_precision")
def _output_put_into_the_next_bank(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, OUTPUT)
    if record is None:
        return False
    p.operand(toa, OUTPUT, base=_next_bank(p, record))
    return True


@_fault("race")
def _dependency_dropped(p: Plant, toa: int) -> bool:
    for unit in _waits(p, toa):
        whole = p.toas[toa]
        p.change(toa, flags=whole.flags & ~WAIT_FLAGS[unit - 1])
        if _opened(p):
            return True
        p.toas[toa] = whole
    return False


@_fault("race")
def _wait_one_short(p: Plant, toa: int) -> bool:
    for unit in _waits(p, toa):
        whole = p.toas[toa]
        p.change(toa, waits=with_wait(whole, unit, whole.waits[unit - 1] - 1))
        if _opened(p):
            return True
        p.toas[toa] = whole
    return False


@_fault("race")
def _wait_on_another_unit(p: Plant, toa: int) -> bool:
    whole = p.toas[toa]
    for unit in _waits(p, toa):
        for other in Unit:
            count = min(whole.waits[unit - 1], _issued(p, toa, other))
            if other in (unit, whole.unit) or whole.flags & WAIT_FLAGS[other - 1] or not count:
                continue
            flags = whole.flags & ~WAIT_FLAGS[unit - 1] | WAIT_FLAGS[other - 1]
            p.change(toa, flags=flags, waits=with_wait(whole, other, count))
            if _opened(p):
                return True
            p.toas[toa] = whole
    return False


@_fault("bad_wait")
def _wait_for_what_comes_later(p: Plant, toa: int) -> bool:
    for unit in _waits(p, toa):
        late = _issued(p, toa, unit) + 1
        p.change(toa, waits=with_wait(p.toas[toa], unit, late))
        return True
    return False


@_fault("race")
def _waits_of_two_exchanged(p: Plant, toa: int) -> bool:
    mine = p.toas[toa]
    for other, theirs in enumerate(p.toas):
        known = all(theirs.waits[u - 1] <= _issued(p, toa, u) for u in _waits(p, other))
        if theirs.unit is not mine.unit or theirs.waits == mine.waits or not known:
            continue
        if _waits(p, other) != _waits(p, toa) or p.position(other) < p.position(toa):
            continue
        p.change(toa, waits=theirs.waits)
        p.change(other, waits=mine.waits)
        if _opened(p):
            return True
        p.toas[toa], p.toas[other] = mine, theirs
        p.hit.clear()
    return False


def _strided(p: Plant, toa: int, operand: int, dim: int, stride: int) -> bool:
    record = _sram(p, toa, operand)
    if record is None or geometry_of(record).counts[dim] == 1:
        return False
    strides = list(record.strides)
    strides[dim] += stride
    p.operand(toa, operand, strides=tuple(strides))
    return True


@_fault(*ASTRAY, "mismatch", "bad_strides")
def _input_rows_twice_as_far_apart(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    return record is not None and _strided(p, toa, INPUT, 2, record.strides[2])


@_fault(*ASTRAY, "stale", "bad_strides")
def _output_rows_a_word_too_far_apart(p: Plant, toa: int) -> bool:
    return _strided(p, toa, OUTPUT, 2, 16)


@_fault(*ASTRAY, "mismatch")
def _input_bricks_a_word_too_far_apart(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    if record is None or record.layout is not Layout.NCHW16C or _is_a_window(record):
        return False
    return _strided(p, toa, INPUT, 1, 16)


@_fault("bad_strides")
def _rows_overlap(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    if record is None or record.dims[3] == 1:
        return False
    return _strided(p, toa, INPUT, 2, record.strides[3] - record.strides[2])


@_fault("bad_strides")
def _stride_off_the_word(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    bricks = record is not None and record.layout is Layout.NCHW16C
    return bricks and _strided(p, toa, INPUT, 2, 1)


def _is_a_window(record: TensorDescriptor) -> bool:
    """Return whether rows go on beyond the record: a place nearby is another window as good."""
    height, width = record.dims[2:]
    return height > 1 and record.strides[2] > width * record.strides[3]


@_fault(*ASTRAY, "mismatch", "stale", "race")
def _input_a_word_late(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, INPUT)
    if record is None or _is_a_window(record):
        return False
    p.operand(toa, INPUT, base=record.base + 16)
    return True


@_fault(*ASTRAY, "mismatch", "stale", "race")
def _weights_a_word_late(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, WEIGHTS)
    if record is None:
        return False
    p.operand(toa, WEIGHTS, base=record.base + 16)
    return True


@_fault(*ASTRAY, "mismatch", "stale", "race")
def _output_a_word_early(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, OUTPUT)
    if record is None or record.base < 16:
        return False
    p.operand(toa, OUTPUT, base=record.base - 16)
    return True


@_fault("misaligned")
def _base_off_the_word(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    assert record is not None
    p.operand(toa, INPUT, base=record.base - 1 if record.base else 1)
    return True


@_fault("out_of_bounds")
def _input_beyond_the_sram(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, INPUT)
    if record is None or record.extent <= 16:
        return False
    p.operand(toa, INPUT, base=p.image.target.sram_bytes - 16)
    return True


@_fault("out_of_bounds")
def _transfer_beyond_the_arena(p: Plant, toa: int) -> bool:
    operand = OUTPUT if p.toas[toa].unit is Unit.DMA_OUT else INPUT
    record = p.tensor(toa, operand)
    if record is None or record.space is not Space.ARENA or record.extent <= 16:
        return False
    p.operand(toa, operand, base=p.image.program.header.arena_bytes // 16 * 16 - 16)
    return True


@_fault("bad_extent")
def _extent_wrong(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, OUTPUT)
    assert record is not None
    p.tensors.append(replace(record, extent=record.extent - 1))
    p.point(toa, OUTPUT, len(p.tensors) - 1)
    return True


def _readers_behind(p: Plant, toa: int) -> Iterator[TensorDescriptor]:
    """Yield SRAM tensors that were written before *toa* and are read again behind it."""
    place = p.position(toa)
    before = {p.toas[i].tensors[OUTPUT] for i in p.ring[:place]}
    names = {p.tensors[i].symbol for i in before}
    mine = p.toas[toa].tensors
    for later in p.ring[place + 1 :]:
        for index in p.toas[later].tensors[:OUTPUT]:
            record = None if index in mine or index == NO_TENSOR else p.tensors[index]
            if record is not None and record.space is Space.SRAM and record.symbol in names:
                yield record


@_fault(*ASTRAY, "race")
def _lifetimes_overlap(p: Plant, toa: int) -> bool:
    if not _compute(p, toa) or _sram(p, toa, OUTPUT) is None:
        return False
    own = p.toas[toa].tensors[OUTPUT]
    for live in _readers_behind(p, toa):
        if live.symbol != p.tensors[own].symbol:
            p.everywhere(own, base=live.base)
            return True
    return False


@_fault(*ASTRAY, "race")
def _output_over_weights_in_use(p: Plant, toa: int) -> bool:
    if not _compute(p, toa):
        return False
    for live in _readers_behind(p, toa):
        if live.layout in (Layout.OIHW16I16O, Layout.OIHW16O):
            p.operand(toa, OUTPUT, base=live.base)
            return True
    return False


@_fault(*ASTRAY, "lost")
def _transfer_missing(p: Plant, toa: int) -> bool:
    if p.toas[toa].unit is not Unit.DMA_IN or _reloads(p, toa):
        return False
    p.take_out(toa)
    return True


def _reloads(p: Plant, toa: int) -> bool:
    """Return whether something was in the slot before, under the same name."""
    symbol = p.tensors[p.toas[toa].tensors[OUTPUT]].symbol
    before = p.ring[: p.position(toa)]
    return any(p.tensors[p.toas[i].tensors[OUTPUT]].symbol == symbol for i in before)


@_fault("uninitialised")
def _result_never_stored(p: Plant, toa: int) -> bool:
    if p.toas[toa].unit is not Unit.DMA_OUT:
        return False
    p.take_out(toa)
    return True


@_fault(*ASTRAY, "stale")
def _transfer_cut_short(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    if p.toas[toa].unit is not Unit.DMA_IN or record is None:
        return False
    dim, less = (2, 1) if record.dims[2] > 1 else (3, 16)
    dims = list(record.dims)
    dims[dim] -= less
    for operand in (INPUT, OUTPUT):
        p.operand(toa, operand, dims=tuple(dims))
    return True


@_fault(*ASTRAY, shows=False)
def _transfer_a_row_too_long(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    ports = [port.entry.tensor for port in p.image.inputs]
    if p.toas[toa].tensors[INPUT] not in ports or record is None or record.dims[2] == 1:
        return False
    dims = (*record.dims[:2], record.dims[2] + 1, record.dims[3])
    for operand in (INPUT, OUTPUT):
        p.operand(toa, operand, dims=dims)
    return True


def _alike(one: TensorDescriptor, other: TensorDescriptor) -> bool:
    fields = ("dims", "dtype", "layout", "lane")
    return all(getattr(one, name) == getattr(other, name) for name in fields)


@_fault(*ASTRAY, "race", "lost")
def _transfer_into_the_other_slot(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, OUTPUT)
    if p.toas[toa].opcode is not Opcode.DMA_IN or record is None:
        return False
    for other in p.toas:
        slot = p.tensors[other.tensors[OUTPUT]]
        if other.opcode is Opcode.DMA_IN and _alike(slot, record) and slot.base != record.base:
            p.point(toa, OUTPUT, other.tensors[OUTPUT])
            return True
    return False


@_fault(*ASTRAY, "race")
def _outputs_of_two_exchanged(p: Plant, toa: int) -> bool:
    mine, place = p.toas[toa], p.position(toa)
    for other in p.ring[place + 1 :]:
        theirs = p.toas[other]
        between = p.ring[place + 1 : p.position(other)]
        read = any(mine.tensors[OUTPUT] in p.toas[i].tensors[:OUTPUT] for i in between)
        alike = _alike(*(p.tensors[t.tensors[OUTPUT]] for t in (mine, theirs)))
        if theirs.unit is mine.unit not in _DMA and read and alike:
            p.point(toa, OUTPUT, theirs.tensors[OUTPUT])
            p.point(other, OUTPUT, mine.tensors[OUTPUT])
            return True
    return False


@_fault("bad_dtype", "bad_layout")
def _weights_and_parameters_exchanged(p: Plant, toa: int) -> bool:
    own = p.toas[toa].tensors
    if NO_TENSOR in (own[WEIGHTS], own[PARAMETERS]):
        return False
    p.point(toa, WEIGHTS, own[PARAMETERS])
    p.point(toa, PARAMETERS, own[WEIGHTS])
    return True


@_fault(*ASTRAY)
def _input_at_another_lane(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, INPUT)
    bricks = record is not None and record.layout is Layout.NCHW16C
    if not bricks or p.toas[toa].unit is not Unit.VECTOR or not _is_all_channels(p, record):
        return False
    assert record is not None
    p.operand(toa, INPUT, lane=(record.lane + 8) % 16)
    return True


def _is_all_channels(p: Plant, record: TensorDescriptor | None) -> bool:
    """Return whether who writes the tensor writes no more channels at a time."""
    wrote = [p.tensors[toa.tensors[OUTPUT]] for toa in p.toas]
    return record is not None and all(
        t.dims[1] <= record.dims[1] for t in wrote if t.symbol == record.symbol
    )


@_fault(*ASTRAY, "stale")
def _output_at_another_lane(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, OUTPUT)
    bricks = record is not None and record.layout is Layout.NCHW16C
    if not bricks or p.toas[toa].unit is not Unit.VECTOR:
        return False
    p.operand(toa, OUTPUT, lane=3)
    return True


@_fault("bad_dims")
def _pads_wrong(p: Plant, toa: int) -> bool:
    own = p.toas[toa]
    if own.opcode not in (Opcode.CONV, Opcode.DEPTHWISE):
        return False
    p.change(toa, pads=(own.pads[0] + own.stride[0], *own.pads[1:]))
    return True


@_fault("use_after_free", "overwrite", "out_of_bounds")
def _operand_in_a_freed_slot(p: Plant, toa: int) -> bool:
    operand = INPUT if p.tensor(toa, RESIDUAL) is None else RESIDUAL
    record = _sram(p, toa, operand)
    if record is None or not _compute(p, toa):
        return False
    freed = _freed_before(p, toa, record.extent)
    if freed is None:
        return False
    p.operand(toa, operand, base=freed.base, symbol=freed.symbol)
    return True


def _freed_before(p: Plant, toa: int, size: int) -> TensorDescriptor | None:
    """Return a tensor whose first bytes another one has taken, with room for *size* bytes."""
    holder: dict[int, TensorDescriptor] = {}
    for earlier in p.ring[: p.position(toa)]:
        record = p.tensor(earlier, OUTPUT)
        assert record is not None
        if record.space is Space.SRAM:
            holder.update(dict.fromkeys(range(record.base, record.base + record.extent), record))
    for earlier in reversed(p.ring[: p.position(toa)]):
        record = _sram(p, earlier, OUTPUT)
        mine = p.tensor(toa, INPUT)
        if record is None or mine is None or record.dims != mine.dims or record.extent < size:
            continue
        if holder[record.base].symbol != record.symbol:
            return record
    return None


@_fault("race", named=False)
def _toa_issued_twice(p: Plant, toa: int) -> bool:
    p.toas.append(p.toas[toa])
    p.ring.insert(p.position(toa) + 1, len(p.toas) - 1)
    touched = _touched(p.image)
    own = [touched[p.image.program.ring.index(min(i, toa) if i == len(p.toas) - 1 else i)]
           for i in p.ring]  # fmt: skip
    p.hit.update((toa, len(p.toas) - 1))
    return bool(hazards([p.toas[i] for i in p.ring], own))


@_fault(*ASTRAY, "race", "bad_wait")
def _ring_reordered(p: Plant, toa: int) -> bool:
    place = p.position(toa)
    if place + 1 == len(p.ring):
        return False
    touched = _touched(p.image)
    if not (touched[place].writes & touched[place + 1].reads).any():
        return False
    p.ring[place : place + 2] = p.ring[place + 1], p.ring[place]
    p.hit.update(p.ring[place : place + 2])
    return True


@_fault(*ASTRAY, "lost")
def _transfer_at_the_end(p: Plant, toa: int) -> bool:
    if p.toas[toa].unit is not Unit.DMA_IN or _reloads(p, toa):
        return False
    p.move_last(toa)
    return True


@_fault(*ASTRAY, "race")
def _double_buffer_collapsed(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, OUTPUT)
    if record is None:
        return False
    name = _name(p, record)
    slots = [t for t in p.tensors if _name(p, t) == f"{name}_2" and t.space is Space.SRAM]
    if not slots:
        return False
    for index, slot in enumerate(p.tensors):
        if slot in slots:
            p.everywhere(index, base=slot.base - min(s.base for s in slots) + record.base)
    return True


def _name(p: Plant, record: TensorDescriptor) -> str:
    symbols = p.image.program.symbols
    return symbols[record.symbol : symbols.index(b"\0", record.symbol)].decode()


@_fault("bad_dtype", "bad_dims")
def _input_of_another_type(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    if record is None or record.dtype is not DType.I8:
        return False
    p.operand(toa, INPUT, dtype=DType.U8, zero_point=0)
    return True


@_fault("bad_layout", "out_of_bounds")
def _input_in_another_layout(p: Plant, toa: int) -> bool:
    record = p.tensor(toa, INPUT)
    if record is None or record.layout is not Layout.NCHW16C or not p.tensor(toa, WEIGHTS):
        return False
    p.operand(toa, INPUT, layout=Layout.NCHW)
    return True


@_fault("mismatch", shows=False)
def _zero_points_differ(p: Plant, toa: int) -> bool:
    record = _sram(p, toa, INPUT)
    if record is None or not record.scale:
        return False
    p.operand(toa, INPUT, zero_point=record.zero_point + (1 if record.zero_point < 127 else -1))
    return True


@_fault("bad_precision", named=False)
def _last_range_does_not_write(p: Plant, toa: int) -> bool:
    if p.toas[toa].unit is not Unit.MAC:
        return False
    p.change(toa, flags=p.toas[toa].flags & ~ToaFlag.WRITE)
    return True


@_fault("bad_precision", "bad_wait", named=False)
def _on_another_unit(p: Plant, toa: int) -> bool:
    p.change(toa, unit=Unit.MAC if p.toas[toa].unit is Unit.VECTOR else Unit.VECTOR)
    return True
