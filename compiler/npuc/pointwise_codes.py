"""Integer rules of elementwise ops, as LiteRT's reference kernels have them, for i8 and i16 codes.

Codes come in as int64 less their zero points. The scales' ratios are what LiteRT computes them as.
MUL alone has a rule of its own for EVEN (ONNX Runtime's QLinearMul); the others compute in float32
there. The firmware's kernels are written separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuabi import fixedpoint
from npuabi.enums import DType, Rounding
from npuc.ir.core import Array
from npuc.ir.types import Quant
from npuc.tables import code_limits, rounded

__all__ = [
    "Slopes",
    "divided",
    "multiplied",
    "product_scale",
    "quotient_scale",
    "signed_multiplier",
    "sloped",
    "sub_fields",
    "subtracted",
]


_HEADROOM = {DType.I8: 20, DType.I16: 15}
"""Bits that SUB's operands are shifted left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slopes:
    """What a code less its zero point is multiplied by, from zero on and below."""

    above: float
    below: float


def signed_multiplier(real: float) -> tuple[int, int]:
    """Return the Q31 multiplier and shift of a scale of either sign."""
    multiplier, shift = fixedpoint.quantize_multiplier(abs(real))
    return (-multiplier if real < 0 else multiplier), shift


def _scaled(values: Array, real: float, rounding: Rounding) -> Array:
    return fixedpoint.requantise(values, *signed_multiplier(real), rounding)


def _held(values: Array, target: Quant, dtype: DType) -> Array:
    low, high = code_limits(dtype)
    return np.asarray(np.clip(values + target.zero_point, low, high), dtype.numpy)


def sloped(
    x: Array, slopes: Slopes, target: Quant, dtype: DType, rounding: Rounding, by: Array | int = 1
) -> Array:
    """Return LEAKY_RELU, ABS and PRELU: x * above, or x * *by* * below where x < 0."""
    above = _scaled(x, slopes.above, rounding)
    below = _scaled(x * by, slopes.below, rounding)
    return _held(np.where(x < 0, below, above), target, dtype)


def product_scale(a: Quant, b: Quant, target: Quant) -> float:
    """Return a * b / target, in float32."""
    return float(np.float32(a.scale) * np.float32(b.scale) / np.float32(target.scale))


def multiplied(
    x: Array, y: Array, scale: float, target: Quant, dtype: DType, rounding: Rounding
) -> Array:
    """Return MUL; for EVEN rint(float32(x * y) * scale + zero point), each step in float32."""
    if rounding is Rounding.EVEN:
        with np.errstate(over="ignore"):
            product = (x * y).astype(np.float32) * np.float32(scale)
        return rounded(product + np.float32(target.zero_point), 0, dtype, rounding)
    return _held(_scaled(x * y, scale, rounding), target, dtype)


def sub_fields(scales: tuple[float, float], target: float, dtype: DType) -> dict[str, int]:
    """Return the multipliers of a SUB task, named as OpParams names them."""
    common = 2.0 * max(scales)
    headroom = _HEADROOM[dtype]
    reals = {
        "input": scales[0] / common,
        "residual": scales[1] / common,
        "output": common / ((1 << headroom) * target),
    }
    fields = {"left_shift": headroom}
    for name, real in reals.items():
        fields[f"{name}_multiplier"], fields[f"{name}_shift"] = signed_multiplier(real)
    return fields


def subtracted(
    x: Array, y: Array, scales: tuple[float, float], target: Quant, dtype: DType, rounding: Rounding
) -> Array:
    """Return SUB: both over twice the larger scale, with headroom, the difference back."""
    common, headroom = 2.0 * max(scales), _HEADROOM[dtype]
    left, right = (
        _scaled(values << headroom, scale / common, rounding)
        for values, scale in zip((x, y), scales, strict=True)
    )
    back = common / ((1 << headroom) * target.scale)
    return _held(_scaled(left - right, back, rounding), target, dtype)


def quotient_scale(a: Quant, b: Quant, target: Quant) -> float:
    """Return a / (b * target), in float32."""
    return float(np.float32(a.scale) / (np.float32(b.scale) * np.float32(target.scale)))


def divided(
    x: Array, y: Array, scale: float, target: Quant, dtype: DType, rounding: Rounding
) -> Array:
    """Return DIV: x times the fixed-point reciprocal of y, then the scale.

    x / 0 is the end of the range on x's side, 0 / 0 is 0.
    """
    sign = np.where(y < 0, -1, 1)
    numerator, denominator = np.broadcast_arrays(x * sign, np.maximum(np.abs(y), 1))
    reciprocal, over_unit = fixedpoint.get_reciprocal(denominator, 31)
    magnitude = np.where(numerator < 0, ~numerator, numerator)
    headroom = 31 - np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    quotient = fixedpoint.srdhm(numerator << headroom, reciprocal)
    multiplier, shift = fixedpoint.quantize_multiplier(scale)
    right = -(shift - over_unit - headroom)
    scaled = _shifted(quotient, multiplier, right, rounding)
    ends = np.where(numerator == 0, 0, np.where(numerator > 0, 1 << 31, -(1 << 31)))
    return _held(np.where(np.broadcast_to(y, scaled.shape) == 0, ends, scaled), target, dtype)


def _shifted(values: Array, multiplier: int, right: Array, rounding: Rounding) -> Array:
    """Return values * multiplier * 2^-(31 + right), rounded twice (DOUBLE) or once (SINGLE)."""
    down = np.clip(right, 0, 62)
    if rounding is Rounding.SINGLE:
        scaled = fixedpoint.requantise(values, multiplier, -np.clip(right, -30, 31), rounding)
        return np.where(right > 31, 0, scaled)
    high = fixedpoint.srdhm(values, multiplier)
    up = np.clip(-right, 0, 30)
    return fixedpoint.rounding_divide_by_pot(high << up, down)
