"""Rounding double against LiteRT's reference kernels, code by code.

Both sides of ours are compared: the integer reference and the emulated firmware. Every case is
random from its seed, extremes of codes and zero points included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import (
    Add,
    AvgPool2d,
    Clip,
    Concat,
    Conv2d,
    Dense,
    Dequantize,
    GlobalAvgPool,
    MaxPool2d,
    Quantize,
    Relu,
    Softmax,
)
from tests.peers.emulated import activation, bias_of, both, codes, constant, parameters
from tests.peers.tflite_models import (
    ACTIVATIONS,
    Node,
    Tensor,
    options,
    run,
    schema,
    write,
)

CODE = schema.BuiltinOperator
FUSED = pytest.mark.parametrize("fused", list(ACTIVATIONS))
SEEDS = pytest.mark.parametrize("seed", range(4))
PADDING = {"SAME": schema.Padding.SAME, "VALID": schema.Padding.VALID}
AUTO_PAD = {"SAME": "SAME_UPPER", "VALID": "VALID"}
"""TFLite's padding in ONNX's words."""


def to_nhwc(array: Array) -> Array:
    return np.moveaxis(array, 1, -1) if array.ndim == 4 else array


def to_nchw(array: Array) -> Array:
    return np.moveaxis(array, -1, 1) if array.ndim == 4 else array


def tensor(value: Value, **fields: Any) -> Tensor:
    """Return the TFLite tensor of an activation of ours."""
    found = value.tensor
    shape = to_nhwc(np.empty(found.dims, np.int8)).shape
    return Tensor(**{"shape": shape, "dtype": found.numpy.type, "quant": found.quant, **fields})


def agree(
    op: Op, inputs: dict[str, Array], theirs: Array, *before: Op, emulate: bool = True
) -> None:
    """Check that reference and emulated firmware give LiteRT's codes."""
    for ours in both(op, inputs, Rounding.DOUBLE, *before, emulate=emulate):
        wrong = np.count_nonzero(ours != theirs)
        assert wrong == 0, f"{wrong} of {theirs.size} differ"


def one_op(
    op: Op,
    node: Node,
    inputs: dict[str, Array],
    tensors: Sequence[Tensor],
    *,
    emulate: bool = True,
) -> None:
    """Compare *op* with the model of one *node* whose first tensors are *inputs*."""
    given = list(range(len(inputs)))
    model = write(tensors, [node], given, node.outputs)
    (theirs,) = run(model, [to_nhwc(array) for array in inputs.values()])
    agree(op, inputs, to_nchw(theirs), emulate=emulate)


# --- convolutions and dense layers --------------------------------------------------------------

CONVS: list[tuple[int, int, int, int, int, str]] = [
    # input channels, output channels, kernel, stride, dilation, padding
    (3, 24, 3, 2, 1, "SAME"),
    (17, 19, 1, 1, 1, "VALID"),
    (8, 16, 3, 1, 2, "SAME"),
    (5, 20, 4, 3, 1, "SAME"),
    (6, 16, 3, 2, 1, "VALID"),
]


def channel_scales(rng: np.random.Generator, channels: int, per_channel: bool) -> Quant:
    """Return weight scales, per output channel (axis 0) or for the whole tensor."""
    count = channels if per_channel else 1
    scales = np.exp(rng.uniform(np.log(2e-4), np.log(2e-2), count)).astype(np.float32)
    axis = 0 if per_channel else None
    return Quant(tuple(map(float, scales)), (0,) * count, axis)


def bias_tensor(bias: Array, x: Quant, weights: Quant) -> Tensor:
    scales = tuple(float(np.float32(x.scale) * np.float32(s)) for s in weights.scales)
    quant = Quant(scales, (0,) * len(scales), 0)
    return Tensor(shape=bias.shape, dtype=np.int32, quant=quant, data=bias)


@SEEDS
@FUSED
@pytest.mark.parametrize("case", CONVS)
def test_conv2d(case: tuple[int, int, int, int, int, str], fused: str, seed: int) -> None:
    compare_conv2d(case, fused, seed, (18, 17))


def test_c27_a_convolution_of_80_by_80_by_8_equals_the_reference_kernels() -> None:
    compare_conv2d((8, 8, 3, 1, 1, "SAME"), "none", 0, (80, 80))


