"""Rounding double at int16 against LiteRT's 16x8 reference kernels, code by code.

Every case is random from its seed, extremes of codes included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.const import Const
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import (
    Add,
    AvgPool2d,
    Clip,
    Conv1d,
    Conv2d,
    Dense,
    Dequantize,
    MaxPool2d,
    Quantize,
    Relu,
    Softmax,
)
from tests.peers.emulated import constant
from tests.peers.test_litert import (
    AUTO_PAD,
    CODE,
    CONVS,
    DEPTHWISE,
    PADDING,
    SEEDS,
    bias_tensor,
    channel_scales,
    one_op,
    tensor,
    to_nhwc,
)
from tests.peers.tflite_models import ACTIVATIONS, Node, Tensor, options

EVERY_CODE = np.arange(-32768, 32768).astype(np.int16).reshape(1, -1)


def scale(rng: np.random.Generator, low: float, high: float) -> Quant:
    """Return a float32 scale, log-uniform in [low, high]; the zero point is 0."""
    drawn = np.exp(rng.uniform(np.log(low), np.log(high)))
    return Quant.per_tensor(float(np.float32(drawn)), 0)


def codes(rng: np.random.Generator, *shape: int) -> Array:
    """Return int16 codes, one in eight of them an extreme."""
    made = rng.integers(-32768, 32768, shape)
    extreme = rng.integers(0, 8, shape) == 0
    return np.where(extreme, rng.choice([-32768, 32767], shape), made).astype(np.int16)


def activation(name: str, shape: tuple[int, ...], quant: Quant) -> Value:
    return Value(name, TensorType(shape, DType.I16, quant))


def weights_of(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


def wide_bias(values: Array) -> Value:
    return Const.of(values, TensorType(values.shape, DType.I64), name="b").result


def typed(op: Op, quant: Quant) -> Op:
    op.result.type = op.result.tensor.with_quant(DType.I16, quant)
    return op


def layer_tensors(
    x: Value, weights: Array, scales: Quant, bias: Array, axis: int, result: Value
) -> list[Tensor]:
    quant = x.tensor.quant
    assert quant is not None
    by_axis = scales if scales.axis is None else Quant(scales.scales, scales.zero_points, axis)
    of_bias = bias_tensor(bias, quant, scales)
    wide = Tensor(shape=bias.shape, dtype=np.int64, quant=of_bias.quant, data=bias)
    stored = Tensor(shape=weights.shape, quant=by_axis, data=weights)
    return [tensor(x), stored, wide, tensor(result)]


def output_scale(rng: np.random.Generator, x: Quant, scales: Quant, terms: int) -> Quant:
    """Return a scale at which some results saturate and others use a few codes only."""
    spread = x.scale * max(scales.scales) * 40 * np.sqrt(terms)
    return Quant.per_tensor(float(np.float32(spread * np.exp(rng.uniform(-3, 3)))), 0)


def bias_near(rng: np.random.Generator, x: Quant, scales: Quant, y: Quant, count: int) -> Array:
    """Return biases of up to 30,000 output steps: LiteRT's result must stay within int32."""
    steps = 30000 * y.scale / (x.scale * np.array(scales.scales))
    return np.rint(rng.uniform(-1, 1, count) * steps).astype(np.int64)


@SEEDS
@pytest.mark.parametrize("case", CONVS)
def test_conv2d(case: tuple[int, int, int, int, int, str], seed: int) -> None:
    inputs, outputs, kernel, stride, dilation, padding = case
    rng = np.random.default_rng(seed)
    enum, clamp = list(ACTIVATIONS.values())[seed % 3]
    attributes = {
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
        "auto_pad": AUTO_PAD[padding],
        "clamp": clamp,
    }
    x = activation("x", (1, inputs, 18, 17), scale(rng, 1e-5, 1e-3))
    weights = weights_of(rng, outputs, inputs, kernel, kernel)
    scales = channel_scales(rng, outputs, per_channel=seed != 3)
    quant = x.tensor.quant
    assert quant is not None
    target = output_scale(rng, quant, scales, inputs * kernel * kernel)
    bias = bias_near(rng, quant, scales, target, outputs)
    op = Conv2d([x, constant("w", weights, scales), wide_bias(bias)], attributes)
    typed(op, target)
    table = options(
        "Conv2DOptions",
        padding=PADDING[padding],
        strideH=stride,
        strideW=stride,
        dilationHFactor=dilation,
        dilationWFactor=dilation,
        fusedActivationFunction=enum,
    )
    tensors = layer_tensors(x, to_nhwc(weights), scales, bias, 0, op.result)
    node = Node(code=CODE.CONV_2D, inputs=[0, 1, 2], outputs=[3], options=table)
    one_op(op, node, {"x": codes(rng, *x.tensor.dims)}, tensors, emulate=seed == 1)


