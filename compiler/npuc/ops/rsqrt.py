"""rsqrt: 1 / sqrt(x), ours as TFLite has it; codes of x <= 0 give the largest code.

On i8 codes LiteRT's fixed point: Newton's iteration from gemmlowp, then the scale.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from npuabi import fixedpoint
from npuabi.enums import DType, Rounding
from npuc.expression import Expression, sqrt
from npuc.ir.core import Array, op
from npuc.ops.pointwise import Unary
from npuc.ops.quantised import quant_of

__all__ = ["Rsqrt"]

_ROOT_HALF = 1518500250
_ONE = 1 << 28
"""In Q3.28."""
_STEPS = 5
_SHIFT = 20


@op("rsqrt")
class Rsqrt(Unary):
    """1 / sqrt(x); codes of x <= 0 give the largest code."""

    DOMAIN: ClassVar[tuple[float, float]] = (0.0, math.inf)
    INTERPOLATED: ClassVar[bool] = True

    def real(self, x: Array) -> Array:
        return np.asarray(1.0 / np.sqrt(x))

    def expression(self, x: Expression) -> Expression:
        return 1.0 / sqrt(x)

    def codes(self, q: Array, dtype: DType, rounding: Rounding) -> Array:
        """Return LiteRT's fixed-point codes, or for EVEN those of the float32 steps."""
        if rounding is Rounding.EVEN:
            return super().codes(q, dtype, rounding)
        source, target = quant_of(self.x), quant_of(self.result)
        root = np.sqrt(np.float32(source.scale)) * np.float32(target.scale)
        multiplier, shift = fixedpoint.quantize_multiplier(1.0 / float(root))
        root, places = _inverse_root(np.maximum(q - source.zero_point, 1))
        whole = fixedpoint.requantise(1, root, places + _SHIFT, rounding)
        shift = min(max(shift - _SHIFT, fixedpoint.MIN_SHIFT), fixedpoint.MAX_SHIFT)
        codes = fixedpoint.requantise(whole, multiplier, shift, rounding) + target.zero_point
        held = np.where(q <= source.zero_point, 127, np.clip(codes, -128, 127))
        return np.asarray(held, np.int8)


def _inverse_root(values: Array) -> tuple[Array, Array]:
    """Return 1 / sqrt(*values*) as Q31 multipliers and shifts (GetInvSqrtQuantizedMultiplierExp).

    *values* are from 1 to 255.
    """
    pairs = (31 - np.frexp(values.astype(np.float64))[1]) // 2 - 1
    half = fixedpoint.rounding_divide_by_pot((values << (2 * pairs)) >> 1, 1)
    x = np.full_like(half, _ONE)
    for _ in range(_STEPS):
        cube = fixedpoint.saturating_left_shift(fixedpoint.srdhm(fixedpoint.srdhm(x, x), x), 6)
        rest = fixedpoint.srdhm(_ONE + _ONE // 2, x) - fixedpoint.srdhm(half, cube)
        x = fixedpoint.saturating_left_shift(rest, 3)
    one = values == 1
    root = np.where(one, fixedpoint.INT32_MAX, fixedpoint.srdhm(x, _ROOT_HALF))
    return root, np.where(one, 0, pairs - 11)