def compare_conv2d(
    case: tuple[int, int, int, int, int, str], fused: str, seed: int, size: tuple[int, int]
) -> None:
    """Hold reference and emulator against LiteRT's reference kernel, every output."""
    inputs, outputs, kernel, stride, dilation, padding = case
    rng = np.random.default_rng(seed)
    enum, clamp = ACTIVATIONS[fused]
    attributes = {
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
        "auto_pad": AUTO_PAD[padding],
        "clamp": clamp,
    }
    x = activation("x", (1, inputs, *size), parameters(rng, 0.01, 0.2))
    weights = codes(rng, (outputs, inputs, kernel, kernel))
    scales = channel_scales(rng, outputs, per_channel=seed != 3)
    bias = rng.integers(-20000, 20000, outputs).astype(np.int32)
    op = Conv2d([x, constant("w", weights, scales), bias_of(bias)], attributes)
    op.result.type = op.result.tensor.with_quant(x.tensor.dtype, parameters(rng, 0.02, 1.0))
    quant = x.tensor.quant
    assert quant is not None
    table = options(
        "Conv2DOptions",
        padding=PADDING[padding],
        strideH=stride,
        strideW=stride,
        dilationHFactor=dilation,
        dilationWFactor=dilation,
        fusedActivationFunction=enum,
    )
    ohwi = to_nhwc(weights)
    tensors = [
        tensor(x),
        Tensor(shape=ohwi.shape, quant=scales, data=ohwi),
        bias_tensor(bias, quant, scales),
        tensor(op.result),
    ]
    node = Node(code=CODE.CONV_2D, inputs=[0, 1, 2], outputs=[3], options=table)
    one_op(op, node, {"x": codes(rng, x.tensor.dims)}, tensors)


DEPTHWISE: list[tuple[int, int, int, int, int, str]] = [
    # channels, multiplier, kernel, stride, dilation, padding
    (24, 1, 3, 1, 1, "SAME"),
    (35, 1, 3, 2, 1, "SAME"),
    (16, 1, 3, 1, 2, "VALID"),
    (6, 3, 5, 1, 1, "VALID"),
]


@SEEDS
@FUSED
@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise_conv2d(case: tuple[int, int, int, int, int, str], fused: str, seed: int) -> None:
    channels, multiplier, kernel, stride, dilation, padding = case
    outputs = channels * multiplier
    rng = np.random.default_rng(seed)
    enum, clamp = ACTIVATIONS[fused]
    attributes = {
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
        "auto_pad": AUTO_PAD[padding],
        "group": channels,
        "clamp": clamp,
    }
    x = activation("x", (2, channels, 14, 13), parameters(rng, 0.01, 0.2))
    weights = codes(rng, (outputs, 1, kernel, kernel))
    scales = channel_scales(rng, outputs, per_channel=True)
    bias = rng.integers(-20000, 20000, outputs).astype(np.int32)
    op = Conv2d([x, constant("w", weights, scales), bias_of(bias)], attributes)
    op.result.type = op.result.tensor.with_quant(x.tensor.dtype, parameters(rng, 0.01, 0.5))
    quant = x.tensor.quant
    assert quant is not None
    table = options(
        "DepthwiseConv2DOptions",
        padding=PADDING[padding],
        strideH=stride,
        strideW=stride,
        dilationHFactor=dilation,
        dilationWFactor=dilation,
        depthMultiplier=multiplier,
        fusedActivationFunction=enum,
    )
    ihwo = np.transpose(weights, (1, 2, 3, 0))
    by_last = Quant(scales.scales, scales.zero_points, 3)
    tensors = [
        tensor(x),
        Tensor(shape=ihwo.shape, quant=by_last, data=ihwo),
        bias_tensor(bias, quant, scales),
        tensor(op.result),
    ]
    node = Node(code=CODE.DEPTHWISE_CONV_2D, inputs=[0, 1, 2], outputs=[3], options=table)
    one_op(op, node, {"x": codes(rng, x.tensor.dims)}, tensors)


@SEEDS
@FUSED
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", [(150, 70, 33), (40, 1, 130), (1, 300, 1)])
def test_dense(shape: tuple[int, int, int], per_channel: bool, fused: str, seed: int) -> None:
    rows, depth, outputs = shape
    rng = np.random.default_rng(seed)
    enum, clamp = ACTIVATIONS[fused]
    x = activation("x", (rows, depth), parameters(rng, 0.01, 0.2))
    weights = codes(rng, (outputs, depth))
    scales = channel_scales(rng, outputs, per_channel)
    bias = rng.integers(-20000, 20000, outputs).astype(np.int32)
    op = Dense([x, constant("w", weights, scales), bias_of(bias)], {"clamp": clamp})
    op.result.type = op.result.tensor.with_quant(x.tensor.dtype, parameters(rng, 0.02, 1.0))
    quant = x.tensor.quant
    assert quant is not None
    tensors = [
        tensor(x),
        Tensor(shape=weights.shape, quant=scales, data=weights),
        bias_tensor(bias, quant, scales),
        tensor(op.result),
    ]
    table = options("FullyConnectedOptions", fusedActivationFunction=enum)
    node = Node(code=CODE.FULLY_CONNECTED, inputs=[0, 1, 2], outputs=[3], options=table)
    one_op(op, node, {"x": codes(rng, x.tensor.dims)}, tensors)


