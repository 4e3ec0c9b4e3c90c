"""SOFTMAX along one axis: int8 gives scale 1/256 and zero point -128, int16 1/32768 and 0.

Int8, DOUBLE and SINGLE: LiteRT's reference kernel: differences from the maximum in Q5.26, exp on
negative values, a Q12.19 sum, a fixed-point reciprocal. EVEN looks exp(-difference * scale) up in
256 float32 words behind the OpParams (multiples of 2^-30, so that float64 sums are exact in any
order): rint(e / sum * 256).
Int16: LiteRT's too, in all modes: exp and 1 / (1 + x) from two tables of 513 int16 entries behind
the OpParams, with straight lines between them. Floats: exp(x - max) / sum in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Rounding, Unit
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
from npufw.kernels.floats import is_float
from npufw.kernels.layout import load
from npufw.kernels.params import HEAD_WORDS, head
from npufw.kernels.vector import (
    ACTIVATIONS,
    EVERY,
    I32,
    NUMBERS,
    PLAIN,
    axis_fits,
    head_only,
    one_dtype,
    same_dims,
)

__all__ = ["SOFTMAX"]

Ints = NDArray[np.int64]


_CODES = 256
_ENTRIES = 513
"""Of each table of int16: two to a word, so that both take as many words."""
_WIDE_HIGH = 32767
_OUTPUT_BITS = 8
_LOWEST_Q26 = -(1 << 31)


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    axis = step.toa.kernel[0]
    if is_float(step):
        return _floats(load(arrays.input, step.input).astype(np.float32), axis, step)
    values = load(arrays.input, step.input).astype(np.int64)
    if step.input.dtype is DType.I16:
        return _wide(values, axis, arrays.parameters, step)
    below = values.max(axis=axis, keepdims=True) - values
    if step.rounding is Rounding.EVEN:
        codes = _even(below, axis, _table(arrays.parameters, step))
    else:
        codes = _fixed(below, axis, head(arrays.parameters, step.where), step.rounding)
    return np.clip(codes - 128, -128, 127).astype(np.int8)


def _floats(values: NDArray[np.float32], axis: int, step: Step) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(values - values.max(axis=axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis=axis, keepdims=True), step.output.dtype.numpy)


def _wide(values: Ints, axis: int, words: NDArray[Any], step: Step) -> NDArray[np.int16]:
    params = head(words, step.where)
    rounding = Rounding.DOUBLE if step.rounding is Rounding.EVEN else step.rounding
    powers, shares = _wide_tables(words)
    below = values - values.max(axis=axis, keepdims=True)
    scaled = apply(below, params.input_multiplier, params.input_shift, rounding)
    parts = _interpolated(powers, scaled + _WIDE_HIGH)
    total = np.maximum(parts.sum(axis=axis, keepdims=True), 1)
    spare = 31 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    normal = ((total << spare) + (1 << 13)) >> 14
    share = _interpolated(shares, normal - (1 << 15) - (1 << 16))
    right = 30 - spare
    scaled_parts = (parts * share + (np.int64(1) << np.maximum(right - 1, 0))) >> right
    return np.asarray(np.clip(scaled_parts, 0, _WIDE_HIGH), np.int16)


def _wide_tables(words: NDArray[Any]) -> NDArray[np.int64]:
    raw = words.reshape(-1)[HEAD_WORDS : HEAD_WORDS + _ENTRIES].astype("<i4").tobytes()
    return np.frombuffer(raw, "<i2").astype(np.int64).reshape(2, _ENTRIES)


def _interpolated(table: Ints, codes: Ints) -> Ints:
    held = np.clip(codes, -_WIDE_HIGH - 1, _WIDE_HIGH)
    place = (held >> 7) + 256
    base = table[place]
    return np.asarray(base + (((table[place + 1] - base) * (held & 127) + 64) >> 7))


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
    tensor, words = step.operand("parameters"), HEAD_WORDS
    if step.input.dtype is DType.I16:
        words += _ENTRIES
    elif step.input.dtype is DType.I8 and step.rounding is Rounding.EVEN:
        words += _CODES
    if tensor.dims[3] < words:
        text = f"parameters are {dims_text(tensor)}, the tables take (1,1,1,{words})"
        return ErrorCode.BAD_DIMS, text
    return None


SOFTMAX = Kernel(
    opcode=Opcode.SOFTMAX,
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
        _table_fits,
    ),
    precisions=EVERY,
)
