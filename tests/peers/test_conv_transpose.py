"""conv_transpose2d against LiteRT's TRANSPOSE_CONV, and ONNX Runtime's ConvTranspose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.ir.core import Array, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import ConvTranspose2d
from tests.peers.emulated import activation, bias_of, codes, constant, parameters
from tests.peers.test_litert import (
    AUTO_PAD,
    CODE,
    PADDING,
    agree,
    bias_tensor,
    channel_scales,
    tensor,
    to_nchw,
    to_nhwc,
)
from tests.peers.test_onnxruntime_qdq import Model
from tests.peers.tflite_models import ACTIVATIONS, Node, Tensor, options, run, write

LAYERS: list[tuple[int, int, int, int, str]] = [
    # input channels, output channels, kernel, stride, padding
    (3, 24, 3, 2, "SAME"),
    (17, 19, 2, 2, "VALID"),
    (8, 16, 4, 2, "SAME"),
    (5, 20, 5, 3, "SAME"),
    (16, 1, 3, 1, "VALID"),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_rounding_double_has_litert_bits(layer: tuple[int, int, int, int, str], seed: int) -> None:
    inputs, outputs, kernel, stride, padding = layer
    rng = np.random.default_rng(seed)
    enum, clamp = ACTIVATIONS[("none", "relu", "relu6")[seed]]
    x = activation("x", (1, inputs, 7, 9), parameters(rng, 0.01, 0.2))
    weights = codes(rng, (inputs, outputs, kernel, kernel))
    scales = channel_scales(rng, outputs, per_channel=seed != 2)
    own = Quant(scales.scales, scales.zero_points, None if scales.axis is None else 1)
    bias = rng.integers(-20000, 20000, outputs).astype(np.int32)
    attributes = {"strides": (stride, stride), "auto_pad": AUTO_PAD[padding], "clamp": clamp}
    op = ConvTranspose2d([x, constant("w", weights, own), bias_of(bias)], attributes)
    op.result.type = op.result.tensor.with_quant(x.tensor.dtype, parameters(rng, 0.02, 1.0))
    quant = x.tensor.quant
    assert quant is not None
    table = options(
        "TransposeConvOptions",
        padding=PADDING[padding],
        strideH=stride,
        strideW=stride,
        fusedActivationFunction=enum,
    )
    ohwi = np.transpose(weights, (1, 2, 3, 0))
    shape = np.array(to_nhwc(np.empty(op.result.tensor.dims, np.int8)).shape, np.int32)
    tensors = [
        Tensor(shape=(4,), dtype=np.int32, data=shape),
        Tensor(shape=ohwi.shape, quant=scales, data=ohwi),
        tensor(x),
        bias_tensor(bias, quant, scales),
        tensor(op.result),
    ]
    node = Node(code=CODE.TRANSPOSE_CONV, inputs=[0, 1, 2, 3], outputs=[4], options=table)
    given = codes(rng, x.tensor.dims)
    (theirs,) = run(write(tensors, [node], [2], [4]), [to_nhwc(given)])
    agree(op, {"x": given}, to_nchw(theirs), emulate=seed == 0)


FLOATS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 4, 5, 6), (4, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ((2, 6, 4, 4), (6, 2, 3, 3), {"group": 3, "strides": [2, 2], "output_padding": [1, 0]}),
    ((1, 4, 5, 3), (4, 1, 4, 3), {"group": 4, "dilations": [2, 3], "strides": [3, 2]}),
    ((1, 2, 3, 5), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 5), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 3, 5), (2, 3, 3, 4), {"strides": [2, 2], "output_shape": [6, 9]}),
    ((1, 2, 2, 2), (2, 3, 1, 2), {"strides": [3, 4], "output_padding": [2, 1]}),
]


@pytest.mark.parametrize("case", FLOATS, ids=lambda case: str(case[2]))
def test_float_sums_are_those_of_onnx_runtime(
    case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]],
) -> None:
    x_shape, w_shape, attributes = case
    rng = np.random.default_rng(len(str(case)))
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in (x_shape, w_shape))
    outputs = w_shape[1] * attributes.get("group", 1)
    bias = rng.normal(size=outputs).astype(np.float32)
    arrays: list[Array] = [x, w, bias]
    values = [Value(name, TensorType(a.shape)) for name, a in zip("xwb", arrays, strict=True)]
    op = ConvTranspose2d(values, attributes)
    (ours,) = op.reference([a.astype(np.float64) for a in arrays], Rounding.DOUBLE)
    model = Model()
    operands = ["x", model.constant("w", w), model.constant("b", bias)]
    made = model.node("ConvTranspose", operands, "y_real", **attributes)
    theirs = model.run({"x": x}, made)
    assert ours.shape == theirs.shape == op.result.tensor.dims
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
