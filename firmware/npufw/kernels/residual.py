"""The ADD of two operands of codes: LiteRT's three multipliers, or fused float32 for EVEN.

ADD and a convolution's fused residual both end here. An int8 operand has 256 codes, so its scaled
value is looked up in a table computed by the same rule. EVEN is ONNX Runtime's QLinearAdd, whose
last bit depends on the order of the operands: rint(fma(a, ra, fma(b, rb, rest))). Int16 codes are
computed one by one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Rounding
from npuabi.errors import AbiError, ErrorCode
from npuabi.fixedpoint import apply, fused_multiply_add, scale_of
from npuabi.records import OpParams

__all__ = ["CODES", "Operand", "add", "first", "second", "table_index"]

CODES = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
"""The int8 code of each byte."""

_WORTH_A_TABLE = 1 << 12
"""Codes from which on an ADD looks pairs up: the table takes as long as some ten thousand."""

_FAR = np.float32(1 << 30)
"""Beyond every code, and exact in float32."""

Operand = tuple[int, int, int]
"""Zero point, multiplier and shift of an operand of an add."""


def table_index(codes: NDArray[Any]) -> NDArray[np.uint8]:
    """Return int8 *codes* as indices of a table in the order of CODES."""
    return codes.astype(np.int8, copy=False).view(np.uint8)


def first(params: OpParams, zero_point: int) -> Operand:
    """Return the first operand's scaling; a fused residual's has the inner zero point."""
    return zero_point, params.input_multiplier, params.input_shift


def second(params: OpParams) -> Operand:
    """Return the second operand's scaling."""
    return params.residual_zero_point, params.residual_multiplier, params.residual_shift


def add(
    a: NDArray[Any],
    b: NDArray[Any],
    scaling: tuple[Operand, Operand],
    params: OpParams,
    rounding: Rounding,
) -> NDArray[Any]:
    """Return the sum, output zero point included, of codes of one dtype that broadcast.

    It is not clamped further than to that dtype.
    """
    if a.dtype.itemsize > 1 or max(a.size, b.size) < _WORTH_A_TABLE:
        limits = np.iinfo(a.dtype)
        return np.clip(_added(a, b, scaling, params, rounding), limits.min, limits.max)
    left, right = table_index(a).astype(np.uint16), table_index(b)
    return np.take(_pairs(scaling, params, rounding), (left << 8) | right)


@lru_cache(maxsize=64)
def _pairs(
    scaling: tuple[Operand, Operand], params: OpParams, rounding: Rounding
) -> NDArray[np.int8]:
    """Return the sum of each pair of codes: there are no more than 65,536."""
    found = _added(CODES[:, None], CODES, scaling, params, rounding)
    return np.clip(found, -128, 127).astype(np.int8).reshape(-1)


def _added(
    a: NDArray[Any],
    b: NDArray[Any],
    scaling: tuple[Operand, Operand],
    params: OpParams,
    rounding: Rounding,
) -> NDArray[np.int64]:
    if rounding is Rounding.EVEN:
        return _even(a, b, scaling, np.float32(params.output_zero_point))
    shifted = params.left_shift
    total = _scaled(a, scaling[0], shifted, rounding) + _scaled(b, scaling[1], shifted, rounding)
    out = apply(total, params.output_multiplier, params.output_shift, rounding)
    return np.asarray(out + params.output_zero_point)


def _scaled(
    codes: NDArray[Any], operand: Operand, left_shift: int, rounding: Rounding
) -> NDArray[np.int64]:
    if codes.dtype == np.int8:
        return np.take(_table(operand, left_shift, rounding), table_index(codes))
    zero_point, multiplier, shift = operand
    centred = codes.astype(np.int64) - zero_point
    return apply(centred << left_shift, multiplier, shift, rounding)


@lru_cache(maxsize=256)
def _table(operand: Operand, left_shift: int, rounding: Rounding) -> NDArray[np.int64]:
    """Return the scaled value of each code; the stripes of an op share it."""
    zero_point, multiplier, shift = operand
    return apply((CODES - zero_point) << left_shift, multiplier, shift, rounding)


def _even(
    a: NDArray[Any], b: NDArray[Any], scaling: tuple[Operand, Operand], zero: np.float32
) -> NDArray[np.int64]:
    (za, ra), (zb, rb) = ((operand[0], _factor(operand)) for operand in scaling)
    with np.errstate(over="ignore", invalid="ignore"):
        rest = zero - fused_multiply_add(za, ra, np.float32(zb) * rb)
        if b.dtype == np.int8:
            partial = fused_multiply_add(CODES, rb, rest)[table_index(b)]
        else:
            partial = fused_multiply_add(b, rb, rest)
        real = np.rint(fused_multiply_add(a, ra, partial))
    # What is no number came from scales beyond all use; it ends at the low clamp.
    return np.fmin(np.fmax(real, -_FAR), _FAR).astype(np.int64)


def _factor(operand: Operand) -> np.float32:
    scale = np.float32(scale_of(operand[1]))
    if not 0 <= scale < np.inf:
        raise AbiError(
            ErrorCode.BAD_MULTIPLIER, f"a float32 scale is {scale}, below 0 or not finite"
        )
    return scale
