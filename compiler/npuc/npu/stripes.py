"""How one whole-op task is cut into stripes that fit a number of SRAM bytes.

The choice weighs DDR traffic against the number of TOAs; it never changes a number. A cut in K is
the last resort: it limits a stripe to the pixels whose sums the accumulators hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from npuabi.costs import RATES
from npuabi.enums import Layout, Space
from npuabi.geometry import LANES, dense_strides
from npuabi.precision import register_of
from npuabi.target import Target
from npuc.ir.core import Value
from npuc.ir.types import Buffer, Place, TensorType
from npuc.npu.pack import HEAD_BYTES, block_bytes
from npuc.npu.regions import (
    Box,
    Reach,
    copies_in_place,
    geometry,
    largest_reach,
    residual_box,
    whole,
)
from npuc.npu.tables import params_bytes
from npuc.npu.tasks import (
    Conv,
    Depthwise,
    GlobalAvgPool,
    LogSoftmax,
    MatMul,
    Norm,
    Reads,
    Softmax,
    Task,
    buffer_type,
)

__all__ = ["SRAM_ALIGNMENT", "Cut", "Cutter", "Slot", "aligned", "boxes", "packed", "streamed"]

_DIVISIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024, 4096)
_TOA_CYCLES = 16
SRAM_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Cut:
    """Sizes of a stripe; ``k_bricks`` is 0 when K is not cut."""

    batch: int
    channels: int
    rows: int
    columns: int
    k_bricks: int = 0
    channels_outer: bool = True


@dataclass(frozen=True, slots=True)
class Slot:
    """SRAM that an operand's pieces take turns in: ``copies`` of ``size`` bytes each."""

    size: int
    copies: int
    times: int


@dataclass(frozen=True, slots=True)
class Grain:
    """Smallest pieces that a task's output may be cut into."""

    channels: int
    rows: int
    columns: int
    batch: int = 1


def streamed(value: Value) -> bool:
    """Return whether a task must reach *value* by DMA."""
    return buffer_type(value).place.space is not Space.SRAM


def boxes(task: Task, cut: Cut) -> Iterator[Box]:
    """Yield the output boxes of a cut in the order they are computed."""
    dims = task.output.tensor.dims
    sizes = (cut.batch, cut.channels, cut.rows, cut.columns)
    ranges = [
        [(start, min(size, extent - start)) for start in range(0, extent, size)]
        for extent, size in zip(dims, sizes, strict=True)
    ]
    order = (1, 0, 2, 3) if cut.channels_outer else (0, 2, 3, 1)
    for chosen in product(*(ranges[dim] for dim in order)):
        box = Box((0, 0, 0, 0), (1, 1, 1, 1))
        for dim, (start, size) in zip(order, chosen, strict=True):
            box = box.along(dim, start, size)
        yield box


