"""depth_to_space: ONNX DepthToSpace; channels become the pixels of blocks.

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

__all__ = ["DepthToSpace"]


@op("depth_to_space")
class DepthToSpace(Op):
    """Turn channels into blocks of blocksize x blocksize pixels."""

    LIMITS = (*COMMON, BLOCK)
    TIED = True
    STACKS = True

    x: Value = operand("input, NCHW")
    blocksize: int = attr("rows and columns of a block", AttrKind.INT)
    mode: str = attr("DCR: a channel is block row, block column, then depth; CRD: depth first",
                     AttrKind.STRING, default="DCR")  # fmt: skip

    def infer(self) -> Sequence[Type]:
        """Return the shape of fewer channels and more pixels."""
        require_dtypes(self.x)
        require_rank("input", self.x.tensor.shape, 4, "N, C, H, W")
        block = self.blocksize
        if block < 1 or self.mode not in ("DCR", "CRD"):
            raise ValueError(f"blocksize is at least 1, mode DCR or CRD: {block}, {self.mode!r}")
        n, c, h, w = self.x.tensor.shape
        if c is not None and c % block**2:
            shape = text(self.x.tensor.shape)
            raise ValueError(f"channels of {shape} are no multiple of {block} x {block}")
        wide = tuple(None if d is None else d * block for d in (h, w))
        return [self.x.tensor.with_shape((n, None if c is None else c // block**2, *wide))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the pixels, by ONNX's reshape and transpose."""
        x, b = np.asarray(operands[0]), self.blocksize
        n, c, h, w = x.shape
        if self.mode == "DCR":
            turned = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            turned = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return (turned.reshape(n, c // b**2, h * b, w * b),)

    def lower(self, builder: Builder) -> None:
        """Append one task."""
        lower_blocks(builder, self, self.blocksize, unfold=True, channel_first=self.mode == "CRD")

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield both modes, whole bricks and cut ones."""
        yield cls([floats("x", 1, 64, 3, 4)], {"blocksize": 2})
        yield cls([floats("x", 2, 12, 2, 3)], {"blocksize": 2, "mode": "CRD"})
        yield cls([floats("x", 1, 27, 2, 5)], {"blocksize": 3})
