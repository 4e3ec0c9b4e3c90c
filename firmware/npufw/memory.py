"""The memories of one core as bytes: banked SRAM, the program's arena in DDR, its constants.

Invariant: memory starts as 0x7F, never as zeros, so that a read before a write shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npuabi.geometry import Geometry
from npuabi.records import TensorDescriptor

__all__ = ["POISON", "Memory", "geometry_of"]

POISON = 0x7F
"""Every byte of memory that nothing has written."""


def geometry_of(tensor: TensorDescriptor) -> Geometry:
    """Return the dims, strides, dtype and layout of *tensor*."""
    return Geometry(tensor.dims, tensor.strides, tensor.dtype, tensor.layout, tensor.lane)


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes of each space; constants are read-only, unless faults may reach them."""

    spaces: dict[Space, NDArray[np.uint8]]

    @classmethod
    def create(
        cls, *, sram_bytes: int, arena_bytes: int, constants: bytes, writable: bool = False
    ) -> Memory:
        """Return poisoned memories of these sizes in bytes; *writable* copies the constants."""
        held = bytearray(constants) if writable else constants
        return cls(
            {
                Space.SRAM: np.full(sram_bytes, POISON, np.uint8),
                Space.ARENA: np.full(arena_bytes, POISON, np.uint8),
                Space.CONSTANTS: np.frombuffer(held, np.uint8),
            }
        )

    def view(self, tensor: TensorDescriptor) -> NDArray[Any]:
        """Return *tensor*'s elements as an array ``counts + inner`` over the memory, not copied."""
        return geometry_of(tensor).view(self.spaces[tensor.space], tensor.base)