# --- element by element -------------------------------------------------------------------------

EVERY_PAIR = (
    np.repeat(np.arange(-128, 128), 256).astype(np.int8).reshape(1, 16, 64, 64),
    np.tile(np.arange(-128, 128), 256).astype(np.int8).reshape(1, 16, 64, 64),
)


@FUSED
@pytest.mark.parametrize("seed", range(10))
def test_add_of_every_pair_of_codes(fused: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    enum, clamp = ACTIVATIONS[fused]
    a, b = EVERY_PAIR
    qa, qb, qy = (parameters(rng, 0.003, 0.3) for _ in range(3))
    values = [activation("a", a.shape, qa), activation("b", b.shape, qb)]
    op = Add(values, {"clamp": clamp})
    op.result.type = op.result.tensor.with_quant(values[0].tensor.dtype, qy)
    tensors = [tensor(values[0]), tensor(values[1]), tensor(op.result)]
    table = options("AddOptions", fusedActivationFunction=enum)
    node = Node(code=CODE.ADD, inputs=[0, 1], outputs=[2], options=table)
    one_op(op, node, {"a": a, "b": b}, tensors)


RELUS: list[tuple[str, type[Op], dict[str, Any]]] = [
    ("RELU", Relu, {}),
    ("RELU6", Clip, {"min": 0.0, "max": 6.0}),
    ("RELU_N1_TO_1", Clip, {"min": -1.0, "max": 1.0}),
]
EVERY_CODE = np.arange(-128, 128).astype(np.int8).reshape(1, 256)


@pytest.mark.parametrize(("name", "cls", "attributes"), RELUS)
def test_standalone_relus(name: str, cls: type[Op], attributes: dict[str, Any]) -> None:
    for seed in range(130):
        rng = np.random.default_rng(seed)
        x = activation("x", (1, 256), parameters(rng, 0.003, 0.3))
        op = cls([x], attributes)
        quant = parameters(rng, 0.003, 0.3) if seed % 4 else x.tensor.quant
        op.result.type = op.result.tensor.with_quant(x.tensor.dtype, quant)
        node = Node(code=getattr(CODE, name), inputs=[0], outputs=[1])
        ends = [tensor(x), tensor(op.result)]
        one_op(op, node, {"x": EVERY_CODE}, ends, emulate=seed % 8 == 0)


def test_relu_divides_the_scales_in_float32_and_requantisation_in_float64() -> None:
    """Scales whose quotients round to different codes; a random pair shows no difference."""
    for x_scale, y_scale in (
        (0.10331118851900101, 0.3637966513633728),
        (0.04467112943530083, 0.28257086873054504),
        (0.020554833114147186, 0.03227300941944122),
    ):
        quant = Quant.per_tensor(y_scale, -128)
        for name in ("RELU", "QUANTIZE"):
            x = activation("x", (1, 256), Quant.per_tensor(x_scale, -128))
            op = Relu([x]) if name == "RELU" else Concat([x], {"axis": 1})
            op.result.type = op.result.tensor.with_quant(x.tensor.dtype, quant)
            node = Node(code=getattr(CODE, name), inputs=[0], outputs=[1])
            one_op(op, node, {"x": EVERY_CODE}, [tensor(x), tensor(op.result)])


def test_quantize() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        quant = parameters(rng, 0.003, 0.3)
        x = Value("x", TensorType((1, 16, 50, 50)))
        op = Quantize([x], {"scale": quant.scale, "zero_point": quant.zero_point})
        steps = rng.uniform(-300, 300, x.tensor.dims)
        halves = rng.integers(0, 2, x.tensor.dims) == 0
        steps = np.where(halves, np.floor(steps) + 0.5, steps)
        given = (steps * quant.scale).astype(np.float32)
        # LiteRT converts to int32 before it clamps: 2^31 steps and more are undefined there.
        given.flat[:4] = [0.0, -0.0, 2.0**30 * quant.scale, -(2.0**30) * quant.scale]
        node = Node(code=CODE.QUANTIZE, inputs=[0], outputs=[1])
        one_op(op, node, {"x": given}, [tensor(x), tensor(op.result)])


def test_dequantize() -> None:
    for seed in range(400):
        x = activation("x", (1, 256), parameters(np.random.default_rng(seed), 1e-6, 1e6))
        op = Dequantize([x])
        node = Node(code=CODE.DEQUANTIZE, inputs=[0], outputs=[1])
        ends = [tensor(x), tensor(op.result)]
        one_op(op, node, {"x": EVERY_CODE}, ends, emulate=seed % 16 == 0)


def test_dense_rounds_ties_away_from_zero() -> None:
    """Scales of powers of two make every second sum a tie, of both signs."""
    x = activation("x", (256, 1), Quant.per_tensor(0.5, 0))
    weights, scales = np.array([[1], [-1], [3], [-3]], np.int8), Quant.per_tensor(0.25, 0)
    op = Dense([x, constant("w", weights, scales), bias_of(np.zeros(4, np.int32))])
    op.result.type = op.result.tensor.with_quant(x.tensor.dtype, Quant.per_tensor(0.25, 1))
    tensors = [
        tensor(x),
        Tensor(shape=weights.shape, quant=scales, data=weights),
        bias_tensor(np.zeros(4, np.int32), Quant.per_tensor(0.5, 0), scales),
        tensor(op.result),
    ]
    table = options("FullyConnectedOptions")
    node = Node(code=CODE.FULLY_CONNECTED, inputs=[0, 1, 2], outputs=[3], options=table)
    one_op(op, node, {"x": EVERY_CODE.reshape(256, 1)}, tensors)


def test_a_convolution_and_an_add_keep_their_bits_when_fused() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        quants = [parameters(rng, 0.02, 0.2) for _ in range(4)]
        x = activation("x", (1, 16, 20, 20), quants[0])
        other = activation("r", (1, 40, 20, 20), quants[1])
        weights = codes(rng, (40, 16, 1, 1))
        scales = channel_scales(rng, 40, per_channel=True)
        bias = rng.integers(-9000, 9000, 40).astype(np.int32)
        conv = Conv2d([x, constant("w", weights, scales), bias_of(bias)])
        conv.result.type = conv.result.tensor.with_quant(x.tensor.dtype, quants[2])
        add = Add([other, conv.result], {"clamp": (0.0, float("inf"))})
        add.result.type = add.result.tensor.with_quant(x.tensor.dtype, quants[3])
        ohwi = to_nhwc(weights)
        tensors = [
            tensor(x),
            tensor(other),
            Tensor(shape=ohwi.shape, quant=scales, data=ohwi),
            bias_tensor(bias, quants[0], scales),
            tensor(conv.result),
            tensor(add.result),
        ]
        one = options("Conv2DOptions", padding=PADDING["VALID"], strideH=1, strideW=1)
        relu = options("AddOptions", fusedActivationFunction=ACTIVATIONS["relu"][0])
        nodes = [
            Node(code=CODE.CONV_2D, inputs=[0, 2, 3], outputs=[4], options=one),
            Node(code=CODE.ADD, inputs=[1, 4], outputs=[5], options=relu),
        ]
        given = {"x": codes(rng, x.tensor.dims), "r": codes(rng, other.tensor.dims)}
        model = write(tensors, nodes, [0, 1], [5])
        (theirs,) = run(model, [to_nhwc(array) for array in given.values()])
        agree(add, given, to_nchw(theirs), conv)


@SEEDS
def test_softmax(seed: int) -> None:
    for classes, scale in ((10, 0.1), (2, 1.5), (100, 0.004), (511, 0.0005), (7, 30.0)):
        rng = np.random.default_rng(seed)
        scale = float(np.float32(scale * rng.uniform(0.5, 1.0)))
        x = activation("x", (6000 // classes, classes), Quant.per_tensor(scale, -7))
        op = Softmax([x])
        op.result.type = op.result.tensor.with_quant(
            x.tensor.dtype, Quant.per_tensor(1 / 256, -128)
        )
        given = codes(rng, x.tensor.dims)
        given[0], given[1] = 127, -128
        node = Node(
            code=CODE.SOFTMAX,
            inputs=[0],
            outputs=[1],
            options=options("SoftmaxOptions", beta=1.0),
        )
        one_op(op, node, {"x": given}, [tensor(x), tensor(op.result)])


# --- windows ------------------------------------------------------------------------------------

POOLS: list[tuple[int, int, str]] = [
    # kernel, stride, padding
    (2, 2, "VALID"),
    (3, 2, "SAME"),
    (3, 1, "SAME"),
    (5, 3, "VALID"),
]


@SEEDS
@pytest.mark.parametrize("fused", ["none", "relu"])
@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize(("name", "cls"), [("AVERAGE", AvgPool2d), ("MAX", MaxPool2d)])
def test_pools(name: str, cls: type[Op], case: tuple[int, int, str], fused: str, seed: int) -> None:
    kernel, stride, padding = case
    rng = np.random.default_rng(seed)
    quant = parameters(rng, 0.01, 0.2)
    x = activation("x", (1, 20, 27, 26), quant)
    attributes = {
        "kernel_shape": (kernel, kernel),
        "strides": (stride, stride),
        "auto_pad": AUTO_PAD[padding],
    }
    pool = cls([x], attributes)
    pool.result.type = pool.result.tensor.with_quant(x.tensor.dtype, quant)
    enum, clamp = ACTIVATIONS[fused]
    table = options(
        "Pool2DOptions",
        padding=PADDING[padding],
        strideH=stride,
        strideW=stride,
        filterHeight=kernel,
        filterWidth=kernel,
        fusedActivationFunction=enum,
    )
    code = getattr(CODE, f"{name}_POOL_2D")
    node = Node(code=code, inputs=[0], outputs=[1], options=table)
    given = codes(rng, x.tensor.dims)
    model = write([tensor(x), tensor(pool.result)], [node], [0], [1])
    (theirs,) = run(model, [to_nhwc(given)])
    if clamp is None:
        agree(pool, {"x": given}, to_nchw(theirs))
        return
    relu = Relu([pool.result])
    relu.result.type = pool.result.type
    agree(relu, {"x": given}, to_nchw(theirs), pool)


@SEEDS
@pytest.mark.parametrize("size", [(1, 1), (4, 4), (7, 7), (5, 9)])
def test_global_average_pool(size: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    quant = parameters(rng, 0.01, 0.2)
    x = activation("x", (9, 900, *size), quant)
    op = GlobalAvgPool([x])
    op.result.type = op.result.tensor.with_quant(x.tensor.dtype, quant)
    table = options(
        "Pool2DOptions",
        padding=PADDING["VALID"],
        strideH=1,
        strideW=1,
        filterHeight=size[0],
        filterWidth=size[1],
    )
    node = Node(code=CODE.AVERAGE_POOL_2D, inputs=[0], outputs=[1], options=table)
    one_op(op, node, {"x": codes(rng, x.tensor.dims)}, [tensor(x), tensor(op.result)])


# --- joining ------------------------------------------------------------------------------------


def test_concat_of_equal_parameters() -> None:
    rng = np.random.default_rng(1)
    quant = parameters(rng, 0.01, 0.2)
    values = [activation(n, (1, c, 40, 40), quant) for n, c in (("a", 16), ("b", 19), ("c", 30))]
    op = Concat(values, {"axis": 1})
    op.result.type = op.result.tensor.with_quant(values[0].tensor.dtype, quant)
    table = options("ConcatenationOptions", axis=3)
    node = Node(code=CODE.CONCATENATION, inputs=[0, 1, 2], outputs=[3], options=table)
    given = {v.name: codes(rng, v.tensor.dims) for v in values}
    one_op(op, node, given, [*map(tensor, values), tensor(op.result)])


def test_concat_of_unequal_parameters_is_a_requantisation_before_it() -> None:
    for seed in range(250):
        rng = np.random.default_rng(seed)
        qa, qb = parameters(rng, 0.003, 0.3), parameters(rng, 0.003, 0.3)
        values = [activation("a", (1, 256), qa), activation("b", (1, 256), qb)]
        op = Concat(values, {"axis": 1})
        op.result.type = op.result.tensor.with_quant(values[0].tensor.dtype, qb)
        tensors = [tensor(values[0]), tensor(values[1]), tensor(op.result)]
        scaled = tensor(values[0], quant=qb)
        table = options("ConcatenationOptions", axis=1)
        nodes = [
            Node(code=CODE.QUANTIZE, inputs=[0], outputs=[3]),
            Node(code=CODE.CONCATENATION, inputs=[3, 1], outputs=[2], options=table),
        ]
        (theirs,) = run(write([*tensors, scaled], nodes, [0, 1], [2]), [EVERY_CODE, EVERY_CODE])
        agree(op, {"a": EVERY_CODE, "b": EVERY_CODE}, theirs, emulate=seed % 8 == 0)
