"""layer_norm: ONNX LayerNormalization; each row of the dims from axis on gets mean 0, variance 1.

Quantised by the exact sums of npuc.norms; scale and bias stay f32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.norms import Norm
from npuc.npu.builder import Builder
from npuc.npu.lowering import constant_array
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.norm_rows import ROW, STASH_TYPE, check_norm, lower_norm, normalised
from npuc.ops.quantised import require_dtypes
from npuc.ops.shapes import broadcast, normalise_axis, text

__all__ = ["LayerNorm"]


def _behind_the_batch(op: LayerNorm) -> bool:
    return op.x.tensor.rank == 1 or normalise_axis(op.axis, op.x.tensor.rank) > 0


@op("layer_norm")
class LayerNorm(Op):
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias, over the dims from axis on."""

    LIMITS = (
        *COMMON,
        ROW,
        Limit(
            "layer_norm runs over dims behind the first",
            _behind_the_batch,
            "reshape to a first dim of 1, and back",
        ),
    )
    ROWS = True

    x: Value = operand("any shape of at least 1 dim")
    scale: Value = operand("gamma, of the shape from axis on, or broadcast to it", parameter=True)
    bias: Value | None = operand("beta, of such a shape", optional=True, parameter=True)
    axis: int = attr("first of the dims that make up a row", AttrKind.INT, default=-1)
    epsilon: float = attr("added to the variance", AttrKind.FLOAT, default=1e-05)
    stash_type: int = STASH_TYPE

    def infer(self) -> Sequence[Type]:
        """Return the shape of the operand."""
        x = self.x.tensor
        require_dtypes(self.x)
        row = x.shape[normalise_axis(self.axis, x.rank) :]
        for name, value in (("scale", self.scale), ("bias", self.bias)):
            if value is not None and broadcast(row, value.tensor.shape) != row:
                got = f"%{value.name} is {text(value.tensor.shape)}"
                raise ValueError(f"{name} broadcasts to {text(row)}, {got}")
        return [TensorType(x.shape, x.dtype, None, x.layout)]

    def verify(self) -> None:
        """Check types, parameters and attributes."""
        check_norm(self)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the normalised rows."""
        x, scale, bias = (*operands, None)[:3]
        if x is None or scale is None:
            raise ValueError("layer_norm takes an input and a scale")
        return (normalised(self, x, self._norm(scale, bias), rounding),)

    @property
    def row_elements(self) -> int:
        """Elements that make up a row."""
        axis = normalise_axis(self.axis, self.x.tensor.rank)
        return math.prod(self.x.tensor.dims[axis:])

    def stacks(self) -> bool:
        """Return whether no row reaches over dim 0."""
        return normalise_axis(self.axis, self.x.tensor.rank) > 0

    def lower(self, builder: Builder) -> None:
        """Append a norm task."""
        scale = constant_array(self, self.scale, "scale")
        bias = None if self.bias is None else constant_array(self, self.bias, "bias")
        lower_norm(builder, self, self.x, self._norm(scale, bias))

    def _norm(self, scale: Array, bias: Array | None) -> Norm:
        rank = self.x.tensor.rank
        beta = np.zeros((1,) * rank) if bias is None else bias
        return Norm(
            axes=tuple(range(normalise_axis(self.axis, rank), rank)),
            groups=1,
            epsilon=self.epsilon,
            gamma=scale.reshape((1,) * (rank - scale.ndim) + scale.shape),
            beta=beta.reshape((1,) * (rank - beta.ndim) + beta.shape),
        )

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several ranks and axes, with and without bias."""
        yield cls([floats("x", 1, 19, 33), floats("scale", 33), floats("bias", 33)])
        yield cls([floats("x", 1, 1), floats("scale", 1)])
        yield cls([floats("x", 5, 18), floats("scale", 18), floats("bias", 18)])
        yield cls(
            [floats("x", 2, 17, 3, 5), floats("scale", 17, 3, 5), floats("bias", 3, 1)],
            {"axis": 1},
        )
        yield cls([floats("x", 2, 3, 7, 20), floats("scale", 7, 20)], {"axis": -2})
