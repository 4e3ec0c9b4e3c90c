"""DEPTHWISE: each channel has its own kernel; what becomes of the sums is as in CONV."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Mode, Opcode, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.floats import float_bias, float_head, float_output, is_float, real_pixels
from npufw.kernels.layout import pixels
from npufw.kernels.params import head
from npufw.kernels.requant import (
    clamp_fits,
    conv_parameters,
    held,
    layer_dtypes,
    residual_fits,
    step_blocks,
    sums_fit,
    written,
)
from npufw.kernels.sums import EXACT
from npufw.kernels.vector import BRICKS, EVERY, FLOATS, I8, I32, NUMBERS, PLAIN
from npufw.kernels.window import exact_window, padded, same_batch_and_channels

__all__ = ["DEPTHWISE"]

_PRODUCT = 255 * 128


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    found = _floats(step, arrays) if is_float(step) else _codes(step, arrays)
    return found.transpose(0, 3, 1, 2)


def _floats(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = float_head(arrays.parameters, step.where)
    values = padded(real_pixels(arrays, step), step.toa.pads, 0, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _taps(values, arrays, step)
        sums += float_bias(arrays.parameters, sums.shape[3])
    return float_output(arrays.sums.read_out(sums), step, arrays, params)


def _codes(step: Step, arrays: Arrays) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    blocks = step_blocks(step, arrays)
    # The zero point is subtracted first, so pads are 0; up to 514 taps of int8 are exact in
    # float32, and any number (at most 255 x 255), of int16 too, in float64.
    kh, kw = step.toa.kernel
    narrow = step.input.dtype is DType.I8 and kh * kw * _PRODUCT < EXACT
    dtype = np.float32 if narrow else np.float64
    zero = params.input_zero_point
    values = padded(pixels(arrays.input, step.input), step.toa.pads, zero, dtype)
    values -= zero
    sums = np.add(_exact_taps(values, arrays, step), blocks.bias, dtype=np.float64)
    largest = kh * kw * _PRODUCT + float(np.abs(blocks.bias).max())
    sums = arrays.sums.read_out(held(sums, step, largest))
    return written(sums, step, arrays, params, blocks)


def _taps(values: NDArray[Any], arrays: Arrays, step: Step) -> NDArray[Any]:
    # One tap after the other, so that a float's sum does not depend on the shape of the stripe.
    weights = pixels(arrays.weights, step.operand("weights"))[0].astype(values.dtype)
    (kh, sh, dh), (kw, sw, dw) = step.rows, step.columns
    n, c, oh, ow = step.output.dims
    sums = np.zeros((n, oh, ow, c), values.dtype)
    for i in range(kh):
        rows = values[:, i * dh : i * dh + (oh - 1) * sh + 1 : sh]
        for j in range(kw):
            sums += rows[:, :, j * dw : j * dw + (ow - 1) * sw + 1 : sw] * weights[i, j]
    return sums


def _exact_taps(values: NDArray[Any], arrays: Arrays, step: Step) -> NDArray[Any]:
    # The same of whole numbers, in any order.
    weights = pixels(arrays.weights, step.operand("weights"))[0].astype(values.dtype)
    (kh, sh, dh), (kw, sw, dw) = step.rows, step.columns
    n, c, oh, ow = step.output.dims
    of_n, of_h, of_w, of_c = values.strides
    steps = dh * of_h, dw * of_w
    if sw > 1:
        windows: NDArray[Any] = np.ndarray(
            (n, oh, ow, c, kh, kw),
            values.dtype,
            buffer=values,
            strides=(of_n, sh * of_h, sw * of_w, of_c, *steps),
        )
        return np.asarray(np.einsum("nhwcij,ijc->nhwc", windows, weights))
    # Columns and channels lie side by side: as one axis they make a long inner loop.
    windows = np.ndarray(
        (n, oh, ow * c, kh, kw),
        values.dtype,
        buffer=values,
        strides=(of_n, sh * of_h, of_c, *steps),
    )
    sums = np.einsum("nhfij,ijf->nhf", windows, np.tile(weights, (1, 1, ow)))
    return np.asarray(sums.reshape(n, oh, ow, c))


def _channels(step: Step) -> Fault:
    weights, channels = step.operand("weights"), step.input.dims[1]
    if weights.dims != (1, channels, *step.toa.kernel):
        text = f"weights are {dims_text(weights)}, the input {dims_text(step.input)}"
        return ErrorCode.BAD_DIMS, text
    if step.toa.groups != channels % 65536:
        return ErrorCode.BAD_WINDOW, f"groups is {step.toa.groups}, expected {channels} mod 65536"
    return None


def _whole_sums(step: Step) -> Fault:
    whole = ToaFlag.CLEAR | ToaFlag.WRITE
    if step.toa.flags & whole != whole:
        return ErrorCode.BAD_PRECISION, "has no ranges of K: clear and write go together"
    return None


DEPTHWISE = Kernel(
    opcode=Opcode.DEPTHWISE,
    unit=Unit.MAC,
    required=frozenset({"input", "weights", "parameters", "output"}),
    optional=frozenset({"residual"}),
    modes=frozenset({Mode.DEPTHWISE}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, BRICKS, lane_zero=True),
        operand_is("weights", I8 | FLOATS, BRICKS, lane_zero=True),
        operand_is("parameters", I32, PLAIN),
        operand_is("residual", NUMBERS, BRICKS, lane_zero=True),
        operand_is("output", NUMBERS, BRICKS, lane_zero=True),
        layer_dtypes,
        sums_fit,
        same_batch_and_channels,
        _channels,
        exact_window,
        conv_parameters,
        residual_fits,
        clamp_fits,
        _whole_sums,
    ),
    precisions=EVERY,
)
