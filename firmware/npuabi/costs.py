"""What one TOA costs on our machine: cycles of its unit and words of each of its streams.

Invariant: a cost follows from the TOA's own records and the target alone; docs/timing.md states
the same rules in words. Fill and drain of the arrays are hidden here; simulate.py adds the cold
start, DMA latency is in cycles.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from npuabi.enums import DType, Layout, Mode, Opcode, Precision, Space, ToaFlag
from npuabi.errors import AbiError, ErrorCode
from npuabi.geometry import LANES, Geometry
from npuabi.records import TensorDescriptor, Toa
from npuabi.target import Target

__all__ = [
    "LANE_OPS",
    "RATES",
    "RELAYOUT_ELEMENTS_PER_CYCLE",
    "STREAM_WORDS_PER_CYCLE",
    "WORD_BYTES",
    "ConvShape",
    "Cost",
    "Operand",
    "Operands",
    "array_grid",
    "burst_count",
    "conv_cost",
    "cost_of",
    "matmul_cost",
    "matmul_shape",
    "operand_of",
]

WORD_BYTES = 16
"""Bytes of a bank word: one brick of 16 int8 channels."""

STREAM_WORDS_PER_CYCLE = 2
"""Words that one stream moves a cycle at most, from different banks."""

LANE_OPS: dict[Opcode, int] = {
    Opcode.ADD: 2,
    Opcode.RESCALE: 1,
    Opcode.COPY: 1,
    Opcode.QUANTIZE: 1,
    Opcode.DEQUANTIZE: 1,
    Opcode.CAST: 1,
    Opcode.SOFTMAX: 24,
    Opcode.LOG_SOFTMAX: 24,
    Opcode.REDUCE: 1,
    Opcode.ARGMAX: 2,
    Opcode.NORM: 8,
    Opcode.LOOKUP: 1,
    Opcode.SUB: 2,
    Opcode.MUL: 2,
    Opcode.DIV: 8,
    Opcode.MINIMUM: 1,
    Opcode.MAXIMUM: 1,
    Opcode.PRELU: 2,
}
"""Lane operations an output element; softmax: three passes (max, sum, divide) of eight; norm: a
pass of two (sum, squares) and one of six. Reductions: an input element.

Pools and resizes cost one for each tap of the window, a global pool one for each pixel of the
input. A LOOKUP of i16 codes reads two entries and interpolates: it takes 4. An EVAL takes what its
program does, in lanes of 4 bytes when codes go in or out.
"""

INTERPOLATED_LANE_OPS = 4

_ACROSS_LANES = 4
"""Steps that bring 16 lanes to one."""

RELAYOUT_ELEMENTS_PER_CYCLE = 1
"""Elements a cycle of a copy that moves elements to other lanes or another layout."""

RATES: dict[Precision, int] = {
    Precision.INT8: 1,
    Precision.INT16: 2,
    Precision.FP16: 2,
    Precision.FP32: 4,
}
"""Cycles that the arrays take where int8 takes one."""

_PARTIAL_SUM_BYTES = 4
_Walk = tuple[int, int, int]
_BRICK_LAYOUTS = frozenset({Layout.NCHW16C, Layout.OIHW16I16O, Layout.OIHW16O})


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One tensor as the cost model sees it.

    ``words`` are the bank words that hold it, ``elements`` count whole bricks, ``banks`` are
    (bank, bytes of it there), empty outside SRAM.
    """

    record: TensorDescriptor
    geometry: Geometry
    words: int
    elements: int
    banks: tuple[tuple[int, int], ...]

    @property
    def dims(self) -> tuple[int, ...]:
        """Logical extents N, C, H, W."""
        return self.record.dims

    @property
    def pixels(self) -> int:
        """Positions of one channel: N * H * W."""
        return self.dims[0] * self.dims[2] * self.dims[3]


class Operands(NamedTuple):
    """The operands of a TOA in the order of its ``tensors`` field."""

    input: Operand | None
    weights: Operand | None
    parameters: Operand | None
    residual: Operand | None
    output: Operand | None


