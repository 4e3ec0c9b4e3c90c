"""What leaky_relu and abs share: x, and a real number times x below zero.

Codes are LiteRT's: two multipliers, one for each side (LEAKY_RELU, ABS). EVEN computes in float32.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array
from npuc.ir.types import Quant
from npuc.npu.builder import Builder
from npuc.npu.pointwise import lower_slopes
from npuc.ops.pointwise import Unary
from npuc.ops.quantised import quant_of
from npuc.pointwise_codes import Slopes, sloped

__all__ = ["TwoSlopes"]


class TwoSlopes(Unary):
    """x, and ``slope`` * x below zero."""

    @property
    @abstractmethod
    def slope(self) -> float:
        """The slope below zero."""

    def codes(self, q: Array, dtype: DType, rounding: Rounding) -> Array:
        """Return LiteRT's codes, or for EVEN those of the float32 steps."""
        if rounding is Rounding.EVEN:
            return super().codes(q, dtype, rounding)
        source, target = quant_of(self.x), quant_of(self.result)
        return sloped(q - source.zero_point, self._slopes(source, target), target, dtype, rounding)

    def on_codes(self, q: Array, rounding: Rounding) -> Array:
        """Return the codes of the function at i8 or i16 codes *q*."""
        return self.codes(q.astype(np.int64), self.x.tensor.dtype, rounding)

    def lower(self, builder: Builder) -> None:
        """Append what every function appends; for i16 codes a prelu that needs no slopes."""
        if self.x.tensor.dtype is not DType.I16 or builder.rounding is Rounding.EVEN:
            return super().lower(builder)
        slopes = self._slopes(quant_of(self.x), quant_of(self.result))
        return lower_slopes(builder, self, self.x, None, slopes, self.result)

    def _slopes(self, source: Quant, target: Quant) -> Slopes:
        """Both scales in float32, as LiteRT computes them."""
        x, y = np.float32(source.scale), np.float32(target.scale)
        return Slopes(above=float(x / y), below=float(x * np.float32(self.slope) / y))