class Cutter:
    """Chooses cuts for one target, level and number of copies of each streamed slot."""

    def __init__(self, target: Target, *, copies: int) -> None:
        self._target = target
        self._copies = copies

    def choose(self, task: Task, free: int) -> Cut | None:
        """Return the cheapest cut that needs at most *free* bytes, or None."""
        simple = self._simple(task, free)
        if simple is not None:
            return simple
        plain = list(_plain_cuts(task))
        planned = [self.slots(task, cut) for cut in plain]
        fitting = [i for i, slots in enumerate(planned) if _bytes(slots) <= free]
        if fitting:
            work = self._work_cycles(task)
            costs = ((self._cost(task, plain[i], planned[i], work), i) for i in fitting)
            return plain[min(costs)[1]]
        narrow = (c for c in self._narrow_cuts(task) if self.need(task, c) <= free)
        return next(narrow, None)

    def least(self, task: Task) -> int:
        """Return the bytes that the smallest cut needs."""
        return self.need(task, self._smallest(task))

    def pieces(self, task: Task) -> dict[str, int]:
        """Return the bytes of the smallest cut's slots, by operand."""
        slots = self.slots(task, self._smallest(task))
        return {name: slot.size * slot.copies for name, slot in slots.items() if slot.size}

    def _smallest(self, task: Task) -> Cut:
        cuts = [*_plain_cuts(task), *self._narrow_cuts(task)]
        return min(cuts, key=lambda cut: self.need(task, cut))

    def need(self, task: Task, cut: Cut) -> int:
        """Return the SRAM bytes of all slots of a cut."""
        return _bytes(self.slots(task, cut))

    def slots(self, task: Task, cut: Cut) -> dict[str, Slot]:
        """Return the slots by operand: ``const``, streamed ``in``, ``residual``, ``out``."""
        return {
            name: Slot(size, min(self._copies, times), times)
            for name, size, times in self._loads(task, cut)
        }

    def _loads(self, task: Task, cut: Cut) -> Iterator[tuple[str, int, int]]:
        """Yield (operand, bytes of its largest piece, times filled)."""
        size, counts = _size(task, cut), _Counts.of(task, cut)
        residual = task.named("residual")
        yield "const", _chunk_bytes(task, cut), counts.chunks
        if streamed(task.inputs[0]):
            yield "in", self._piece(task.inputs[0], _input_size(task, size, cut)), counts.inputs
        if residual is not None and streamed(residual):
            reach = Reach(Box((0, 0, 0, 0), _input_size(task, size, cut)))
            box = residual_box(task, residual, reach, Box((0, 0, 0, 0), size))
            yield "residual", self._piece(residual, box.size), counts.residuals
        if streamed(task.output):
            yield "out", self._piece(task.output, size), counts.stripes

    def _piece(self, value: Value, size: tuple[int, int, int, int]) -> int:
        """Return the bytes of a packed copy of a part of *value*."""
        tensor = value.tensor
        return geometry(packed(buffer_type(value), tensor.with_shape(size), self._target)).extent

    def _simple(self, task: Task, free: int) -> Cut | None:
        """The whole op as one stripe, when nothing is streamed and its constants are small."""
        if any(streamed(v) for v in _tensors(task)):
            return None
        cut = _whole_cut(task)
        need = self.need(task, cut)
        return cut if need <= min(free, self._target.sram_bytes // 16) else None

    def _cost(self, task: Task, cut: Cut, slots: dict[str, Slot], work_cycles: float) -> float:
        """Estimated cycles: the slower of compute and DMA, some of the first load, issue."""
        speed, latency = self._target.ddr_bytes_per_cycle, self._target.ddr_latency_cycles
        loads = [slot for slot in slots.values() if slot.size]
        cycles = [(slot.size / speed + latency, slot.times) for slot in loads]
        dma = sum(each * times for each, times in cycles)
        first = sum(each for each, _ in cycles[:2])
        exposed = 0.25 if self._copies > 1 else 1.0
        stripes = _Counts.of(task, cut).stripes
        return max(work_cycles, dma) + exposed * first + _TOA_CYCLES * stripes

    def _work_cycles(self, task: Task) -> float:
        elements = whole(task.output).elements
        kh, kw = task.attributes["kernel"]
        terms = int(max(kh * kw, 1))
        source = task.inputs[0].tensor
        if isinstance(task, Conv | MatMul):
            rate = RATES[register_of(task.UNIT, [source.dtype, None, None, None, None])]
            return elements * terms * source.dims[1] * rate / self._target.peak_macs_per_cycle
        return elements * terms * source.dtype.size / self._target.vector_lanes

    def _narrow_cuts(self, task: Task) -> Iterator[Cut]:
        """Cuts in columns, and for convolutions in K: what is tried when rows do not fit."""
        grain = _grain(task)
        _, c, _, w = task.output.tensor.dims
        step = min(grain.channels, c)
        for columns in _sizes(w, grain.columns):
            yield Cut(grain.batch, step, grain.rows, columns)
        bricked = task.inputs[0].tensor.layout is Layout.NCHW16C
        if not (isinstance(task, Conv | MatMul) and bricked):
            return
        bricks = -(-task.inputs[0].tensor.dims[1] // LANES)
        for columns, k in product(_sizes(min(w, self._pixels(task)), 1), _sizes(bricks, 1)):
            yield Cut(1, step, 1, columns, k_bricks=k)

    def _pixels(self, task: Task) -> int:
        """Pixels whose sums of 16 channels the accumulators hold."""
        width = 8 if task.attributes["wide"] else 4
        return self._target.accumulator_bytes // (LANES * width)


def _bytes(slots: dict[str, Slot]) -> int:
    return sum(aligned(slot.size) * slot.copies for slot in slots.values())


def _tensors(task: Task) -> list[Value]:
    residual = task.named("residual")
    return [task.inputs[0], task.output] + ([residual] if residual is not None else [])


def _input_size(task: Task, size: tuple[int, int, int, int], cut: Cut) -> tuple[int, int, int, int]:
    n, c, h, w = largest_reach(task, size)
    return n, min(c, cut.k_bricks * LANES) if cut.k_bricks else c, h, w


def packed(buffer: Buffer, tensor: TensorType, target: Target) -> Buffer:
    """Return the type of a packed SRAM copy of *tensor*, a part of *buffer* in the same lanes."""
    layout, (n, c, h, w) = tensor.layout or Layout.NCHW, tensor.dims
    dims = (n, c + buffer.lane, h, w)
    strides = dense_strides(dims, tensor.dtype, layout, row_pitch=target.row_pitch)
    return Buffer(tensor, strides, Place(Space.SRAM), lane=buffer.lane)


def _chunk_bytes(task: Task, cut: Cut) -> int:
    """Return the bytes of the parameters and weights of one stripe."""
    weights, params = task.named("weights"), task.named("params")
    if task.READS is Reads.TABLES:
        return params_bytes(task, _size(task, cut))
    if weights is None:
        return 0 if params is None else geometry(buffer_type(params)).extent
    blocks = -(-cut.channels // LANES)
    all_blocks = -(-task.output.tensor.dims[1] // LANES)
    block = geometry(buffer_type(weights)).extent // all_blocks
    if cut.k_bricks:
        block = block // -(-task.inputs[0].tensor.dims[1] // LANES) * cut.k_bricks
    return HEAD_BYTES + blocks * (block_bytes(task.inputs[0].tensor.dtype) + block)


def aligned(size: int) -> int:
    """Return *size* up to the next multiple of what placement aligns buffers to."""
    return -(-size // SRAM_ALIGNMENT) * SRAM_ALIGNMENT


def _size(task: Task, cut: Cut) -> tuple[int, int, int, int]:
    n, c, h, w = task.output.tensor.dims
    return min(cut.batch, n), min(cut.channels, c), min(cut.rows, h), min(cut.columns, w)


@dataclass(frozen=True, slots=True)
class _Counts:
    """How often each kind of slot is filled over one op."""

    stripes: int
    inputs: int
    residuals: int
    chunks: int

    @classmethod
    def of(cls, task: Task, cut: Cut) -> _Counts:
        n, c, h, w = task.output.tensor.dims
        channel_steps = -(-c // cut.channels)
        products = -(-n // cut.batch) * -(-h // cut.rows)
        places = products * -(-w // cut.columns)
        ranges = 1
        if cut.k_bricks:
            ranges = -(-task.inputs[0].tensor.dims[1] // (cut.k_bricks * LANES))
        stripes = channel_steps * places * ranges
        once = isinstance(task, Conv | MatMul) and not cut.k_bricks
        inputs = stripes
        if once and (places == 1 or not cut.channels_outer):
            inputs = places
        per_channel = isinstance(task, Conv | Depthwise)
        chunks = channel_steps * ranges if per_channel else 1
        if task.READS is Reads.TABLES:
            return cls(stripes, inputs, 0, stripes)
        if chunks > 1 and (not cut.channels_outer or ranges > 1):
            chunks *= places
        residuals = stripes if isinstance(task, MatMul) else inputs
        if isinstance(task, MatMul) and once and (channel_steps == 1 or cut.channels_outer):
            residuals = channel_steps * products
        return cls(stripes, inputs, residuals, chunks)


def _grain(task: Task) -> Grain:
    n, c, h, w = task.output.tensor.dims
    layout = task.output.tensor.layout
    # Channels of one pixel lie side by side in every layout; those of several only in bricks.
    channels = c if layout is Layout.NHWC and h * w > 1 else LANES
    if isinstance(task, Norm):
        return _norm_grain(task, channels)
    if isinstance(task, Softmax | LogSoftmax):
        axis = task.attributes["kernel"][0]
        columns, batch = w if axis == 3 else LANES, n if axis == 0 else 1
        return Grain(c if axis == 1 else channels, h if axis == 2 else 1, columns, batch)
    if task.READS in _GRAINS:
        return _GRAINS[task.READS](task, channels)
    if isinstance(task, GlobalAvgPool):
        return Grain(channels, 1, 1)
    # A window may start at any pixel; in nhwc that is no word, so DMA cannot start there.
    rows_only = isinstance(task, Conv) and task.inputs[0].tensor.layout is Layout.NHWC
    return Grain(channels, 1, w if rows_only else LANES)


def _norm_grain(task: Norm, channels: int) -> Grain:
    """Whole rows: all of each axis that they run along, of C whole groups in whole bricks."""
    n, c, h, w = task.output.tensor.dims
    mask, groups = task.attributes["kernel"][0], task.attributes["groups"]
    if mask & 2:
        channels = c if groups == 1 else min(c, math.lcm(c // groups, channels))
    rows, columns = h if mask & 4 else 1, w if mask & 8 else LANES
    return Grain(channels, rows, columns, batch=n if mask & 1 else 1)


def _copy_grain(task: Task, channels: int) -> Grain:
    """A relayout is cut as any op; a flatten by 16 source channels; a reshape by images at most."""
    n, c, h, w = task.output.tensor.dims
    source = task.inputs[0].tensor.dims
    if copies_in_place(task):
        return Grain(channels, 1, LANES)
    if source[0] != n:
        return Grain(c, h, w, batch=n)
    if (h, w) == (1, 1):
        return Grain(min(LANES * source[2] * source[3], c), 1, 1)
    return Grain(c, h, w)


def _transpose_grain(task: Task, channels: int) -> Grain:
    """Whole bricks of the output, and of the input where its channels go to.

    Of an input in a plain layout whole rows, and in nhwc all channels, where these go to: DMA
    loads no less (regions.py).
    """
    sizes, dims = [1, channels, 1, LANES], task.output.tensor.dims
    places = [task.attributes["pads"].index(dim) for dim in range(4)]
    layout = task.inputs[0].tensor.layout
    sizes[places[1]] = max(sizes[places[1]], LANES)
    if layout is not Layout.NCHW16C:
        sizes[places[3]] = dims[places[3]]
    if layout is Layout.NHWC:
        sizes[places[1]] = dims[places[1]]
    batch, channels, rows, columns = sizes
    return Grain(channels, rows, columns, batch)


def _unfold_grain(task: Task, channels: int) -> Grain:
    """Whole blocks; all channels, unless those of a block lie beside each other."""
    rows, columns = task.attributes["kernel"]
    whole_depth = task.attributes["groups"] == 0
    step = task.output.tensor.dims[1] if whole_depth else channels
    return Grain(step, rows, columns * LANES // math.gcd(columns, LANES))


def _fold_grain(task: Task, channels: int) -> Grain:
    return Grain(task.output.tensor.dims[1], 1, LANES)


_GRAINS: dict[Reads, Callable[[Task, int], Grain]] = {
    Reads.COPY: _copy_grain,
    Reads.DEPTH: _unfold_grain,
    Reads.BLOCKS: _fold_grain,
    Reads.OTHER_ORDER: _transpose_grain,
}


def _sizes(extent: int, grain: int) -> list[int]:
    """Return piece sizes from all of *extent* down to *grain*, in whole grains."""
    grains = -(-extent // grain)
    pieces = dict.fromkeys(-(-grains // d) for d in _DIVISIONS)
    return [min(p * grain, extent) if p * grain >= extent else p * grain for p in pieces]


def _whole_cut(task: Task) -> Cut:
    n, c, h, w = task.output.tensor.dims
    return Cut(n, c, h, w)


def _plain_cuts(task: Task) -> Iterator[Cut]:
    grain = _grain(task)
    n, c, h, w = task.output.tensor.dims
    # Of a matrix, which has one pixel a row, the batch is what there is to cut.
    batches = _sizes(n, grain.batch) if h * w == 1 else list(dict.fromkeys((n, grain.batch)))
    for batch in batches:
        for channels, (rows, columns) in product(_sizes(c, grain.channels), _areas(task, grain)):
            cut = Cut(batch, channels, rows, columns)
            yield cut
            if channels < c:
                yield replace(cut, channels_outer=False)


def _areas(task: Task, grain: Grain) -> list[tuple[int, int]]:
    """Return (rows, columns) of pieces: whole rows, and parts of one row where rows are few."""
    h, w = task.output.tensor.dims[2:]
    pieces = [(rows, w) for rows in _sizes(h, grain.rows)]
    if h == 1 or isinstance(task, MatMul):
        pieces += [(1, columns) for columns in _sizes(w, grain.columns) if columns < w]
    return pieces