class Cost(NamedTuple):
    """Cycles of the unit when SRAM is perfect, words of each operand's stream, bytes of DDR."""

    compute_cycles: int
    words: tuple[int, int, int, int, int]
    ddr_bytes: int = 0


class ConvShape(NamedTuple):
    """What a convolution's cost depends on; ``terms`` is K as the arrays walk it.

    terms = KH * KW * I, with I rounded up to whole bricks unless the input is packed (NHWC).
    ``input_bytes`` and ``weight_bytes`` are bytes an element.
    """

    pixels: int
    terms: int
    outputs: int
    input_bytes: int = 1
    weight_bytes: int = 1
    precision: Precision = Precision.INT8
    wide: bool = False


def operand_of(record: TensorDescriptor, target: Target) -> Operand:
    """Return the cost model's view of a tensor; raises AbiError when it leaves the SRAM."""
    geometry = Geometry(record.dims, record.strides, record.dtype, record.layout, record.lane)
    blocks = math.prod(geometry.counts)
    if record.layout in _BRICK_LAYOUTS:
        words = blocks * _ceil(geometry.inner_bytes, WORD_BYTES)
        elements = blocks * math.prod(geometry.inner)
    else:
        offsets, length = geometry.runs()
        words, elements = len(offsets) * _ceil(length, WORD_BYTES), blocks
    return Operand(
        record=record,
        geometry=geometry,
        words=words,
        elements=elements,
        banks=_banks(record, target),
    )