@SEEDS
@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise_conv2d(case: tuple[int, int, int, int, int, str], seed: int) -> None:
    channels, multiplier, kernel, stride, dilation, padding = case
    outputs = channels * multiplier
    rng = np.random.default_rng(seed)
    attributes = {
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
        "auto_pad": AUTO_PAD[padding],
        "group": channels,
    }
    x = activation("x", (2, channels, 14, 13), scale(rng, 1e-5, 1e-3))
    weights = weights_of(rng, outputs, 1, kernel, kernel)
    scales = channel_scales(rng, outputs, per_channel=True)
    quant = x.tensor.quant
    assert quant is not None
    target = output_scale(rng, quant, scales, kernel * kernel)
    bias = bias_near(rng, quant, scales, target, outputs)
    op = Conv2d([x, constant("w", weights, scales), wide_bias(bias)], attributes)
    typed(op, target)
    table = options(
        "DepthwiseConv2DOptions",
        padding=PADDING[padding],
        strideH=stride,
        strideW=stride,
        dilationHFactor=dilation,
        dilationWFactor=dilation,
        depthMultiplier=multiplier,
    )
    ihwo = np.transpose(weights, (1, 2, 3, 0))
    tensors = layer_tensors(x, ihwo, scales, bias, 3, op.result)
    node = Node(code=CODE.DEPTHWISE_CONV_2D, inputs=[0, 1, 2], outputs=[3], options=table)
    one_op(op, node, {"x": codes(rng, *x.tensor.dims)}, tensors, emulate=seed == 0)


@SEEDS
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", [(150, 70, 33), (40, 1, 130), (3, 4000, 5)])
def test_dense(shape: tuple[int, int, int], per_channel: bool, seed: int) -> None:
    rows, depth, outputs = shape
    rng = np.random.default_rng(seed)
    x = activation("x", (rows, depth), scale(rng, 1e-5, 1e-3))
    weights = weights_of(rng, outputs, depth)
    scales = channel_scales(rng, outputs, per_channel)
    quant = x.tensor.quant
    assert quant is not None
    target = output_scale(rng, quant, scales, depth)
    bias = bias_near(rng, quant, scales, target, outputs)
    op = typed(Dense([x, constant("w", weights, scales), wide_bias(bias)]), target)
    tensors = layer_tensors(x, weights, scales, bias, 0, op.result)
    node = Node(code=CODE.FULLY_CONNECTED, inputs=[0, 1, 2], outputs=[3],
                options=options("FullyConnectedOptions"))  # fmt: skip
    one_op(op, node, {"x": codes(rng, rows, depth)}, tensors, emulate=seed == 0)


