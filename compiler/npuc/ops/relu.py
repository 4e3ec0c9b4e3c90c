"""relu: max(x, 0), element by element."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, Op, Value, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_clamp
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.reference import clamp_codes, clamp_real, rescale

__all__ = ["Relu"]


@op("relu")
class Relu(Op):
    """Replace everything below zero by zero; quantised, also rescale to the result's parameters."""

    LIMITS = COMMON
    ROWS = True
    STACKS = True
    RANGE: ClassVar[tuple[float, float]] = (0.0, math.inf)
    """The smallest and the largest result."""

    x: Value = operand("any shape")

    def infer(self) -> Sequence[Type]:
        """Return the type of the operand; quantised, without parameters."""
        x = self.x.tensor
        require_dtypes(self.x)
        return [TensorType(x.shape, x.dtype, None, x.layout)]

    def verify(self) -> None:
        """Check the result against the operand."""
        check_results(self)
        require_activation(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return x held in the range."""
        x = np.asarray(operands[0])
        if not is_quantised(self.x):
            return (clamp_real(x.astype(np.float64), self.RANGE),)
        target, dtype = quant_of(self.result), self.result.tensor.dtype
        limits = clamp_codes(target, self.RANGE, rounding, dtype)
        return (rescale(x, quant_of(self.x), target, limits, rounding, float32=True, dtype=dtype),)

    def bounds(self) -> tuple[float, float]:
        """Return the range."""
        return self.RANGE

    def lower(self, builder: Builder) -> None:
        """Append a rescale that clamps."""
        lower_clamp(builder, self, self.x, self.result, self.RANGE)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several ranks."""
        for shape in ((1, 17, 5, 3), (2, 10), (7,), ()):
            yield cls([floats("x", *shape)])
