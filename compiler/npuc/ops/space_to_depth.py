"""space_to_depth: ONNX SpaceToDepth; the pixels of blocks become channels.

Invariant: quantised codes are copied as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.movement import lower_blocks
from npuc.ops.example import floats
from npuc.ops.limits import BLOCK, COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied
from npuc.ops.shapes import require_rank, text

__all__ = ["SpaceToDepth"]


@op("space_to_depth")
class SpaceToDepth(Op):
    """Turn blocks of blocksize x blocksize pixels into channels."""

    LIMITS = (*COMMON, BLOCK)
    TIED = True
    STACKS = True

    x: Value = operand("input, NCHW")
    blocksize: int = attr("rows and columns of a block", AttrKind.INT)

    def infer(self) -> Sequence[Type]:
        """Return the shape of more channels and fewer pixels."""
        require_dtypes(self.x)
        require_rank("input", self.x.tensor.shape, 4, "N, C, H, W")
        block = self.blocksize
        if block < 1:
            raise ValueError(f"blocksize is at least 1, got {block}")
        n, c, *size = self.x.tensor.shape
        if any(d is not None and d % block for d in size):
            raise ValueError(f"pixels of {text(self.x.tensor.shape)} are no blocks of {block}")
        h, w = (None if d is None else d // block for d in size)
        return [self.x.tensor.with_shape((n, None if c is None else c * block**2, h, w))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the channels: block row, block column, then depth."""
        x, b = np.asarray(operands[0]), self.blocksize
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return (blocks.reshape(n, c * b**2, h // b, w // b),)

    def lower(self, builder: Builder) -> None:
        """Append one task."""
        lower_blocks(builder, self, self.blocksize, unfold=False)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield whole bricks and cut ones."""
        yield cls([floats("x", 1, 16, 4, 6)], {"blocksize": 2})
        yield cls([floats("x", 2, 3, 9, 6)], {"blocksize": 3})