def _banks(record: TensorDescriptor, target: Target) -> tuple[tuple[int, int], ...]:
    if record.space is not Space.SRAM:
        return ()
    begin, end, size = record.base, record.base + max(1, record.extent), target.bank_bytes
    if end > target.sram_bytes:
        text = f"a tensor ends at {end}, the SRAM of {target.name} has {target.sram_bytes} bytes"
        raise AbiError(ErrorCode.BAD_FIELD, text)
    return tuple(
        (bank, min(end, (bank + 1) * size) - max(begin, bank * size))
        for bank in range(begin // size, (end - 1) // size + 1)
    )


def burst_count(operand: Operand, burst_bytes: int) -> int:
    """Return the bursts that move *operand*'s runs, each cut at the burst boundaries of DDR."""
    offsets, length = operand.geometry.runs()
    if len(offsets) == 1:
        base = operand.record.base
        return (base + length - 1) // burst_bytes - base // burst_bytes + 1
    first = operand.record.base + offsets
    cuts = (first + length - 1) // burst_bytes - first // burst_bytes + 1
    return int(np.sum(cuts))


def cost_of(toa: Toa, operands: Operands, target: Target) -> Cost:
    """Return what a TOA costs; raises AbiError when an operand is missing or misplaced."""
    return _COSTS[toa.opcode](toa, operands, target)


def _need(toa: Toa, operand: Operand | None, name: str) -> Operand:
    if operand is None:
        text = f"{toa.opcode.name} has no {name} tensor: its tensors field must name one"
        raise AbiError(ErrorCode.BAD_FIELD, text)
    return operand


def _words(operand: Operand | None) -> int:
    return 0 if operand is None else operand.words


def _dma(toa: Toa, operands: Operands, target: Target) -> Cost:
    """Whole bursts at the rate of DDR; the latency is the target's and not counted here."""
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    far = [side for side in (source, output) if side.record.space is not Space.SRAM]
    if len(far) != 1:
        text = f"{toa.opcode.name} moves between SRAM and DDR: it needs one tensor in each"
        raise AbiError(ErrorCode.BAD_FIELD, text)
    moved = burst_count(far[0], target.dma_burst_bytes) * target.dma_burst_bytes
    cycles = _ceil(moved, target.ddr_bytes_per_cycle)
    return Cost(cycles, (source.words, 0, 0, 0, output.words), moved)


@cache
def array_grid(arrays: int) -> tuple[tuple[int, int], ...]:
    """Return the ways to spread *arrays* over (pixels, output channels).

    Arrays in one row get the same weights word, those in one column the same input word.
    """
    return tuple((p, arrays // p) for p in range(1, arrays + 1) if arrays % p == 0)


def conv_cost(mode: Mode, shape: ConvShape, target: Target) -> tuple[int, int, int]:
    """Return (compute cycles, input words, weight words) of a convolution, fill hidden.

    The grid of arrays is the one that ends first with two words a cycle of each stream.
    """
    walk = _weight_stationary if mode is Mode.WEIGHT_STATIONARY else _output_stationary
    choices = [walk(shape, p, o, target) for p, o in array_grid(target.arrays)]
    return choices[0] if len(choices) == 1 else min(choices, key=_bound)


def _bound(cost: _Walk) -> tuple[int, int]:
    return max(cost[0], _ceil(max(cost[1:]), STREAM_WORDS_PER_CYCLE)), sum(cost)


def _output_stationary(s: ConvShape, across: int, down: int, target: Target) -> _Walk:
    """16 pixels x 16 outputs a pass, one of K a cycle: a word of input and one of weights."""
    rows, columns = _ceil(s.pixels, LANES), _ceil(s.outputs, LANES)
    turns_rows, turns_columns = _ceil(rows, across), _ceil(columns, down)
    cycles = turns_rows * turns_columns * s.terms * RATES[s.precision]
    inputs = rows * turns_columns * s.terms * s.input_bytes
    weights = turns_rows * columns * s.terms * s.weight_bytes
    return cycles, inputs, weights


def _weight_stationary(s: ConvShape, across: int, down: int, target: Target) -> _Walk:
    """16 of K x 16 outputs held while a chunk of pixels passes; the next tile loads meanwhile.

    The chunks are equal, so that none is too short to hide the load (196 = 4 x 49).
    """
    chunk = target.accumulator_bytes // (LANES * _PARTIAL_SUM_BYTES * (2 if s.wide else 1))
    tiles, columns = _ceil(s.terms, LANES), _ceil(s.outputs, LANES)
    turns = tiles * _ceil(columns, down)
    load = _ceil(LANES * s.weight_bytes, STREAM_WORDS_PER_CYCLE)
    pixels = _ceil(s.pixels, across)
    chunks = _ceil(pixels, chunk)
    cycles = turns * max(pixels * RATES[s.precision], chunks * load)
    inputs = s.pixels * turns * s.input_bytes
    weights = chunks * tiles * columns * LANES * s.weight_bytes
    return cycles, inputs, weights


def _conv(toa: Toa, operands: Operands, target: Target) -> Cost:
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    weights = _need(toa, operands.weights, "weights")
    channels = source.dims[1]
    if source.record.layout is Layout.NCHW16C:
        channels = source.geometry.counts[1] * LANES
    shape = ConvShape(
        pixels=output.pixels,
        terms=toa.kernel[0] * toa.kernel[1] * channels,
        outputs=output.dims[1],
        input_bytes=source.record.dtype.size,
        weight_bytes=weights.record.dtype.size,
        precision=toa.precision,
        wide=bool(toa.flags & ToaFlag.WIDE),
    )
    cycles, input_words, weight_words = conv_cost(toa.mode, shape, target)
    written = output.words if toa.flags & ToaFlag.WRITE else 0
    residual = _words(operands.residual) if toa.flags & ToaFlag.RESIDUAL else 0
    words = (input_words, weight_words, _words(operands.parameters), residual, written)
    return Cost(cycles, words)


def matmul_cost(mode: Mode, batches: int, shape: ConvShape, target: Target) -> tuple[int, int, int]:
    """Return (compute cycles, input words, second operand's words) of *batches* products.

    Each is a convolution of one tap whose weights are the second operand's columns. The arrays
    multiply by 8 bits: a second operand of int16 goes through them byte by byte.
    """
    passes = 2 if shape.precision is Precision.INT16 else 1
    cycles, inputs, weights = conv_cost(mode, shape, target)
    return passes * batches * cycles, batches * inputs, batches * weights


def matmul_shape(
    source: tuple[int, ...], second: tuple[int, ...], output: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """Return (products, rows, terms, columns) of a MATMUL's dims; terms are whole bricks.

    A second operand without N and H serves all rows in one product.
    """
    n, columns, h, rows = output
    terms = _ceil(source[1], LANES) * LANES
    if second[0] == second[2] == 1:
        return 1, n * h * rows, terms, columns
    return n * h, rows, terms, columns


def _matmul(toa: Toa, operands: Operands, target: Target) -> Cost:
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    second = _need(toa, operands.residual, "residual")
    batches, rows, terms, columns = matmul_shape(source.dims, second.dims, output.dims)
    size = source.record.dtype.size
    shape = ConvShape(
        pixels=rows,
        terms=terms,
        outputs=columns,
        input_bytes=size,
        weight_bytes=size,
        precision=toa.precision,
        wide=bool(toa.flags & ToaFlag.WIDE),
    )
    cycles, inputs, columns_read = matmul_cost(toa.mode, batches, shape, target)
    written = output.words if toa.flags & ToaFlag.WRITE else 0
    words = (inputs, 0, _words(operands.parameters), columns_read, written)
    return Cost(cycles, words)


def _depthwise(toa: Toa, operands: Operands, target: Target) -> Cost:
    """16 pixels x 16 channels a pass, one tap a cycle; the line buffer reads each word once."""
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    passes = _ceil(output.pixels, LANES) * _ceil(output.dims[1], LANES)
    taps = toa.kernel[0] * toa.kernel[1]
    cycles = _ceil(passes, target.arrays) * taps * RATES[toa.precision]
    weights, parameters = _words(operands.weights), _words(operands.parameters)
    return Cost(cycles, (source.words, weights, parameters, 0, output.words))


def _vector(toa: Toa, operands: Operands, target: Target, lane_ops: int, reads: int) -> Cost:
    """*lane_ops* an output element on all lanes; *reads* words of input."""
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    size = max(source.record.dtype.size, output.record.dtype.size)
    cycles = _ceil(output.elements * lane_ops, max(1, target.vector_lanes // size))
    parameters, residual = _words(operands.parameters), _words(operands.residual)
    return Cost(cycles, (reads, 0, parameters, residual, output.words))


def _pool(toa: Toa, operands: Operands, target: Target) -> Cost:
    taps = toa.kernel[0] * toa.kernel[1]
    reads = _need(toa, operands.output, "output").words * taps
    return _vector(toa, operands, target, taps, reads)


def _global_pool(toa: Toa, operands: Operands, target: Target) -> Cost:
    source = _need(toa, operands.input, "input")
    return _vector(toa, operands, target, source.dims[2] * source.dims[3], source.words)


def _elementwise(toa: Toa, operands: Operands, target: Target) -> Cost:
    reads = _need(toa, operands.input, "input").words
    return _vector(toa, operands, target, LANE_OPS[toa.opcode], reads)


def _softmax(toa: Toa, operands: Operands, target: Target) -> Cost:
    reads = 3 * _need(toa, operands.input, "input").words
    return _vector(toa, operands, target, LANE_OPS[toa.opcode], reads)


def _reduction(toa: Toa, operands: Operands, target: Target) -> Cost:
    """*LANE_OPS* an input element; four steps more an output where the lanes add up."""
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    lanes = max(1, target.vector_lanes // source.record.dtype.size)
    cycles = _ceil(source.elements * LANE_OPS[toa.opcode], lanes)
    inner = 3 if source.record.layout is Layout.NCHW else 1
    if source.dims[inner] > output.dims[inner]:
        cycles += _ACROSS_LANES * math.prod(output.dims)
    return Cost(cycles, (source.words, 0, _words(operands.parameters), 0, output.words))


def _norm(toa: Toa, operands: Operands, target: Target) -> Cost:
    reads = 2 * _need(toa, operands.input, "input").words
    return _vector(toa, operands, target, LANE_OPS[toa.opcode], reads)


def _lookup(toa: Toa, operands: Operands, target: Target) -> Cost:
    source = _need(toa, operands.input, "input")
    each = 1 if source.record.dtype.size == 1 else INTERPOLATED_LANE_OPS
    return _vector(toa, operands, target, each, source.words)


def _eval(toa: Toa, operands: Operands, target: Target) -> Cost:
    """The program's lane operations, which the TOA states; the arithmetic is float32."""
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    narrow = {source.record.dtype, output.record.dtype} & {DType.I8, DType.I16}
    size = max(source.record.dtype.size, output.record.dtype.size)
    widened = toa.groups * (DType.F32.size if narrow else size) // size
    return _vector(toa, operands, target, widened, source.words)


def _copy(toa: Toa, operands: Operands, target: Target) -> Cost:
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    if _same_places(source.geometry, output.geometry):
        return _elementwise(toa, operands, target)
    return _relayout(source, output, 0)


def _relayout(source: Operand, output: Operand, parameters: int) -> Cost:
    """Elements go to other lanes, one a cycle; a word is kept while its elements are used."""
    cycles = _ceil(math.prod(output.dims), RELAYOUT_ELEMENTS_PER_CYCLE)
    return Cost(cycles, (source.words, 0, parameters, 0, output.words))


def _bricked(*sides: Operand) -> bool:
    """Whether all bricks begin with their first channel, so that they may move as words."""
    return all(s.record.layout is Layout.NCHW16C and s.record.lane == 0 for s in sides)


def _moved(toa: Toa, operands: Operands, target: Target, *, words: bool) -> Cost:
    """Whole words, each read where its output word is written, or else single elements."""
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    if words and _bricked(source, output):
        return _vector(toa, operands, target, 1, output.words)
    return _relayout(source, output, _words(operands.parameters))


def _remap(toa: Toa, operands: Operands, target: Target) -> Cost:
    return _moved(toa, operands, target, words=toa.groups == 0)


def _transpose(toa: Toa, operands: Operands, target: Target) -> Cost:
    """Whole words where channels stay in their bricks, or where plain rows move as a whole."""
    source, output = _need(toa, operands.input, "input"), _need(toa, operands.output, "output")
    plain = all(side.record.layout is Layout.NCHW for side in (source, output))
    if plain and toa.pads[3] == 3:
        return _vector(toa, operands, target, 1, output.words)
    return _moved(toa, operands, target, words=toa.pads[1] == 1)


def _depth_to_space(toa: Toa, operands: Operands, target: Target) -> Cost:
    channels = _need(toa, operands.output, "output").dims[1]
    return _moved(toa, operands, target, words=toa.groups == 0 and channels % LANES == 0)


def _space_to_depth(toa: Toa, operands: Operands, target: Target) -> Cost:
    channels = _need(toa, operands.input, "input").dims[1]
    return _moved(toa, operands, target, words=channels % LANES == 0)


def _same_places(a: Geometry, b: Geometry) -> bool:
    return (a.layout, a.lane, a.dims) == (b.layout, b.lane, b.dims)


_COSTS: dict[Opcode, Callable[[Toa, Operands, Target], Cost]] = {
    **dict.fromkeys(LANE_OPS, _elementwise),
    Opcode.DMA_IN: _dma,
    Opcode.DMA_OUT: _dma,
    Opcode.CONV: _conv,
    Opcode.DEPTHWISE: _depthwise,
    Opcode.MAX_POOL: _pool,
    Opcode.AVG_POOL: _pool,
    Opcode.GLOBAL_AVG_POOL: _global_pool,
    Opcode.COPY: _copy,
    Opcode.SOFTMAX: _softmax,
    Opcode.LOG_SOFTMAX: _softmax,
    Opcode.REDUCE: _reduction,
    Opcode.ARGMAX: _reduction,
    Opcode.NORM: _norm,
    Opcode.MATMUL: _matmul,
    Opcode.REMAP: _remap,
    Opcode.TRANSPOSE: _transpose,
    Opcode.RESIZE: _pool,
    Opcode.DEPTH_TO_SPACE: _depth_to_space,
    Opcode.SPACE_TO_DEPTH: _space_to_depth,
    Opcode.LOOKUP: _lookup,
    Opcode.EVAL: _eval,
}
