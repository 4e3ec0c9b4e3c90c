"""How norms become a NORM task: the axes of a row as a mask, gamma and beta as one constant.

The constant has dims (2, C, H, W), gamma before beta, with 1 where they do not vary.
"""

from __future__ import annotations

import numpy as np

from npuabi.enums import DType, Layout
from npuabi.fixedpoint import real_words
from npuabi.geometry import device_dims
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import TensorType
from npuc.norms import Norm
from npuc.npu import tasks
from npuc.npu.builder import Builder, op_params
from npuc.ops.shapes import device_axis

__all__ = ["lower_norm"]


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
