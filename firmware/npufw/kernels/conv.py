"""CONV: a stripe of a convolution or dense layer, over one range of its input channels.

Codes: acc = sum((x - x_zp) * w) + bias, then out = clamp(requantise(acc) + zp). The sum runs over
raw codes; the zero point enters once a channel as -x_zp * sum(w), and pads hold the zero point.
Floats: acc = bias + sum(x * w) in float32, clamped and rounded to the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Mode, Opcode, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.floats import float_bias, float_head, float_output, is_float
from npufw.kernels.gather import MOST_NUMBERS, gathered, windows
from npufw.kernels.params import head
from npufw.kernels.requant import (
    accumulators_fit,
    clamp_fits,
    conv_parameters,
    held,
    layer_dtypes,
    residual_fits,
    step_blocks,
    sums_fit,
    written,
)
from npufw.kernels.sums import column_sums, cuts_of, exact_product, wide_product
from npufw.kernels.vector import BRICKS, EVERY, FLOATS, I8, I32, NUMBERS, PLAIN
from npufw.kernels.window import exact_window

__all__ = ["CONV"]

_PRODUCT = 128 * 128
"""The largest product of two codes."""

Multiply = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
"""Makes (M, O) of (M, K) and (K, O)."""

_WEIGHTS_OF = {Layout.NCHW16C: Layout.OIHW16I16O, Layout.NHWC: Layout.OIHW16O}


def _run(step: Step, arrays: Arrays) -> NDArray[Any] | None:
    return _floats(step, arrays) if is_float(step) else _codes(step, arrays)


def _floats(step: Step, arrays: Arrays) -> NDArray[Any] | None:
    params = float_head(arrays.parameters, step.where)
    weights = _matrix(arrays.weights, step)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _products(step, arrays, weights, 0, np.matmul).astype(np.float32, copy=False)
        if step.toa.flags & ToaFlag.CLEAR:
            sums += float_bias(arrays.parameters, sums.shape[3])
        elif arrays.sums.values is not None:
            sums += arrays.sums.values
    arrays.sums.values = None if step.toa.flags & ToaFlag.WRITE else sums
    if not step.toa.flags & ToaFlag.WRITE:
        return None
    sums = arrays.sums.read_out(sums)
    return float_output(sums, step, arrays, params).transpose(0, 3, 1, 2)


def _codes(step: Step, arrays: Arrays) -> NDArray[Any] | None:
    params = head(arrays.parameters, step.where)
    blocks = step_blocks(step, arrays)
    weights = _matrix(arrays.weights, step)
    zero = params.input_zero_point
    offset = column_sums(weights).astype(np.float64) * -zero
    largest = len(weights) * _PRODUCT + 0.0
    if step.toa.flags & ToaFlag.CLEAR:
        offset += blocks.bias
        largest += float(np.abs(offset).max())
    multiply: Multiply = wide_product
    if step.input.dtype is DType.I8:
        multiply = partial(exact_product, starts=cuts_of(weights))
    sums = np.add(_products(step, arrays, weights, zero, multiply), offset, dtype=np.float64)
    if arrays.sums.values is not None and not step.toa.flags & ToaFlag.CLEAR:
        sums += arrays.sums.values
        largest = math.inf
    sums = held(sums, step, largest)
    if not step.toa.flags & ToaFlag.WRITE:
        arrays.sums.values = sums
        return None
    arrays.sums.values = None
    sums = arrays.sums.read_out(sums)
    return written(sums, step, arrays, params, blocks).transpose(0, 3, 1, 2)


def _matrix(view: NDArray[Any], step: Step) -> NDArray[np.float32]:
    # (K, O), K in the order of the taps, then the channels; the blocks' tails are cut off.
    tensor = step.operand("weights")
    o, i, kh, kw = tensor.dims
    if tensor.layout is Layout.OIHW16I16O:
        blocks = view.transpose(2, 3, 1, 4, 0, 5)
        rows = blocks.shape[2] * blocks.shape[3]
    else:
        blocks = view.transpose(2, 3, 1, 0, 4)
        rows = i
    whole = blocks.reshape(kh, kw, rows, -1)[:, :, :i, :o]
    return whole.astype(np.float32).reshape(kh * kw * i, o)


def _products(
    step: Step,
    arrays: Arrays,
    weights: NDArray[np.float32],
    zero_point: int,
    multiply: Multiply,
) -> NDArray[Any]:
    # N, OH, OW, O as *multiply* makes them: of codes whole numbers in float32 or float64.
    n, o, oh, ow = step.output.dims
    found = gathered(step, arrays.input, zero_point, arrays.sums.gathered)
    if found is not None:
        arrays.sums.gathered = found
        return multiply(found.rows, weights).reshape(n, oh, ow, o)
    out, taps = np.empty((n, oh, ow, o)), windows(step, arrays.input, zero_point)
    rows = max(1, MOST_NUMBERS // (n * ow * len(weights)))
    for row in range(0, oh, rows):
        block = taps[:, row : row + rows].reshape(-1, len(weights))
        out[:, row : row + rows] = multiply(block, weights).reshape(n, -1, ow, o)
    return out


def _channels(step: Step) -> Fault:
    weights = step.operand("weights")
    expected = (step.output.dims[1], step.input.dims[1], *step.toa.kernel)
    if weights.dims != expected:
        wanted = "(" + ",".join(map(str, expected)) + ")"
        return ErrorCode.BAD_DIMS, f"weights are {dims_text(weights)}, expected {wanted}"
    if step.input.dims[0] != step.output.dims[0]:
        return ErrorCode.BAD_DIMS, "input and output differ in N"
    return None


def _layouts(step: Step) -> Fault:
    layout = step.operand("weights").layout
    if layout is not _WEIGHTS_OF[step.input.layout]:
        text = (
            f"weights lie as {layout.name.lower()}, the input as {step.input.layout.name.lower()}"
        )
        return ErrorCode.BAD_LAYOUT, text
    return None


def _groups(step: Step) -> Fault:
    if step.toa.groups != 1:
        return ErrorCode.BAD_WINDOW, f"groups are lowered by the compiler, got {step.toa.groups}"
    return None


CONV = Kernel(
    opcode=Opcode.CONV,
    unit=Unit.MAC,
    required=frozenset({"input", "weights", "parameters", "output"}),
    optional=frozenset({"residual"}),
    modes=frozenset({Mode.OUTPUT_STATIONARY, Mode.WEIGHT_STATIONARY}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, frozenset(_WEIGHTS_OF), lane_zero=True),
        operand_is("weights", I8 | FLOATS, frozenset(_WEIGHTS_OF.values())),
        operand_is("parameters", I32, PLAIN),
        operand_is("residual", NUMBERS, BRICKS, lane_zero=True),
        operand_is("output", NUMBERS, BRICKS, lane_zero=True),
        layer_dtypes,
        sums_fit,
        _layouts,
        _channels,
        exact_window,
        _groups,
        conv_parameters,
        residual_fits,
        clamp_fits,
        accumulators_fit,
    ),
    precisions=EVERY,
)
