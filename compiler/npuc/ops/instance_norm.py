"""instance_norm: ONNX InstanceNormalization; each channel's plane gets mean 0, variance 1."""

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
from npuc.ops.norm_rows import ROW, check_channels, check_norm, lower_norm, normalised
from npuc.ops.quantised import require_dtypes
from npuc.ops.shapes import text

__all__ = ["InstanceNorm"]


@op("instance_norm")
class InstanceNorm(Op):
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias, over each channel of each sample."""

    LIMITS = (*COMMON, ROW)
    ROWS = True
    STACKS = True

    x: Value = operand("input, (N, C, ...)")
    scale: Value = operand("gamma, (C)", parameter=True)
    bias: Value = operand("beta, (C)", parameter=True)
    epsilon: float = attr("added to the variance", AttrKind.FLOAT, default=1e-05)

    def infer(self) -> Sequence[Type]:
        """Return the shape of the operand."""
        x = self.x.tensor
        require_dtypes(self.x)
        if x.rank < 3:
            raise ValueError(f"input has at least 3 dims (N, C, ...), got {text(x.shape)}")
        check_channels(self.x, scale=self.scale, bias=self.bias)
        return [TensorType(x.shape, x.dtype, None, x.layout)]

    def verify(self) -> None:
        """Check types, parameters and epsilon."""
        check_norm(self)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the normalised planes."""
        x, scale, bias = map(np.asarray, operands)
        return (normalised(self, x, self._norm(scale, bias), rounding),)

    @property
    def row_elements(self) -> int:
        """Elements that make up a row."""
        return math.prod(self.x.tensor.dims[2:])

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
            axes=tuple(range(2, rank)),
            groups=1,
            epsilon=self.epsilon,
            gamma=scale.reshape(along),
            beta=bias.reshape(along),
        )

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield images and a sequence."""
        for shape in ((2, 19, 5, 7), (1, 1, 1, 1), (2, 17, 21)):
            yield cls([floats("x", *shape), *(floats(n, shape[1]) for n in ("scale", "bias"))])