@pytest.mark.parametrize("seed", range(6))
def test_add(seed: int) -> None:
    rng = np.random.default_rng(seed)
    enum, clamp = list(ACTIVATIONS.values())[seed % 3]
    shape = (1, 16, 40, 50)
    qa, qb, qy = (scale(rng, 1e-5, 1e-3) for _ in range(3))
    values = [activation("a", shape, qa), activation("b", shape, qb)]
    op = typed(Add(values, {"clamp": clamp}), qy)
    tensors = [tensor(values[0]), tensor(values[1]), tensor(op.result)]
    # Scales that are powers of two have a kernel of their own unless this says no.
    table = options("AddOptions", fusedActivationFunction=enum, potScaleInt16=False)
    node = Node(code=CODE.ADD, inputs=[0, 1], outputs=[2], options=table)
    given = {"a": codes(rng, *shape), "b": codes(rng, *shape)}
    one_op(op, node, given, tensors, emulate=seed == 0)


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("seed", range(3))
def test_pools(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cls = AvgPool2d if name == "AVERAGE_POOL_2D" else MaxPool2d
    kernel, stride, padding = [((3, 2), 2, "SAME"), ((5, 5), 1, "SAME"), ((2, 3), 3, "VALID")][seed]
    x = activation("x", (2, 19, 13, 11), scale(rng, 1e-5, 1e-3))
    quant = x.tensor.quant
    assert quant is not None
    attributes = {"kernel_shape": kernel, "strides": (stride, stride),
                  "auto_pad": AUTO_PAD[padding]}  # fmt: skip
    op = typed(cls([x], attributes), quant)
    table = options(
        "Pool2DOptions",
        padding=PADDING[padding],
        strideH=stride,
        strideW=stride,
        filterHeight=kernel[0],
        filterWidth=kernel[1],
    )
    node = Node(code=getattr(CODE, name), inputs=[0], outputs=[1], options=table)
    one_op(op, node, {"x": codes(rng, *x.tensor.dims)}, [tensor(x), tensor(op.result)])


@pytest.mark.parametrize("seed", range(6))
def test_softmax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = (2, 3, 10, 100, 1000, 4000)[seed]
    spread = (300, 3000, 20000)[seed % 3]
    x = activation("x", (12, terms), scale(rng, 2e-5, 2e-3))
    op = Softmax([x])
    given = rng.normal(0, spread, (12, terms)).clip(-32768, 32767).astype(np.int16)
    given[0] = 7
    given[1] = np.where(np.arange(terms) == 1, 32767, -32768)
    node = Node(code=CODE.SOFTMAX, inputs=[0], outputs=[1],
                options=options("SoftmaxOptions", beta=1.0))  # fmt: skip
    one_op(op, node, {"x": given}, [tensor(x), tensor(op.result)])


@pytest.mark.parametrize("seed", range(12))
def test_requantisation_of_every_code(seed: int) -> None:
    """RELU divides scales in float32; QUANTIZE, to int8 too, in float64.

    Our clip without bounds divides as the RELU family does: where both quotients are exact, it is
    QUANTIZE as well.
    """
    rng = np.random.default_rng(seed)
    source, target = scale(rng, 1e-5, 1e-3), scale(rng, 1e-5, 1e-3)
    x = activation("x", EVERY_CODE.shape, source)
    relu = typed(Relu([x]), target)
    node = Node(code=CODE.RELU, inputs=[0], outputs=[1])
    one_op(relu, node, {"x": EVERY_CODE}, [tensor(x), tensor(relu.result)], emulate=seed < 2)
    halves = Quant.per_tensor(source.scale * 2.0 ** int(rng.integers(-3, 4)), 0)
    for dtype, quant in ((DType.I16, halves), (DType.I8, halves)):
        x = activation("x", EVERY_CODE.shape, source)
        clip = Clip([x], result_types=[x.tensor.with_quant(dtype, quant)])
        node = Node(code=CODE.QUANTIZE, inputs=[0], outputs=[1])
        one_op(clip, node, {"x": EVERY_CODE}, [tensor(x), tensor(clip.result)], emulate=seed < 2)


def test_quantize_and_dequantize() -> None:
    rng = np.random.default_rng(0)
    quant = scale(rng, 1e-5, 1e-3)
    x = Value("x", TensorType((1, 16, 50, 50)))
    op = Quantize([x], result_types=[x.tensor.with_quant(DType.I16, quant)])
    steps = rng.uniform(-40000, 40000, x.tensor.dims)
    steps = np.where(rng.integers(0, 2, steps.shape) == 0, np.floor(steps) + 0.5, steps)
    given = (steps * quant.scale).astype(np.float32)
    node = Node(code=CODE.QUANTIZE, inputs=[0], outputs=[1])
    one_op(op, node, {"x": given}, [tensor(x), tensor(op.result)])
    stored = activation("x", EVERY_CODE.shape, quant)
    back = Dequantize([stored])
    node = Node(code=CODE.DEQUANTIZE, inputs=[0], outputs=[1])
    one_op(back, node, {"x": EVERY_CODE}, [tensor(stored), tensor(back.result)])


def test_conv1d_is_conv2d_of_one_row() -> None:
    rng = np.random.default_rng(1)
    x = activation("x", (2, 7, 30), scale(rng, 1e-5, 1e-3))
    weights, scales = weights_of(rng, 9, 7, 5), channel_scales(rng, 9, per_channel=True)
    bias = rng.integers(-(1 << 30), 1 << 30, 9)
    quant = x.tensor.quant
    assert quant is not None
    line = Conv1d([x, constant("w", weights, scales), wide_bias(bias)], {"auto_pad": "SAME_UPPER"})
    typed(line, output_scale(rng, quant, scales, 35))
    plane = activation("x", (2, 7, 1, 30), quant)
    square = constant("w", weights[:, :, None], scales)
    op: Any = Conv2d([plane, square, wide_bias(bias)], {"auto_pad": "SAME_UPPER"})
    op.result.type = op.result.tensor.with_quant(DType.I16, line.result.tensor.quant)
    given = codes(rng, 2, 7, 30)
    (one,) = line.reference([given, weights, bias], Rounding.DOUBLE)
    (other,) = op.reference([given[:, :, None], weights[:, :, None], bias], Rounding.DOUBLE)
    assert np.array_equal(one, other[:, :, 0])
