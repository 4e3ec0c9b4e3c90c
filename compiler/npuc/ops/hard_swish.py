"""hard_swish: ONNX HardSwish of opset 14; x times a straight line between 0 and 1.

On i8 codes LiteRT's HARD_SWISH in 16-bit fixed point. It refuses input scales above 128 output
scales; those take the float32 steps here.
"""

from __future__ import annotations

import numpy as np

from npuabi import fixedpoint
from npuabi.enums import DType, Rounding
from npuc.expression import Expression, maximum, minimum
from npuc.ir.core import Array, op
from npuc.ir.types import Quant
from npuc.ops.pointwise import Unary
from npuc.ops.quantised import quant_of

__all__ = ["HardSwish"]

_INT16 = (-32768, 32767)
_HEADROOM = 7
"""Bits that an i8 code less its zero point leaves in 16."""


@op("hard_swish")
class HardSwish(Unary):
    """x * max(0, min(1, x / 6 + 1 / 2))."""

    def real(self, x: Array) -> Array:
        return np.asarray(x * np.clip(x / 6.0 + 0.5, 0.0, 1.0))

    def expression(self, x: Expression) -> Expression:
        return x * maximum(minimum(x * (1.0 / 6.0) + 0.5, 1.0), 0.0)

    def codes(self, q: Array, dtype: DType, rounding: Rounding) -> Array:
        """Return LiteRT's fixed-point codes where it has them, else those of the float32 steps."""
        source, target = quant_of(self.x), quant_of(self.result)
        scale = np.float32(source.scale) / np.float32(1 << _HEADROOM)
        output = _short(float(scale / np.float32(target.scale)))
        if rounding is Rounding.EVEN or dtype is not DType.I8 or output[1] > 0:
            return super().codes(q, dtype, rounding)
        return _fixed(q - source.zero_point, output, _reluish(scale), target)


def _reluish(scale: np.float32) -> tuple[int, int]:
    return _short(float(scale / (np.float32(3) / np.float32(32768))))


def _short(real: float) -> tuple[int, int]:
    """Return a Q15 multiplier and a shift."""
    multiplier, shift = fixedpoint.quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, _INT16[1]), shift


def _fixed(x: Array, output: tuple[int, int], gate: tuple[int, int], target: Quant) -> Array:
    fine = ((x << _HEADROOM) - _INT16[0]) % (1 << 16) + _INT16[0]
    value = _high_mul(fine, output[0])
    share = _saturated(fine << max(gate[1] - 1, 0))
    share = _saturated(_high_mul(share, gate[0]) << min(max(gate[1], 0), 1))
    share = fixedpoint.rounding_divide_by_pot(share, min(max(-gate[1], 0), 62))
    share = (share + (1 << 15)) >> 1
    product = np.trunc(share * value / (1 << 15)).astype(np.int64)
    codes = fixedpoint.rounding_divide_by_pot(product, min(-output[1], 62))
    return np.asarray(np.clip(codes + target.zero_point, -128, 127), np.int8)


def _high_mul(a: Array, b: int) -> Array:
    """Saturating rounding doubling high multiply of int16 values, ties up."""
    return _saturated((a * b + (1 << 14)) >> 15)


def _saturated(values: Array) -> Array:
    return np.asarray(np.clip(values, *_INT16))
