"""batch_norm: ONNX BatchNormalization at inference.

It has no form on the NPU: a pass folds it into a convolution or turns it into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_float
from npuc.ops.shapes import text

__all__ = ["BatchNorm"]


@op("batch_norm")
class BatchNorm(Op):
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias, along dim 1."""

    LIMITS = (
        *COMMON,
        Limit(
            "batch_norm is only folded into a preceding conv or dense",
            lambda op: False,
            "give it constant parameters, so that it can be folded or made a depthwise conv2d",
        ),
    )
    STACKS = True

    x: Value = operand("input, (N, C, ...)")
    scale: Value = operand("gamma, (C)", parameter=True)
    bias: Value = operand("beta, (C)", parameter=True)
    mean: Value = operand("running mean, (C)", parameter=True)
    var: Value = operand("running variance, (C)", parameter=True)
    epsilon: float = attr("added to the variance", AttrKind.FLOAT, default=1e-05)
    momentum: float = attr("used in training only", AttrKind.FLOAT, default=0.9)
    training_mode: int = attr("0 only: inference", AttrKind.INT, default=0)

    def infer(self) -> Sequence[Type]:
        """Return the type of the input."""
        x = self.x.tensor
        require_float(self)
        if self.training_mode != 0:
            raise ValueError("training_mode is 0, since a network is compiled for inference")
        if x.rank < 2:
            raise ValueError(f"input has at least 2 dims (N, C, ...), got {text(x.shape)}")
        for name in ("scale", "bias", "mean", "var"):
            self._check_channels(name, x.shape[1])
        return [TensorType(x.shape, x.dtype, None, x.layout)]

    def _check_channels(self, name: str, channels: int | None) -> None:
        shape = getattr(self, name).tensor.shape
        if len(shape) != 1 or (None not in (channels, shape[0]) and shape[0] != channels):
            expected = "?" if channels is None else channels
            raise ValueError(
                f"{name} has shape {expected}, one number a channel, got {text(shape)}"
            )

    def verify(self) -> None:
        """Check the result against the operands."""
        check_results(self)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the normalised input."""
        x, *parameters = (np.asarray(v, np.float64) for v in operands)
        along = (1, -1) + (1,) * (x.ndim - 2)
        scale, bias, mean, var = (v.reshape(along) for v in parameters)
        return ((x - mean) / np.sqrt(var + self.epsilon) * scale + bias,)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield two ranks."""
        for shape in ((1, 17, 3, 2), (4, 5)):
            names = ("scale", "bias", "mean", "var")
            yield cls([floats("x", *shape), *(floats(n, shape[1]) for n in names)])
