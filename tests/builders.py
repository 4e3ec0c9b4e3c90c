"""Programs and kernel calls made by hand, for tests of the firmware.

Invariant: elements are placed by address arithmetic written here, not by npuabi.geometry's views,
so that a wrong view shows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.container import Program, pack_symbols, table_header, write_blob
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
from npuabi.geometry import Geometry, dense_strides
from npuabi.precision import register_of
from npuabi.records import (
    NO_TENSOR,
    Interface,
    KnownAnswer,
    OpParams,
    SourceEntry,
    TensorDescriptor,
    Toa,
)
from npuabi.target import Target, load_target

__all__ = ["EDGE", "Builder", "addresses", "params", "params_words", "put", "take"]

EDGE = load_target("edge")
Array = NDArray[Any]

_UNITS = {
    Opcode.DMA_IN: (Unit.DMA_IN, Mode.NONE),
    Opcode.DMA_OUT: (Unit.DMA_OUT, Mode.NONE),
    Opcode.CONV: (Unit.MAC, Mode.OUTPUT_STATIONARY),
    Opcode.DEPTHWISE: (Unit.MAC, Mode.DEPTHWISE),
}
_WAITS = (ToaFlag.WAIT_DMA_IN, ToaFlag.WAIT_DMA_OUT, ToaFlag.WAIT_MAC, ToaFlag.WAIT_VECTOR)


def addresses(tensor: TensorDescriptor) -> NDArray[np.int64]:
    """Return the byte address of each logical element, an array of the tensor's dims."""
    grid = np.indices(tensor.dims)
    a, b, h, w = grid
    size = tensor.dtype.size
    inner = np.zeros(tensor.dims, np.int64)
    if tensor.layout is Layout.NCHW16C:
        b, inner = (b + tensor.lane) // 16, (b + tensor.lane) % 16 * size
    elif tensor.layout is Layout.OIHW16I16O:
        inner = (b % 16 * 16 + a % 16) * size
        a, b = a // 16, b // 16
    elif tensor.layout is Layout.OIHW16O:
        inner, a = a % 16 * size, a // 16
    steps = zip((a, b, h, w), tensor.strides, strict=True)
    return np.asarray(tensor.base + inner + sum(i * stride for i, stride in steps))


def _octets(tensor: TensorDescriptor) -> NDArray[np.int64]:
    return addresses(tensor)[..., None] + np.arange(tensor.dtype.size)


def put(memory: NDArray[np.uint8], tensor: TensorDescriptor, values: Array) -> None:
    """Write logical *values* to the tensor's elements, byte by byte."""
    dense = np.ascontiguousarray(values, tensor.dtype.numpy).reshape(tensor.dims)
    memory[_octets(tensor)] = dense[..., None].view(np.uint8)


def take(memory: NDArray[np.uint8], tensor: TensorDescriptor) -> Array:
    """Return the tensor's logical elements."""
    octets = np.ascontiguousarray(memory[_octets(tensor)])
    return octets.view(tensor.dtype.numpy).reshape(tensor.dims)


def params(**fields: Any) -> OpParams:
    """Return OpParams that are zero but for *fields*."""
    zeros: dict[str, Any] = dict.fromkeys(OpParams.FIELDS, 0)
    return OpParams(**{**zeros, "inner_low": -128, "inner_high": 127, **fields})


