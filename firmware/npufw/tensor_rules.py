"""The rules that every tensor descriptor obeys, whoever uses it.

Invariant: rules are data, each names itself in its text, and all arithmetic is on Python ints,
so that no u32 from a hostile blob can overflow, allocate or loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from npuabi.enums import DType, Layout, Space
from npuabi.errors import ErrorCode
from npuabi.geometry import LANES
from npuabi.records import TensorDescriptor
from npuabi.target import Target
from npufw.errors import FirmwareError
from npufw.kernels.base import Fault
from npufw.memory import geometry_of

__all__ = ["TENSOR_RULES", "Room", "check_tensor"]

_INTEGERS: dict[DType, tuple[int, int]] = {
    DType.I8: (-128, 127),
    DType.U8: (0, 255),
    DType.I16: (-32768, 32767),
}
_BRICKED = (Layout.NCHW16C, Layout.OIHW16I16O, Layout.OIHW16O)
_OUTSIDE = {
    Space.SRAM: ErrorCode.OUT_OF_SRAM,
    Space.ARENA: ErrorCode.OUT_OF_ARENA,
    Space.CONSTANTS: ErrorCode.OUT_OF_CONSTANTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes of each memory that a program may address, on this target."""

    target: Target
    arena_bytes: int
    constant_bytes: int

    def bytes_of(self, space: Space) -> int:
        """Return the bytes of *space*."""
        sizes = {
            Space.SRAM: self.target.sram_bytes,
            Space.ARENA: self.arena_bytes,
            Space.CONSTANTS: self.constant_bytes,
        }
        return sizes[space]


def _dims(tensor: TensorDescriptor, room: Room) -> Fault:
    if min(tensor.dims) < 1:
        return ErrorCode.BAD_DIMS, f"dims are at least 1, got {tensor.dims}"
    return None


def _lane(tensor: TensorDescriptor, room: Room) -> Fault:
    limit = LANES if tensor.layout is Layout.NCHW16C else 1
    if tensor.lane >= limit:
        text = f"lane of a {tensor.layout.name.lower()} tensor is below {limit}, got {tensor.lane}"
        return ErrorCode.BAD_LAYOUT, text
    return None


def _strides(tensor: TensorDescriptor, room: Room) -> Fault:
    # Sorted by stride, each dim steps over all that the smaller ones reach: no two elements share
    # a byte, so the count of elements is bounded by the extent.
    geometry = geometry_of(tensor)
    reach = geometry.inner_bytes
    pairs = zip(tensor.strides, geometry.counts, strict=True)
    for stride, count in sorted(pair for pair in pairs if pair[1] > 1):
        if stride < reach:
            text = f"strides overlap: a stride of {stride} steps into {reach} bytes before it"
            return ErrorCode.BAD_STRIDES, text
        reach += (count - 1) * stride
    return None


def _extent(tensor: TensorDescriptor, room: Room) -> Fault:
    extent = geometry_of(tensor).extent
    if tensor.extent != extent:
        text = f"extent is {tensor.extent}, dims and strides reach {extent} bytes"
        return ErrorCode.BAD_EXTENT, text
    return None


def _place(tensor: TensorDescriptor, room: Room) -> Fault:
    end, size = tensor.base + tensor.extent, room.bytes_of(tensor.space)
    if end > size:
        text = f"ends at byte {end} of {tensor.space.name.lower()}, which has {size}"
        return _OUTSIDE[tensor.space], text
    return None


def _alignment(tensor: TensorDescriptor, room: Room) -> Fault:
    if tensor.alignment_log2 > 31 or tensor.base % (1 << tensor.alignment_log2):
        text = f"base 0x{tensor.base:x} is no multiple of 2^{tensor.alignment_log2}"
        return ErrorCode.MISALIGNED, text
    return None


def _grain(tensor: TensorDescriptor, room: Room) -> Fault:
    # A brick is a bank word: bricks lie on words in SRAM. Elsewhere elements lie on elements.
    bricks = tensor.layout in _BRICKED and tensor.dtype.size == 1
    grain = LANES if bricks else tensor.dtype.size
    counts = geometry_of(tensor).counts
    steps = [s for s, n in zip(tensor.strides, counts, strict=True) if n > 1]
    for stride in steps:
        if stride % grain:
            text = f"strides of {tensor.layout.name.lower()} are multiples of {grain}, got {stride}"
            return ErrorCode.BAD_STRIDES, text
    if tensor.base % grain:
        text = f"base of {tensor.layout.name.lower()} is a multiple of {grain}: 0x{tensor.base:x}"
        return ErrorCode.MISALIGNED, text
    return None


def _bank(tensor: TensorDescriptor, room: Room) -> Fault:
    bank = tensor.base // room.target.bank_bytes if tensor.space is Space.SRAM else 0
    if tensor.bank != bank:
        text = f"bank is {tensor.bank}, the base lies in bank {bank}"
        return ErrorCode.BAD_BANK, text
    return None


def _quantisation(tensor: TensorDescriptor, room: Room) -> Fault:
    if not (math.isfinite(tensor.scale) and tensor.scale >= 0):
        return ErrorCode.BAD_SCALE, f"scale is finite and not negative, got {tensor.scale}"
    low, high = _INTEGERS.get(tensor.dtype, (0, 0))
    if not low <= tensor.zero_point <= high:
        text = f"zero point {tensor.zero_point} is outside {low} to {high}"
        return ErrorCode.BAD_SCALE, text
    return None


TENSOR_RULES: tuple[Callable[[TensorDescriptor, Room], Fault], ...] = (
    _dims,
    _lane,
    _strides,
    _extent,
    _place,
    _alignment,
    _grain,
    _bank,
    _quantisation,
)
"""In this order: later rules build on what earlier ones proved."""


def check_tensor(tensor: TensorDescriptor, room: Room, where: str) -> None:
    """Raise FirmwareError at the first rule that *tensor* breaks; *where* names it."""
    for rule in TENSOR_RULES:
        fault = rule(tensor, room)
        if fault is not None:
            raise FirmwareError(fault[0], f"{where}: {fault[1]}")
