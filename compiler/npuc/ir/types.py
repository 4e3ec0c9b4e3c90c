"""Value types: a tensor's shape, element type, quantisation and layout.

Shapes are logical (NCHW, OIHW) at every level; a layout says how they lie in memory. Types are
immutable and compare by value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from npuabi.enums import DType, Layout, Space

__all__ = ["Buffer", "Place", "Quant", "TensorType", "Type"]


@dataclass(frozen=True, slots=True)
class Quant:
    """real = (q - zero_point) * scale, per tensor, or per index of *axis*."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    @classmethod
    def per_tensor(cls, scale: float, zero_point: int) -> Quant:
        """Return parameters that hold for the whole tensor."""
        return cls((float(scale),), (int(zero_point),))

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantisation."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor quantisation."""
        return self.zero_points[0]

    def __str__(self) -> str:
        if self.axis is None:
            return f"q<scale = {self.scale!r}, zp = {self.zero_point}>"
        scales = ", ".join(map(repr, self.scales))
        points = ", ".join(map(str, self.zero_points))
        return f"q<axis = {self.axis}, scale = [{scales}], zp = [{points}]>"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A ranked tensor; a dim of None is dynamic and printed as ``?``."""

    shape: tuple[int | None, ...]
    dtype: DType = DType.F32
    quant: Quant | None = None
    layout: Layout | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape of a tensor without dynamic dims."""
        if None in self.shape:
            raise ValueError(f"{self} has a dynamic dim")
        return cast("tuple[int, ...]", self.shape)

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def coded(self) -> bool:
        """Whether the elements are codes, or other integers, and not real numbers."""
        return self.dtype not in (DType.F32, DType.F16)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The little-endian numpy dtype of the elements."""
        return np.dtype(self.dtype.numpy)

    def with_quant(self, dtype: DType, quant: Quant | None) -> TensorType:
        """Return the same tensor stored as *dtype* with *quant*."""
        return replace(self, dtype=dtype, quant=quant)

    def with_layout(self, layout: Layout | None) -> TensorType:
        """Return the same tensor laid out otherwise."""
        return replace(self, layout=layout)

    def with_shape(self, shape: tuple[int | None, ...]) -> TensorType:
        """Return the same element type in another shape."""
        return replace(self, shape=shape)

    def __str__(self) -> str:
        return f"tensor<{_element(self)}{_tail(self)}>"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies: byte offset in its space; None before placement."""

    space: Space
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory at L3: a tensor with strides in bytes, a lane and a place.

    ``bank`` is derived (offset // bank size) and printed for SRAM by the target's placement pass.
    """

    tensor: TensorType
    strides: tuple[int, ...]
    place: Place
    lane: int = 0
    bank: int | None = None

    def __str__(self) -> str:
        parts = [f"strides = [{', '.join(map(str, self.strides))}]", self.place.space.name.lower()]
        if self.lane:
            parts.append(f"lane = {self.lane}")
        if self.bank is not None:
            parts.append(f"bank = {self.bank}")
        if self.place.offset is not None:
            parts.append(f"offset = {self.place.offset}")
        return f"buffer<{_element(self.tensor)}{_tail(self.tensor)}, {', '.join(parts)}>"


Type = TensorType | Buffer


def _element(tensor: TensorType) -> str:
    dims = "".join(f"{'?' if d is None else d}x" for d in tensor.shape)
    return f"{dims}{tensor.dtype.text}"


def _tail(tensor: TensorType) -> str:
    quant = f", {tensor.quant}" if tensor.quant else ""
    layout = f", {tensor.layout.name.lower()}" if tensor.layout else ""
    return quant + layout