def params_words(head: OpParams, *channels: Array) -> NDArray[np.int32]:
    """Return a parameters tensor's words; *channels* are bias, multiplier and shift of each."""
    words = np.frombuffer(head.encode(), "<i4")
    if not channels:
        return words
    count = -(-len(channels[0]) // 16)
    blocks = np.zeros((count, 3, 16), np.int32)
    for row, values in enumerate(channels):
        for c, value in enumerate(values):
            blocks[c // 16, row, c % 16] = value
    return np.concatenate([words, blocks.ravel()])


@dataclass
class Builder:
    """Collects tensors, TOAs and ports; places each tensor behind the last one of its space."""

    target: Target = EDGE
    rounding: Rounding = Rounding.DOUBLE
    tensors: list[TensorDescriptor] = field(default_factory=list)
    toas: list[Toa] = field(default_factory=list)
    ports: list[tuple[Direction, str, tuple[int, ...], int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    used: dict[Space, int] = field(default_factory=lambda: dict.fromkeys(Space, 0))
    constants: bytearray = field(default_factory=bytearray)

    def tensor(
        self,
        dims: tuple[int, ...],
        *,
        dtype: DType = DType.I8,
        layout: Layout = Layout.NCHW16C,
        space: Space = Space.SRAM,
        name: str = "",
        **fields: Any,
    ) -> int:
        """Add a tensor, dense unless *fields* give strides; return its index."""
        pitch = self.target.row_pitch if space is Space.ARENA else 1
        lane = fields.get("lane", 0)
        reach = (dims[0], dims[1] + lane, *dims[2:]) if lane else dims
        strides = fields.get("strides") or dense_strides(reach, dtype, layout, row_pitch=pitch)
        unit = self.target.dma_alignment if space is Space.ARENA else 16
        base = fields.get("base", -(-self.used[space] // unit) * unit)
        extent = Geometry(dims, strides, dtype, layout, lane).extent
        made: dict[str, Any] = {
            "base": base,
            "dims": dims,
            "strides": strides,
            "space": space,
            "dtype": dtype,
            "layout": layout,
            "alignment_log2": 4,
            "bank": base // self.target.bank_bytes if space is Space.SRAM else 0,
            "lane": 0,
            "zero_point": 0,
            "scale": 0.0,
            "symbol": 0,
            "extent": extent,
        }
        self.used[space] = max(self.used[space], base + extent)
        self.tensors.append(TensorDescriptor(**{**made, **fields, "strides": strides}))
        self.names.append(name)
        return len(self.tensors) - 1

    def constant(self, raw: bytes, **fields: Any) -> int:
        """Add *raw* to the constants and a U8 tensor of it; return its index."""
        self.constants.extend(bytes(-len(self.constants) % 16))
        base = len(self.constants)
        self.constants.extend(raw)
        dims = (1, 1, 1, len(raw))
        return self.tensor(
            dims, dtype=DType.U8, layout=Layout.NCHW, space=Space.CONSTANTS, base=base, **fields
        )

    def alias(self, index: int, **fields: Any) -> int:
        """Add another record over the place of tensor *index*; return its index."""
        own = self.tensors[index]
        return self.tensor(space=own.space, base=own.base, **fields)

    def toa(self, opcode: Opcode, *, op: str = "", waits: Any = (), **fields: Any) -> int:
        """Add a TOA. Operands by name are tensor indices; *waits* are (unit, count) pairs."""
        unit, mode = _UNITS.get(opcode, (Unit.VECTOR, Mode.NONE))
        names = ("input", "weights", "parameters", "residual", "output")
        operands = tuple(fields.pop(name, NO_TENSOR) for name in names)
        flags = fields.pop("flags", ToaFlag.CLEAR | ToaFlag.WRITE)
        counts = [0, 0, 0, 0]
        for waited, count in waits:
            counts[waited - 1] = count
            flags |= _WAITS[waited - 1]
        kinds = [None if i == NO_TENSOR else self.tensors[i].dtype for i in operands]
        label = op or opcode.name.lower()
        if label not in self.ops:
            self.ops.append(label)
        made: dict[str, Any] = {
            "opcode": opcode,
            "unit": unit,
            "precision": register_of(unit, kinds),
            "mode": mode,
            "flags": flags,
            "op": self.ops.index(label),
            "tensors": operands,
            "waits": tuple(counts),
            "kernel": (1, 1),
            "stride": (1, 1),
            "dilation": (1, 1),
            "pads": (0, 0, 0, 0),
            "groups": 1,
            "clamp": (-128, 127),
            "setup_cycles": 2,
            "sample_taps": 167 if unit is Unit.MAC else 0,
            "cycles": 1,
        }
        self.toas.append(Toa(**{**made, **fields}))
        return len(self.toas) - 1

    def port(self, direction: Direction, name: str, shape: tuple[int, ...], tensor: int) -> None:
        """Make *tensor* an input or output of that name and shape."""
        self.ports.append((direction, name, shape, tensor))

    def build(self) -> Program:
        """Return the program, its ring in the order in which the TOAs were added."""
        port_names = [p[1] for p in self.ports]
        symbols, offsets = pack_symbols(itertools.chain(self.names, self.ops, port_names))
        pairs = zip(self.tensors, self.names, strict=True)
        tensors = tuple(replace(t, symbol=offsets[n]) for t, n in pairs)
        constants = bytes(self.constants)
        return Program(
            header=table_header(
                target=self.target,
                tensors=tensors,
                toas=self.toas,
                constants=constants,
                arena_bytes=self.used[Space.ARENA],
                macs=0,
                cycles=0,
                rounding=self.rounding,
                precision=Precision.INT8,
            ),
            tensors=tensors,
            toas=tuple(self.toas),
            ring=tuple(range(len(self.toas))),
            constants=constants,
            interface=tuple(self._interface(port, offsets) for port in self.ports),
            sources=tuple(
                SourceEntry(symbol=offsets[n], kind=0, file=0, line=i + 1, column=1, macs=0)
                for i, n in enumerate(self.ops)
            ),
            symbols=symbols,
            known_answer=KnownAnswer(seed=7, std=1.0, output_crc=0, samples=0, offset=0),
        )

    def blob(self) -> bytes:
        """Return the program as a blob."""
        return write_blob(self.build())

    def _interface(
        self, port: tuple[Direction, str, tuple[int, ...], int], offsets: dict[str, int]
    ) -> Interface:
        direction, name, shape, tensor = port
        return Interface(
            direction=direction,
            rank=len(shape),
            dtype=self.tensors[tensor].dtype,
            tensor=tensor,
            symbol=offsets[name],
            shape=(*shape, *(1,) * (4 - len(shape))),
        )
