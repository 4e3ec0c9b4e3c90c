"""global_avg_pool: ONNX GlobalAveragePool; the mean of each channel over rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, Op, Value, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_pool
from npuc.npu.tasks import GlobalAvgPool as PoolTask
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
    require_tied,
)
from npuc.ops.shapes import require_rank, text
from npuc.reference import global_average_codes
from npuc.window import Window

__all__ = ["GlobalAvgPool"]


@op("global_avg_pool")
class GlobalAvgPool(Op):
    """Average each channel; quantised parameters are tied."""

    LIMITS = COMMON
    TIED = True
    STACKS = True

    x: Value = operand("input, NCHW")

    def infer(self) -> Sequence[Type]:
        """Return (N, C, 1, 1)."""
        x = self.x.tensor
        require_dtypes(self.x)
        require_rank("input", x.shape, 4, "N, C, H, W")
        if 0 in x.shape[2:]:
            raise ValueError(f"input {text(x.shape)} has no rows or columns to average")
        return [x.with_shape((*x.shape[:2], 1, 1))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the means."""
        x = np.asarray(operands[0])
        if not is_quantised(self.x):
            return (x.astype(np.float64).mean(axis=(2, 3), keepdims=True),)
        dtype = self.x.tensor.dtype
        return (global_average_codes(x, quant_of(self.x), rounding, dtype),)

    def lower(self, builder: Builder) -> None:
        """Append a global average pool task."""
        lower_pool(builder, PoolTask, self, self.x, self.result, Window(kernel=(1, 1)))

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield odd shapes."""
        for shape in ((1, 1, 1, 1), (2, 17, 3, 5)):
            yield cls([floats("x", *shape)])
