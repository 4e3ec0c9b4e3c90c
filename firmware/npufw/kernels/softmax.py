"""SOFTMAX along one axis: int8 in, scale 1/256 and zero point -128 out.

DOUBLE and SINGLE are LiteRT's reference kernel: differences from the maximum in Q5.26, exp on
negative values, a Q12.19 sum, a fixed-point reciprocal. EVEN looks exp(-difference * scale) up in
256 float32 words behind the OpParams (multiples of 2^-30, so that float64 sums are exact in any
order): rint(e / sum * 256).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import (
    apply,
    exp_on_negative_values,
    get_reciprocal,
    rescale_to_q12,
    rounding_divide_by_pot,
    srdhm,
)
from npuabi.records import OpParams
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import HEAD_WORDS, head
from npufw.kernels.vector import ACTIVATIONS, I8, I32, PLAIN, head_only, same_dims

__all__ = ["SOFTMAX"]

Ints = NDArray[np.int64]

_MAX_AXIS = 4095
"""Terms that a Q12.19 sum holds."""

_CODES = 256
_OUTPUT_BITS = 8
_LOWEST_Q26 = -(1 << 31)


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    axis = step.toa.kernel[0]
    values = load(arrays.input, step.input).astype(np.int64)
    below = values.max(axis=axis, keepdims=True) - values
    if step.rounding is Rounding.EVEN:
        codes = _even(below, axis, _table(arrays.parameters, step))
    else:
        codes = _fixed(below, axis, head(arrays.parameters, step.where), step.rounding)
    return np.clip(codes - 128, -128, 127).astype(np.int8)


def _fixed(below: Ints, axis: int, params: OpParams, rounding: Rounding) -> Ints:
    differences = -np.arange(_CODES, dtype=np.int64)
    counted = differences >= params.diff_min
    scaled = apply(differences, params.input_multiplier, params.input_shift, rounding)
    powers = np.where(counted, exp_on_negative_values(np.clip(scaled, _LOWEST_Q26, 0)), 0)
    total = rescale_to_q12(powers)[below].sum(axis=axis, keepdims=True)
    reciprocal, bits = get_reciprocal(total)
    return rounding_divide_by_pot(srdhm(reciprocal, powers[below]), bits + 31 - _OUTPUT_BITS)


def _even(below: Ints, axis: int, table: NDArray[np.float64]) -> Ints:
    terms = table[below]
    share = terms / terms.sum(axis=axis, keepdims=True)
    return np.asarray(np.rint(share * (1 << _OUTPUT_BITS)), np.int64)


def _table(words: NDArray[Any], step: Step) -> NDArray[np.float64]:
    raw = words.reshape(-1)[HEAD_WORDS : HEAD_WORDS + _CODES].astype("<i4").tobytes()
    table = np.frombuffer(raw, "<f4").astype(np.float64)
    if not (np.isfinite(table).all() and table.min() >= 0 and table[0] > 0):
        text = f"{step.where}: parameters: the table of exp is not finite and positive"
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    return table


def _table_fits(step: Step) -> Fault:
    tensor, words = step.operand("parameters"), HEAD_WORDS + _CODES
    if step.rounding is Rounding.EVEN and tensor.dims[3] < words:
        text = f"parameters are {dims_text(tensor)}, rounding even takes (1,1,1,{words})"
        return ErrorCode.BAD_DIMS, text
    return None


def _axis(step: Step) -> Fault:
    axis = step.toa.kernel[0]
    if axis not in (1, 2, 3):
        return ErrorCode.BAD_WINDOW, f"kernel[0] is the axis, 1 to 3, got {axis}"
    if step.input.dims[axis] > _MAX_AXIS:
        text = f"axis {axis} of {dims_text(step.input)} has more than {_MAX_AXIS} elements"
        return ErrorCode.BAD_DIMS, text
    return None


SOFTMAX = Kernel(
    opcode=Opcode.SOFTMAX,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", I8, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", I8, ACTIVATIONS),
        same_dims,
        _axis,
        head_only,
        _table_fits,
    ),
)
