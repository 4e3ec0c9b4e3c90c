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
        codes = [_code(int(c) - source.zero_point, multiplier, shift, rounding) for c in q]
        return np.asarray(np.clip(np.array(codes) + target.zero_point, -128, 127), np.int8)


def _code(value: int, multiplier: int, shift: int, rounding: Rounding) -> int:
    if value <= 0:
        return 1 << 30
    root, places = _inverse_root(value)
    whole = fixedpoint.requantise(1, root, places + _SHIFT, rounding)
    held = min(max(shift - _SHIFT, fixedpoint.MIN_SHIFT), fixedpoint.MAX_SHIFT)
    return int(fixedpoint.requantise(whole, multiplier, held, rounding))


def _inverse_root(value: int) -> tuple[int, int]:
    """Return 1 / sqrt(*value*) as a Q31 multiplier and a shift (GetInvSqrtQuantizedMultiplierExp).

    *value* is from 1 to 255.
    """
    if value == 1:
        return fixedpoint.INT32_MAX, 0
    pairs = (31 - value.bit_length()) // 2 - 1
    half = int(fixedpoint.rounding_divide_by_pot((value << 2 * pairs) >> 1, 1))
    x = _ONE
    for _ in range(_STEPS):
        cube = fixedpoint.saturating_left_shift(fixedpoint.srdhm(fixedpoint.srdhm(x, x), x), 6)
        rest = fixedpoint.srdhm(_ONE + _ONE // 2, x) - fixedpoint.srdhm(half, cube)
        x = int(fixedpoint.saturating_left_shift(rest, 3))
    return int(fixedpoint.srdhm(x, _ROOT_HALF)), pairs - 11
