"""The standard test pattern: a program whose output codes are the sums themselves.

A 1x1 convolution of int16 codes whose weights are the identity: column c of the array gives the
codes of channel c, through a requantiser that multiplies by one. What the array makes of them is
its gain and its offset, to the last unit. The program is built here, for any target, so that a
production tester needs no compiler.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.bands import band_sets
from npuabi.container import pack_symbols, table_header, write_blob
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
from npuabi.fixedpoint import multiplier_of
from npuabi.geometry import LANES, Geometry, dense_strides
from npuabi.program import Program
from npuabi.records import (
    NO_TENSOR,
    Interface,
    KnownAnswer,
    OpParams,
    SourceEntry,
    TensorDescriptor,
    Toa,
)
from npuabi.target import Target
from npufw.boot import Image, boot

__all__ = ["COLUMNS", "PATTERN_SHAPE", "pattern_codes", "pattern_image"]

COLUMNS = LANES
"""Output columns of an array; arrays of a core share their read-out."""

PATTERN_SHAPE = (1, COLUMNS, 8, 8)

_FULL_SCALE = 22_000
"""Times 1.18 and an offset it still fits int16."""

_ROWS = 4
"""int32 words of a channel's parameters beside int16 codes: bias, its high half, scale, shift."""

_SRAM_STEP = 4096
_WAITS = (ToaFlag.WAIT_DMA_IN, ToaFlag.WAIT_DMA_OUT, ToaFlag.WAIT_MAC, ToaFlag.WAIT_VECTOR)


def pattern_codes() -> NDArray[np.int16]:
    """Return the input: each column steps through the whole range, each from another place."""
    pixels = PATTERN_SHAPE[2] * PATTERN_SHAPE[3]
    steps = (np.arange(pixels)[None, :] * 37 + np.arange(COLUMNS)[:, None] * 5) % pixels
    values = np.rint((steps / (pixels - 1) * 2 - 1) * _FULL_SCALE)
    return values.astype(np.int16).reshape(PATTERN_SHAPE)


@cache
def pattern_image(target: Target) -> Image:
    """Return the pattern's program, checked as every other."""
    return boot(write_blob(_program(target)), target)


