"""From a convolution's sums to its output codes, with the fused residual add."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Rounding, ToaFlag
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import INT32_MAX, apply, real_of, requantise_narrow, requantise_real
from npuabi.records import OpParams
from npufw.kernels import residual
from npufw.kernels.base import Arrays, Fault, Step, dims_text
from npufw.kernels.layout import pixels
from npufw.kernels.params import ChannelBlocks, channel_blocks, conv_words
from npufw.kernels.scaling import closed, closed_form_holds, scaled_even
from npufw.kernels.vector import FLOATS, one_dtype

__all__ = [
    "accumulators_fit",
    "clamp_fits",
    "clamped",
    "conv_parameters",
    "held",
    "layer_dtypes",
    "residual_fits",
    "step_blocks",
    "sums_fit",
    "written",
]

_RANGES = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}
_UNUSED = (0, 0)
"""The clamp of a TOA that computes on floats: theirs are in the parameters."""


def clamped(values: NDArray[Any], step: Step) -> NDArray[Any]:
    """Return *values* held within the TOA's clamp, as the output's codes."""
    return _limited(values, step.output.dtype, *step.toa.clamp)


def held(sums: NDArray[np.float64], step: Step, largest: float) -> NDArray[np.float64]:
    """Return *sums* as the accumulators hold them: int32 wraps, WIDE keeps 64 bits.

    *largest* is known to bound their magnitude. Wrapping once at the end equals wrapping at each
    addition. The compiler proves that a blob's sums never wrap; this is what the machine would do
    with one that lies.
    """
    if largest <= INT32_MAX or step.toa.flags & ToaFlag.WIDE:
        return sums
    return sums.astype(np.int64).astype(np.int32).astype(np.float64)


def written(
    sums: NDArray[np.float64], step: Step, arrays: Arrays, params: OpParams, blocks: ChannelBlocks
) -> NDArray[Any]:
    """Return the output of N, H, W, C *sums*: requantise, add the residual if any, clamp.

    *sums* are integers below 2^53, and are overwritten.
    """
    if not step.toa.flags & ToaFlag.RESIDUAL:
        low = step.toa.clamp[0]
        return clamped(_scaled(sums, step, blocks, params.output_zero_point, low), step)
    dtype = step.output.dtype
    smallest, largest = _RANGES[dtype]
    low, high = max(params.inner_low, smallest), min(params.inner_high, largest)
    inner = _limited(_scaled(sums, step, blocks, params.inner_zero_point, low), dtype, low, high)
    other = pixels(arrays.residual, step.operand("residual"))
    scaling = residual.first(params, params.inner_zero_point), residual.second(params)
    return clamped(residual.add(inner, other, scaling, params, step.rounding), step)


def step_blocks(step: Step, arrays: Arrays) -> ChannelBlocks:
    """Return bias and scales of the step's output channels."""
    real = bool(step.toa.flags & ToaFlag.REAL)
    words, channels = arrays.parameters, step.output.dims[1]
    return channel_blocks(words, channels, step.input.dtype, step.where, real=real)


def _limited(values: NDArray[Any], dtype: DType, low: int, high: int) -> NDArray[Any]:
    above = np.maximum(values, values.dtype.type(low))
    return np.asarray(np.minimum(above, values.dtype.type(high), out=above), dtype.numpy)


def _scaled(
    sums: NDArray[np.float64], step: Step, blocks: ChannelBlocks, zero_point: int, low: int
) -> NDArray[Any]:
    # Scaled codes with the zero point, not clamped; below *low* any code will do.
    multiplier, shift = blocks.multiplier, blocks.shift
    if step.toa.flags & ToaFlag.REAL:
        return requantise_real(sums, real_of(multiplier, shift)) + zero_point
    if step.rounding is Rounding.EVEN:
        return scaled_even(sums, multiplier, zero_point)
    if step.input.dtype is DType.I16:
        exact = sums.astype(np.int64)
        return requantise_narrow(exact, multiplier, shift, step.rounding) + zero_point
    wide = bool(step.toa.flags & ToaFlag.WIDE)
    if not wide and closed_form_holds(multiplier, shift):
        return closed(sums, multiplier, shift, step.rounding, zero_point, low=low)
    exact = sums.astype(np.int64)
    return apply(exact, multiplier, shift, step.rounding, wide=wide) + zero_point


def clamp_fits(step: Step) -> Fault:
    """Rule: the clamp is a range of the output's codes; of floats it is 0 to 0."""
    low, high = step.toa.clamp
    smallest, largest = _RANGES.get(step.output.dtype, _UNUSED)
    if smallest <= low <= high <= largest:
        return None
    return ErrorCode.BAD_SCALE, f"clamp {low} to {high} is no range of {step.output.dtype.text}"


def sums_fit(step: Step) -> Fault:
    """Rule: sums of i16 have 64 bits; those of floats neither that nor float64 scales."""
    wide = bool(step.toa.flags & ToaFlag.WIDE)
    if step.input.dtype is DType.I16 and not wide:
        return ErrorCode.BAD_PRECISION, "sums of i16 are wide"
    if step.input.dtype in FLOATS and step.toa.flags & (ToaFlag.WIDE | ToaFlag.REAL):
        return ErrorCode.BAD_PRECISION, "sums of floats are neither wide nor real"
    return None


def layer_dtypes(step: Step) -> Fault:
    """Rule: all activations have one dtype, and weights are i8 beside codes, else of it too."""
    fault = one_dtype(step)
    if fault is not None:
        return fault
    wanted = step.input.dtype if step.input.dtype in FLOATS else DType.I8
    found = step.operand("weights").dtype
    if found is not wanted:
        text = f"weights are {found.text}, expected {wanted.text} beside {step.input.dtype.text}"
        return ErrorCode.BAD_DTYPE, text
    return None


def accumulators_fit(step: Step) -> Fault:
    """Rule: the sums that a range of K leaves behind fit the accumulators."""
    whole = ToaFlag.CLEAR | ToaFlag.WRITE
    if step.toa.flags & whole == whole:
        return None
    n, c, h, w = step.output.dims
    sums, size = n * c * h * w, 8 if step.toa.flags & ToaFlag.WIDE else 4
    room = step.target.accumulator_bytes * step.target.arrays // size
    if sums > room:
        text = f"a range of K leaves {sums} sums, the accumulators hold {room}"
        return ErrorCode.BAD_PRECISION, text
    return None


def conv_parameters(step: Step) -> Fault:
    """Rule: parameters are dense int32 words, the head and a block for each 16 channels."""
    tensor = step.operand("parameters")
    words = conv_words(step.output.dims[1], step.input.dtype)
    if tensor.dims != (1, 1, 1, words) or tensor.strides[3] != tensor.dtype.size:
        text = f"parameters are {dims_text(tensor)}, expected (1,1,1,{words}) without gaps"
        return ErrorCode.BAD_DIMS, text
    return None


def residual_fits(step: Step) -> Fault:
    """Rule: a residual comes with its flag and has the output's dims."""
    flag, tensor = bool(step.toa.flags & ToaFlag.RESIDUAL), step.tensors[3]
    if flag != (tensor is not None):
        return ErrorCode.BAD_OPERANDS, "residual flag and residual operand do not go together"
    if tensor is not None and tensor.dims != step.output.dims:
        text = f"residual is {dims_text(tensor)}, the output {dims_text(step.output)}"
        return ErrorCode.BAD_DIMS, text
    return None
