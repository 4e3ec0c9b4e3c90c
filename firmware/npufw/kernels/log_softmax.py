"""LOG_SOFTMAX along one axis: int8 gives scale 16/256 and zero point 127, int16 16/32768 and 0.

kernel[0] is the axis. Int8, DOUBLE and SINGLE: LiteRT's reference kernel: exp of differences from
the maximum as SOFTMAX has it, the logarithm of their Q12.19 sum in Q5.26. EVEN, and int16: two
tables of 256 float64 behind the OpParams, exp(-256 * d * scale) and exp(-d * scale); with d = max
- q, e the product of an entry of each, the sum of rint(e * 2^40): round((-(d * scale) - log(sum *
2^-40)) / output scale) + zp, halves away from zero, to even with EVEN. Floats: x - max -
log(sum(exp(x - max))) in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import (
    INT32_MIN,
    apply,
    exp_on_negative_values,
    log_of_q12,
    log_real,
    rescale_to_q12,
    round_half_away,
    rounding_divide_by_pot,
)
from npuabi.records import OpParams
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import HEAD_WORDS, head, positive_scale
from npufw.kernels.vector import (
    ACTIVATIONS,
    CODES,
    EVERY,
    I32,
    NUMBERS,
    PLAIN,
    axis_fits,
    head_only,
    one_dtype,
    same_dims,
)

__all__ = ["LOG_SOFTMAX"]

Ints = NDArray[np.int64]

_TABLE_WORDS = 1024
_OUTPUT_SHIFT = 31 - 5 - 4
_LOWEST_Q26 = -(1 << 31)


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    axis = step.toa.kernel[0]
    values = load(arrays.input, step.input)
    if step.input.dtype not in CODES:
        return _floats(values.astype(np.float32), axis, step)
    params = head(arrays.parameters, step.where)
    codes = values.astype(np.int64)
    below = codes.max(axis=axis, keepdims=True) - codes
    if _by_tables(step):
        found = _tabled(below, axis, params, step, arrays)
    else:
        found = _fixed(below, axis, params, step.rounding)
    limits = np.iinfo(values.dtype)
    shifted = np.clip(found + params.output_zero_point, limits.min, limits.max)
    return np.asarray(shifted, values.dtype)


def _floats(values: NDArray[np.float32], axis: int, step: Step) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        below = values - values.max(axis=axis, keepdims=True)
        total = np.exp(below).sum(axis=axis, keepdims=True, dtype=np.float32)
        return np.asarray(below - np.log(total), step.output.dtype.numpy)


def _by_tables(step: Step) -> bool:
    return step.input.dtype is DType.I16 or step.rounding is Rounding.EVEN


def _tabled(below: Ints, axis: int, params: OpParams, step: Step, arrays: Arrays) -> Ints:
    raw = arrays.parameters.reshape(-1)[HEAD_WORDS : HEAD_WORDS + _TABLE_WORDS]
    tables = np.frombuffer(raw.astype("<i4").tobytes(), "<f8").reshape(2, 256)
    if not (tables >= 0).all() or (tables > 1).any() or (tables[:, 0] != 1).any():
        text = f"{step.where}: parameters: the tables of exp do not fall from 1 to 0"
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    into, out = (float(positive_scale(s, step)) for s in (params.input_scale, params.output_scale))
    powers = tables[0][below >> 8] * tables[1][below & 255]
    total = np.rint(powers * (1 << 40)).astype(np.int64).sum(axis=axis, keepdims=True)
    log = log_real(total.astype(np.float64) / (1 << 40))
    steps = (-(below.astype(np.float64) * into) - log) / out
    whole = np.rint(steps) if step.rounding is Rounding.EVEN else round_half_away(steps)
    return np.asarray(whole, np.int64)


def _fixed(below: Ints, axis: int, params: OpParams, rounding: Rounding) -> Ints:
    differences = -np.arange(256, dtype=np.int64)
    factor = params.input_multiplier, params.input_shift
    scaled = apply(differences, *factor, rounding)
    counted = differences >= params.diff_min
    powers = exp_on_negative_values(np.clip(scaled, _LOWEST_Q26, 0))
    terms = np.where(counted, rescale_to_q12(powers), 0)
    log = log_of_q12(terms[below].sum(axis=axis, keepdims=True))
    back = apply(log + INT32_MIN, params.output_multiplier, params.output_shift, rounding)
    shown = -below > np.maximum(params.diff_min - 1, back)
    result = rounding_divide_by_pot(scaled[below] - log, _OUTPUT_SHIFT)
    return np.where(shown, result, -255)


def _tables_fit(step: Step) -> Fault:
    tensor, words = step.operand("parameters"), HEAD_WORDS + _TABLE_WORDS
    if step.input.dtype in CODES and _by_tables(step) and tensor.dims[3] < words:
        text = f"parameters are {dims_text(tensor)}, the tables take (1,1,1,{words})"
        return ErrorCode.BAD_DIMS, text
    return None


LOG_SOFTMAX = Kernel(
    opcode=Opcode.LOG_SOFTMAX,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, ACTIVATIONS),
        one_dtype,
        same_dims,
        axis_fits,
        head_only,
        _tables_fit,
    ),
    precisions=EVERY,
)
