"""REDUCE: the sum or the maximum over every axis that the output has one element of.

kernel[0] says which: 1 sum, 2 maximum. Two int32 words behind the OpParams are a whole number for
codes, a float64 for floats. Sums of codes are exact: out = clamp(requantise(sum + number) + zp),
the number being -count * input zp and the scale that of a sum or a mean; kernel[1] = 1 says that
64-bit sums are scaled. An output of i32 or i64 gets the raw sums, which another REDUCE may read.
Sums of floats are float32, divided by the number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import apply, real_of
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import HEAD_WORDS, head
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import ACTIVATIONS, EVERY, FLOATS, I32, NUMBERS, PLAIN, head_only

__all__ = ["REDUCE", "reduced_axes"]

_SUM, _MAX = 1, 2
_RAW = frozenset({DType.I32, DType.I64})
_TAIL_WORDS = 2


def reduced_axes(step: Step) -> tuple[int, ...]:
    """Return the axes that the output has one element of."""
    return tuple(axis for axis in range(4) if step.output.dims[axis] == 1)


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    values, axes = load(arrays.input, step.input), reduced_axes(step)
    if step.toa.kernel[0] == _MAX:
        return np.asarray(values.max(axis=axes, keepdims=True))
    tail = [int(v) for v in arrays.parameters.reshape(-1)[HEAD_WORDS : HEAD_WORDS + _TAIL_WORDS]]
    if step.output.dtype in FLOATS:
        return _floats(values.astype(np.float32), axes, np.float32(real_of(*tail)), step)
    sums = values.sum(axis=axes, keepdims=True, dtype=np.int64)
    if step.output.dtype in _RAW:
        return np.asarray(sums, step.output.dtype.numpy)
    params = head(arrays.parameters, step.where)
    sums += np.array(tail, "<i4").view("<i8")[0]
    factor = params.input_multiplier, params.input_shift
    scaled = apply(sums, *factor, step.rounding, wide=bool(step.toa.kernel[1]))
    return clamped(scaled + params.output_zero_point, step)


def _floats(
    values: NDArray[np.float32], axes: tuple[int, ...], divisor: np.float32, step: Step
) -> NDArray[Any]:
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        total = values.sum(axis=axes, keepdims=True, dtype=np.float32)
        return np.asarray(total / divisor, step.output.dtype.numpy)


def _dims(step: Step) -> Fault:
    pairs = zip(step.input.dims, step.output.dims, strict=True)
    if all(out in (1, given) for given, out in pairs):
        return None
    text = f"{dims_text(step.output)} does not reduce {dims_text(step.input)}"
    return ErrorCode.BAD_DIMS, text


def _kind(step: Step) -> Fault:
    kind, wide = step.toa.kernel
    if kind not in (_SUM, _MAX) or wide not in (0, 1):
        return ErrorCode.BAD_WINDOW, f"kernel is a kind, 1 or 2, and 0 or 1, got {kind}, {wide}"
    return None


def _dtypes(step: Step) -> Fault:
    """Maxima keep the dtype, as sums of floats do or in float32; those of codes may be raw."""
    source, out = step.input.dtype, step.output.dtype
    floats = source in FLOATS, out in FLOATS
    if step.toa.kernel[0] == _MAX:
        fits = source is out and source not in _RAW
    elif floats == (True, True):
        fits = source is out or DType.F32 in (source, out)
    else:
        fits = floats == (False, False)
    kinds = f"{source.text} is not reduced to {out.text}"
    return None if fits else (ErrorCode.BAD_DTYPE, kinds)


def _tail(step: Step) -> Fault:
    words = HEAD_WORDS + _TAIL_WORDS
    if step.operand("parameters").dims[3] < words:
        text = f"parameters are {dims_text(step.operand('parameters'))}, expected (1,1,1,{words})"
        return ErrorCode.BAD_DIMS, text
    return None


def _clamp(step: Step) -> Fault:
    return None if step.output.dtype in _RAW else clamp_fits(step)


REDUCE = Kernel(
    opcode=Opcode.REDUCE,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS | _RAW, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS | _RAW, ACTIVATIONS),
        _kind,
        _dtypes,
        _dims,
        head_only,
        _tail,
        _clamp,
    ),
    precisions=EVERY,
)
