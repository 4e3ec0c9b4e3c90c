"""What the norms share: what they ask of operands, attributes and rows, and how they are lowered.

A NORM task gets the axes of a row as a mask, and gamma and beta as one constant of dims (2, C, H,
W), gamma before beta, with 1 where they do not vary.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from npuabi.enums import DType, Layout, Rounding
from npuabi.fixedpoint import real_words
from npuabi.geometry import device_dims
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr
from npuc.ir.types import TensorType
from npuc.norms import LONGEST_ROW, Norm, norm_codes, norm_real
from npuc.npu import tasks
from npuc.npu.builder import Builder, op_params
from npuc.ops.quantised import check_results, is_quantised, quant_of, require_activation
from npuc.ops.shapes import device_axis, text

__all__ = ["ROW", "STASH_TYPE", "check_channels", "check_norm", "lower_norm", "normalised"]

STASH_TYPE = attr("1 only: the type of the sums, float32", AttrKind.INT, default=1)


class _Rows(Protocol):
    x: Value

    @property
    def row_elements(self) -> int: ...


def _row_fits(op: _Rows) -> bool:
    dims, dtype = op.x.tensor.shape, op.x.tensor.dtype
    return None in dims or not is_quantised(op.x) or op.row_elements <= LONGEST_ROW[dtype]


ROW = Limit(
    f"a row that is normalised has at most {LONGEST_ROW[DType.I8]:,} elements at int8, "
    f"{LONGEST_ROW[DType.I16]:,} at int16",
    _row_fits,
    "use another precision, or smaller rows",
)
"""The exact sums of a row fit 64 bits."""


def check_norm(op: Op) -> None:
    """Check types, parameters, epsilon and stash_type."""
    check_results(op)
    x, *affine = op.inputs
    require_activation(x, op.result)
    for value in affine:
        if value.tensor.dtype is not DType.F32:
            raise ValueError(f"%{value.name} is {value.tensor.dtype.text}, expected f32")
    epsilon = op.attributes["epsilon"]
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon is a number of at least 0, got {epsilon}")
    if op.attributes.get("stash_type", 1) != 1:
        raise ValueError(f"stash_type is 1 (float32), got {op.attributes['stash_type']}")


def normalised(op: Op, x: Array, norm: Norm, rounding: Rounding) -> Array:
    """Return the result of *op* on its operand's numbers or codes."""
    (source,) = op.activations
    if is_quantised(source):
        return norm_codes(x, norm, quant_of(source), quant_of(op.result), rounding)
    return norm_real(x, norm)


def check_channels(x: Value, **parameters: Value) -> None:
    """Refuse parameters that have not one number for each channel of *x*."""
    channels = x.tensor.shape[1]
    for name, value in parameters.items():
        shape = value.tensor.shape
        if len(shape) != 1 or (None not in (channels, shape[0]) and shape[0] != channels):
            expected = "?" if channels is None else channels
            got = text(shape)
            raise ValueError(f"{name} has shape {expected}, one number a channel, got {got}")


def lower_norm(builder: Builder, op: Op, x: Value, norm: Norm) -> None:
    """Append the NORM of *x*; gamma and beta have its rank."""
    rank = x.tensor.rank
    source, target = x.tensor.quant, op.results[0].tensor.quant
    params = op_params(
        input_zero_point=0 if source is None else source.zero_point,
        output_zero_point=0 if target is None else target.zero_point,
        input_scale=0.0 if source is None else source.scale,
        output_scale=0.0 if target is None else target.scale,
    )
    words = np.array([real_words(norm.epsilon)], "<i4").view(np.uint8).ravel()
    mask = sum(1 << device_axis(axis, rank) for axis in norm.axes)
    operands = [
        builder.read(x),
        builder.result_of(op.results[0]),
        builder.params(params, words),
        _affine(builder, norm.gamma, norm.beta),
    ]
    builder.task(tasks.Norm, op, operands, kernel=(mask, 0), groups=norm.groups)


def _affine(builder: Builder, gamma: Array, beta: Array) -> Value:
    both = [np.asarray(v, np.float32).reshape(device_dims(v.shape)) for v in (gamma, beta)]
    pair = np.concatenate(np.broadcast_arrays(*both))
    layout = Layout.NCHW16C if pair.shape[1] > 1 else Layout.NCHW
    return builder.stored(pair, TensorType(pair.shape, DType.F32, layout=layout))