def _program(target: Target) -> Program:
    symbols, names = pack_symbols(["pattern", "sums", "test pattern"])
    constants = _constants()
    tensors = _tensors(target, names)
    toas = _toas()
    return Program(
        header=table_header(
            target=target,
            tensors=tensors,
            toas=toas,
            constants=constants,
            arena_bytes=2 * _up(tensors[0].extent, target.dma_alignment),
            macs=0,
            cycles=0,
            rounding=Rounding.DOUBLE,
            precision=Precision.INT16,
        ),
        tensors=tensors,
        toas=toas,
        ring=tuple(range(len(toas))),
        constants=constants,
        interface=(
            _port(Direction.INPUT, 0, names["pattern"]),
            _port(Direction.OUTPUT, 1, names["sums"]),
        ),
        sources=(SourceEntry(symbol=names["sums"], kind=0, file=0, line=1, column=1, macs=0),),
        symbols=symbols,
        known_answer=KnownAnswer(seed=0, std=1.0, output_crc=0, samples=0, offset=0),
        bands=band_sets(target),
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _constants() -> bytes:
    """Weights, then parameters: zero bias, scale one."""
    zeros: dict[str, Any] = dict.fromkeys(OpParams.FIELDS, 0)
    head = OpParams(**{**zeros, "inner_low": -32768, "inner_high": 32767})
    rows = np.zeros((_ROWS, COLUMNS), "<i4")
    rows[2], rows[3] = multiplier_of(1.0, Rounding.DOUBLE)
    return np.eye(COLUMNS, dtype=np.int8).tobytes() + head.encode() + rows.tobytes()


def _tensors(target: Target, names: dict[str, int]) -> tuple[TensorDescriptor, ...]:
    """Return 0 input, 1 output, 2-3 constants, 4-5 their copies, 6-9 plain and bricks of both."""
    words = (1, 1, 1, OpParams.SIZE // 4 + _ROWS * COLUMNS)
    eye = (COLUMNS, COLUMNS, 1, 1)
    weights_bytes = COLUMNS * COLUMNS
    pitch = target.row_pitch
    plain = _tensor(PATTERN_SHAPE, DType.I16, Layout.NCHW, Space.ARENA, 0, pitch=pitch)
    step = _up(plain.extent, target.dma_alignment)
    weights = _tensor(eye, DType.I8, Layout.OIHW16I16O, Space.CONSTANTS, 0)
    params = _tensor(words, DType.I32, Layout.NCHW, Space.CONSTANTS, weights_bytes)
    near = _tensor(PATTERN_SHAPE, DType.I16, Layout.NCHW, Space.SRAM, 0, pitch=pitch)
    bricks = _tensor(PATTERN_SHAPE, DType.I16, Layout.NCHW16C, Space.SRAM, 0)
    places = [(weights, 0), (params, 1), (near, 2), (bricks, 3), (bricks, 4), (near, 5)]
    return (
        replace(plain, symbol=names["pattern"]),
        replace(plain, symbol=names["sums"], base=step),
        weights,
        params,
        *(_in_sram(tensor, place * _SRAM_STEP, target) for tensor, place in places),
    )


def _in_sram(tensor: TensorDescriptor, base: int, target: Target) -> TensorDescriptor:
    return replace(tensor, space=Space.SRAM, base=base, bank=base // target.bank_bytes)


def _tensor(
    dims: tuple[int, ...],
    dtype: DType,
    layout: Layout,
    space: Space,
    base: int,
    *,
    pitch: int = 1,
) -> TensorDescriptor:
    strides = dense_strides(dims, dtype, layout, row_pitch=pitch)
    return TensorDescriptor(
        base=base,
        dims=dims,
        strides=strides,
        space=space,
        dtype=dtype,
        layout=layout,
        alignment_log2=4,
        bank=0,
        lane=0,
        zero_point=0,
        scale=0.0,
        symbol=0,
        extent=Geometry(dims, strides, dtype, layout).extent,
    )


def _toas() -> tuple[Toa, ...]:
    wide = ToaFlag.CLEAR | ToaFlag.WRITE | ToaFlag.WIDE
    return (
        _toa(Opcode.DMA_IN, Unit.DMA_IN, {0: 2, 4: 4}),
        _toa(Opcode.DMA_IN, Unit.DMA_IN, {0: 3, 4: 5}),
        _toa(Opcode.DMA_IN, Unit.DMA_IN, {0: 0, 4: 6}),
        _toa(Opcode.COPY, Unit.VECTOR, {0: 6, 4: 7}, waits=(3, 0, 0, 0)),
        _toa(Opcode.CONV, Unit.MAC, {0: 7, 1: 4, 2: 5, 4: 8}, waits=(3, 0, 0, 1), flags=wide),
        _toa(Opcode.COPY, Unit.VECTOR, {0: 8, 4: 9}, waits=(0, 0, 1, 0)),
        _toa(Opcode.DMA_OUT, Unit.DMA_OUT, {0: 9, 4: 1}, waits=(0, 0, 0, 2)),
    )


def _toa(
    opcode: Opcode,
    unit: Unit,
    operands: dict[int, int],
    *,
    waits: tuple[int, ...] = (0, 0, 0, 0),
    flags: ToaFlag = ToaFlag.CLEAR | ToaFlag.WRITE,
) -> Toa:
    for count, flag in zip(waits, _WAITS, strict=True):
        flags |= flag if count else ToaFlag(0)
    dma = unit in (Unit.DMA_IN, Unit.DMA_OUT)
    return Toa(
        opcode=opcode,
        unit=unit,
        precision=Precision.INT8 if dma else Precision.INT16,
        mode=Mode.OUTPUT_STATIONARY if unit is Unit.MAC else Mode.NONE,
        flags=flags,
        op=0,
        tensors=tuple(operands.get(slot, NO_TENSOR) for slot in range(5)),
        waits=waits,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        pads=(0, 0, 0, 0),
        groups=1,
        clamp=(-32768, 32767),
        setup_cycles=2,
        sample_taps=0,
        cycles=1,
    )


def _port(direction: Direction, tensor: int, symbol: int) -> Interface:
    return Interface(
        direction=direction,
        rank=4,
        dtype=DType.I16,
        tensor=tensor,
        symbol=symbol,
        shape=PATTERN_SHAPE,
    )
