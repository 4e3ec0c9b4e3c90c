"""clip: limit every element to [min, max]; relu6 is clip {min = 0.0, max = 6.0}."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_clamp
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    CODES,
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
    stated_dtype,
)
from npuc.reference import clamp_codes, clamp_real, rescale

__all__ = ["Clip"]


@op("clip")
class Clip(Op):
    """Limit every element; a bound that is absent is no bound, min above max gives max (C10)."""

    LIMITS = COMMON
    ROWS = True
    STACKS = True

    x: Value = operand("any shape")
    min: float | None = attr("smallest result; absent: no bound", AttrKind.FLOAT, default=None)
    max: float | None = attr("largest result; absent: no bound", AttrKind.FLOAT, default=None)

    @property
    def range(self) -> tuple[float, float]:
        """The real bounds (low, high), low <= high; infinite where absent."""
        low = -math.inf if self.min is None else float(self.min)
        high = math.inf if self.max is None else float(self.max)
        return (low if low < high else high), high

    def infer(self) -> Sequence[Type]:
        """Return the type of the operand, without parameters; codes may change their width."""
        x = self.x.tensor
        require_dtypes(self.x)
        for bound in (self.min, self.max):
            if bound is not None and math.isnan(bound):
                raise ValueError("a bound is a number, got nan")
        codes = CODES if is_quantised(self.x) else ()
        return [TensorType(x.shape, stated_dtype(self, codes, x.dtype), None, x.layout)]

    def verify(self) -> None:
        """Check the result against the operand."""
        check_results(self)
        require_activation(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return min(max(x, low), high)."""
        x = np.asarray(operands[0])
        if not is_quantised(self.x):
            return (clamp_real(x.astype(np.float64), self.range),)
        target, dtype = quant_of(self.result), self.result.tensor.dtype
        limits = clamp_codes(target, self.range, rounding, dtype)
        source = quant_of(self.x)
        return (rescale(x, source, target, limits, rounding, float32=True, dtype=dtype),)

    def bounds(self) -> tuple[float, float]:
        """Return the real bounds."""
        return self.range

    def lower(self, builder: Builder) -> None:
        """Append a rescale that clamps."""
        lower_clamp(builder, self, self.x, self.result, self.range)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield both bounds, one, none, and bounds that cross."""
        bounds: tuple[dict[str, float], ...] = (
            {"min": 0.0, "max": 6.0},
            {"max": 6.0},
            {"min": -0.5},
            {},
            {"min": 6.0, "max": 0.0},
        )
        for given in bounds:
            yield cls([floats("x", 1, 3, 4, 5)], given)
