"""DIV: the quotient of two tensors of codes, each with its own scale; a dim of 1 is repeated.

The first operand, shifted up to its sign bit, times the second's fixed-point reciprocal (Newton),
times the scale, rounded at each step (LiteRT). By 0: the end of the clamp on the first operand's
side, or the zero point for 0 / 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Rounding, Unit
from npuabi.fixedpoint import (
    MAX_SHIFT,
    MIN_SHIFT,
    get_reciprocal,
    requantise,
    rounding_divide_by_pot,
    srdhm,
)
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Kernel, Step
from npufw.kernels.pairs import Ints, centred, code_rules, held, no_even

__all__ = ["DIV"]

_BEYOND = 1 << 31
_INTEGER_BITS = 31
_MOST_RIGHT = 62


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params, x, y = centred(step, arrays)
    x, y = np.broadcast_arrays(x, y)
    negative = y < 0
    x = np.where(negative, -x, x)
    quotient = _quotient(x, np.where(negative, -y, y), params, step.rounding)
    quotient = np.where(y == 0, np.sign(x) * _BEYOND, quotient)
    return held(quotient, step, params)


def _quotient(x: Ints, y: Ints, params: OpParams, rounding: Rounding) -> Ints:
    reciprocal, bits = get_reciprocal(np.maximum(y, 1), _INTEGER_BITS)
    room = _sign_bits(x)
    unscaled = srdhm(np.left_shift(x, room), reciprocal)
    left = params.output_shift - bits - room
    if rounding is Rounding.SINGLE:
        held_shift = np.clip(left, MIN_SHIFT, MAX_SHIFT)
        scaled = requantise(unscaled, params.output_multiplier, held_shift, rounding)
        return np.where(left < MIN_SHIFT, 0, scaled)
    high = srdhm(unscaled, params.output_multiplier)
    high = np.left_shift(high, np.clip(left, 0, MAX_SHIFT))
    return rounding_divide_by_pot(high, np.clip(-left, 0, _MOST_RIGHT))


def _sign_bits(x: Ints) -> Ints:
    """Copies of the sign behind the sign bit of an int32: 31 for 0 and -1."""
    magnitude = np.bitwise_xor(x, x >> 63)
    return np.asarray(31 - np.frexp(magnitude.astype(np.float64))[1], np.int64)


DIV = Kernel(
    opcode=Opcode.DIV,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "residual", "output"}),
    run=_run,
    rules=code_rules(no_even),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
