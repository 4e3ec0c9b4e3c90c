"""group_norm: ONNX GroupNormalization of opset 21; each group of channels gets mean 0, variance 1.

Scale and bias have one number a channel, as since opset 21, and not one a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.norms import Norm
from npuc.npu.builder import Builder
from npuc.npu.lowering import constant_array
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.norm_rows import ROW, STASH_TYPE, check_channels, check_norm, lower_norm, normalised
from npuc.ops.quantised import require_dtypes
from npuc.ops.shapes import text

__all__ = ["GroupNorm"]


@op("group_norm")
class GroupNorm(Op):
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias, over each group of channels."""

    LIMITS = (*COMMON, ROW)
    ROWS = True
    STACKS = True

    x: Value = operand("input, (N, C, ...)")
    scale: Value = operand("gamma, (C)", parameter=True)
    bias: Value = operand("beta, (C)", parameter=True)
    num_groups: int = attr("parts into which the channels are split", AttrKind.INT)
    epsilon: float = attr("added to the variance", AttrKind.FLOAT, default=1e-05)
    stash_type: int = STASH_TYPE

    def infer(self) -> Sequence[Type]:
        """Return the shape of the operand."""
        x = self.x.tensor
        require_dtypes(self.x)
        if x.rank < 2:
            raise ValueError(f"input has at least 2 dims (N, C, ...), got {text(x.shape)}")
        if self.num_groups < 1 or (x.shape[1] is not None and x.shape[1] % self.num_groups):
            raise ValueError(f"num_groups {self.num_groups} does not divide {x.shape[1]} channels")
        check_channels(self.x, scale=self.scale, bias=self.bias)
        return [TensorType(x.shape, x.dtype, None, x.layout)]

    def verify(self) -> None:
        """Check types, parameters and attributes."""
        check_norm(self)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the normalised groups."""
        x, scale, bias = map(np.asarray, operands)
        return (normalised(self, x, self._norm(scale, bias), rounding),)

    @property
    def row_elements(self) -> int:
        """Elements that make up a row."""
        return math.prod(self.x.tensor.dims[1:]) // self.num_groups

    def lower(self, builder: Builder) -> None:
        """Append a norm task."""
        scale = constant_array(self, self.scale, "scale")
        lower_norm(
            builder, self, self.x, self._norm(scale, constant_array(self, self.bias, "bias"))
        )

    def _norm(self, scale: Array, bias: Array) -> Norm:
        rank = self.x.tensor.rank
        along = (1, -1) + (1,) * (rank - 2)
        return Norm(
            axes=tuple(range(1, rank)),
            groups=self.num_groups,
            epsilon=self.epsilon,
            gamma=scale.reshape(along),
            beta=bias.reshape(along),
        )

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield groups inside a brick, over bricks, and one of all."""
        cases: tuple[tuple[tuple[int, ...], int], ...] = (
            ((2, 20, 5, 3), 5),
            ((1, 48, 4, 5), 2),
            ((1, 33, 7), 1),
            ((3, 6), 3),
        )
        for shape, groups in cases:
            parameters = [floats(n, shape[1]) for n in ("scale", "bias")]
            yield cls([floats("x", *shape), *parameters], {"num_groups": groups})
