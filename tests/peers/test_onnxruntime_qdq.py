"""Rounding even against ONNX Runtime's execution of QDQ models with int8 activations.

A default session fuses DequantizeLinear, op and QuantizeLinear into its quantised kernels. Both
the integer reference and the emulated firmware are compared. The bits are those of an x86 CPU with
AVX2: docs/numerics.md says where others differ.
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

onnx = pytest.importorskip("onnx", reason="the peers extra is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the peers extra is not installed")

EVERY_CODE = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
EVERY_PAIR = (
    np.repeat(np.arange(-128, 128), 256).astype(np.int8).reshape(1, 16, 64, 64),
    np.tile(np.arange(-128, 128), 256).astype(np.int8).reshape(1, 16, 64, 64),
)


class Model:
    """A QDQ model under construction: nodes, constants and typed ends."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, values: Any) -> str:
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def scales(self, name: str, quant: Quant, dtype: type[np.generic] = np.int8) -> list[str]:
        """Return the names of constants that hold the parameters."""
        whole = quant.axis is None
        scale = np.float32(quant.scale) if whole else np.array(quant.scales, np.float32)
        zero = np.array(quant.zero_point if whole else quant.zero_points, dtype)
        return [self.constant(f"{name}_scale", scale), self.constant(f"{name}_zero", zero)]

    def dequantized(self, name: str, quant: Quant, dtype: type[np.generic] = np.int8) -> str:
        axis = {} if quant.axis is None else {"axis": quant.axis}
        given = [name, *self.scales(name, quant, dtype)]
        return self.node("DequantizeLinear", given, f"{name}_real", **axis)

    def run(self, inputs: dict[str, Array], result: str, *, kind: int = 0) -> Array:
        """Return what a default session computes."""
        kinds = {np.dtype(np.int8): onnx.TensorProto.INT8, np.dtype("f4"): onnx.TensorProto.FLOAT}
        ends = [
            onnx.helper.make_tensor_value_info(name, kinds[array.dtype], list(array.shape))
            for name, array in inputs.items()
        ]
        if not kind:
            real = result.endswith("_real")
            kind = onnx.TensorProto.FLOAT if real else onnx.TensorProto.INT8
        out = [onnx.helper.make_tensor_value_info(result, kind, None)]
        graph = onnx.helper.make_graph(self.nodes, "qdq", ends, out, self.constants)
        opset = onnx.helper.make_opsetid("", 21)
        model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        found: Array = session.run(None, inputs)[0]
        return found


def quant_of(value: Value) -> Quant:
    assert value.tensor.quant is not None
    return value.tensor.quant


def agree(
    op: Op,
    kind: str,
    inputs: dict[str, Array],
    *rest: float,
    emulate: bool = True,
    **attributes: Any,
) -> None:
    """Compare *op* with DequantizeLinear, *kind*, QuantizeLinear on the op's activations."""
    model = Model()
    named = [v for v in op.inputs if v.owner is None]
    real = [model.dequantized(v.name, quant_of(v)) for v in named]
    for each in rest:
        real.append(model.constant(f"c{len(real)}", np.float32(each)))
    made = model.node(kind, real, "made", **attributes)
    theirs = model.run(inputs, quantized(model, made, quant_of(op.result)))
    same(op, inputs, theirs, emulate=emulate)


def quantized(model: Model, name: str, quant: Quant) -> str:
    return model.node("QuantizeLinear", [name, *model.scales("y", quant)], "y")


def same(op: Op, inputs: dict[str, Array], theirs: Array, *, emulate: bool = True) -> None:
    for ours in both(op, inputs, Rounding.EVEN, emulate=emulate):
        wrong = np.count_nonzero(ours != theirs)
        assert wrong == 0, f"{wrong} of {theirs.size} differ"


def store(op: Op, quant: Quant) -> None:
    op.result.type = op.result.tensor.with_quant(op.inputs[0].tensor.dtype, quant)


POOLS: list[dict[str, Any]] = [
    {"kernel_shape": (2, 2), "strides": (2, 2)},
    {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1},
    {"kernel_shape": (4, 5), "strides": (3, 2), "pads": (1, 0, 2, 1)},
    {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1},
    {"kernel_shape": (2, 3), "strides": (2, 2), "auto_pad": "SAME_UPPER"},
    {"kernel_shape": (27, 26)},
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("attributes", POOLS)
def test_average_pool(attributes: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = activation("x", (2, 40, 27, 26), parameters(rng, 0.003, 0.3))
    op = AvgPool2d([x], attributes)
    store(op, quant_of(x))
    agree(op, "AveragePool", {"x": codes(rng, x.tensor.dims)}, **attributes)


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (7, 7), (8, 8), (5, 9)])
def test_global_average_pool(size: tuple[int, int]) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = activation("x", (9, 900, *size), parameters(rng, 0.003, 0.3))
        op = GlobalAvgPool([x])
        store(op, quant_of(x))
        agree(op, "GlobalAveragePool", {"x": codes(rng, x.tensor.dims)})


@pytest.mark.parametrize("seed", range(2))
def test_max_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    attributes: dict[str, Any] = {
        "kernel_shape": (3, 3),
        "strides": (2, 2),
        "pads": (1, 1, 1, 1),
    }
    x = activation("x", (2, 60, 40, 40), parameters(rng, 0.003, 0.3))
    op = MaxPool2d([x], attributes)
    store(op, quant_of(x))
    agree(op, "MaxPool", {"x": codes(rng, x.tensor.dims)}, **attributes)


@pytest.mark.parametrize("seed", range(12))
def test_add_of_every_pair_of_codes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    quants = [parameters(rng, 0.003, 0.3) for _ in range(3)]
    if seed % 3 == 0:
        # Equal scales, and twice the scale out: every second sum is a tie.
        first = quants[0].scale
        quants[1] = Quant.per_tensor(first, quants[1].zero_point)
        quants[2] = Quant.per_tensor(2 * first, quants[2].zero_point)
    names = zip("ab", quants[:2], strict=True)
    values = [activation(n, (1, 16, 64, 64), q) for n, q in names]
    op = Add(values)
    store(op, quants[2])
    agree(op, "Add", dict(zip("ab", EVERY_PAIR, strict=True)))


@pytest.mark.parametrize("first", [True, False])
def test_an_add_keeps_the_order_of_its_operands_when_fused(first: bool) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        quants = [parameters(rng, 0.02, 0.2) for _ in range(4)]
        x, other = (
            activation("x", (1, 8, 24, 24), quants[0]),
            activation("r", (1, 24) * 2, quants[1]),
        )
        other = activation("r", (1, 24, 24, 24), quants[1])
        weights, scales = codes(rng, (24, 8, 1, 1)) // 2, Quant.per_tensor(2.0**-7, 0)
        bias = np.zeros(24, np.int32)
        conv = Conv2d([x, constant("w", weights, scales), bias_of(bias)])
        store(conv, quants[2])
        pair = [conv.result, other] if first else [other, conv.result]
        add = Add(pair)
        store(add, quants[3])
        given = {"x": codes(rng, x.tensor.dims), "r": codes(rng, other.tensor.dims)}
        model = Model()
        model.constant("w", weights)
        model.constant("b", bias)
        product = Quant.per_tensor(float(np.float32(quants[0].scale) * np.float32(2.0**-7)), 0)
        made = model.node(
            "Conv",
            [
                model.dequantized("x", quants[0]),
                model.dequantized("w", scales),
                model.dequantized("b", product, np.int32),
            ],
            "made",
        )
        codes_of = model.node("QuantizeLinear", [made, *model.scales("c", quants[2])], "c")
        reals = [model.dequantized("r", quants[1])]
        reals.insert(
            0 if first else 1,
            model.node("DequantizeLinear", [codes_of, "c_scale", "c_zero"], "c_real"),
        )
        total = model.node("Add", reals, "total")
        theirs = model.run(given, quantized(model, total, quants[3]))
        for ours in both(add, given, Rounding.EVEN, conv):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["Relu", "Clip"])
def test_standalone_relus(kind: str) -> None:
    for seed in range(400):
        rng = np.random.default_rng(seed)
        x = activation("x", (1, 256), parameters(rng, 0.003, 0.3))
        op = Relu([x]) if kind == "Relu" else Clip([x], {"min": 0.0, "max": 6.0})
        store(op, parameters(rng, 0.003, 0.3) if seed % 4 else quant_of(x))
        bounds = (0.0, 6.0) if kind == "Clip" else ()
        agree(op, kind, {"x": EVERY_CODE}, *bounds, emulate=seed % 16 == 0)


def test_concat_of_unequal_parameters() -> None:
    for seed in range(250):
        rng = np.random.default_rng(seed)
        quants = [parameters(rng, 0.003, 0.3) for _ in range(3)]
        if seed % 3 == 0:
            quants[2] = Quant.per_tensor(2 * quants[0].scale, quants[2].zero_point)
        values = [activation(n, (1, 256), q) for n, q in zip("ab", quants[:2], strict=True)]
        op = Concat(values, {"axis": 1})
        store(op, quants[2])
        pair = {"a": EVERY_CODE, "b": EVERY_CODE}
        agree(op, "Concat", pair, emulate=seed % 8 == 0, axis=1)


@pytest.mark.parametrize("seed", range(2))
def test_softmax(seed: int) -> None:
    for classes, scale in ((10, 0.1), (2, 1.5), (100, 0.004), (1000, 0.2), (7, 30.0)):
        rng = np.random.default_rng(seed)
        quant = Quant.per_tensor(float(np.float32(scale * rng.uniform(0.5, 1.0))), -7)
        x = activation("x", (12000 // classes, classes), quant)
        op = Softmax([x])
        store(op, Quant.per_tensor(1 / 256, -128))
        given = codes(rng, x.tensor.dims)
        given[0], given[1] = 127, -128
        given[2], given[2, 0] = -128, 127
        agree(op, "Softmax", {"x": given})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("per_channel", [False, True])
def test_dense(per_channel: bool, seed: int) -> None:
    """Weights stay within [-64, 63]: without VNNI, ONNX Runtime's products saturate."""
    rng = np.random.default_rng(seed)
    x = activation("x", (150, 70), parameters(rng, 0.01, 0.2))
    weights = codes(rng, (60, 70)) // 2
    count = 60 if per_channel else 1
    numbers = rng.uniform(0.001, 0.02, count).astype(np.float32)
    scales = Quant(tuple(map(float, numbers)), (0,) * count, 0 if per_channel else None)
    bias = rng.integers(-5000, 5000, 60).astype(np.int32)
    op = Dense([x, constant("w", weights, scales), bias_of(bias)])
    store(op, parameters(rng, 0.02, 1.0))
    model = Model()
    model.constant("w", weights)
    model.constant("b", bias)
    products = tuple(float(np.float32(quant_of(x).scale) * n) for n in numbers)
    made = model.node(
        "Gemm",
        [
            model.dequantized("x", quant_of(x)),
            model.dequantized("w", scales),
            model.dequantized("b", Quant(products, (0,) * count, scales.axis), np.int32),
        ],
        "made",
        transB=1,
    )
    given = {"x": codes(rng, x.tensor.dims)}
    same(op, given, model.run(given, quantized(model, made, quant_of(op.result))))


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
        given.flat[:4] = [0.0, -0.0, 1e30, -1e30]
        model = Model()
        same(op, {"x": given}, model.run({"x": given}, quantized(model, "x", quant)))


def test_dequantize() -> None:
    for seed in range(400):
        quant = parameters(np.random.default_rng(seed), 1e-6, 1e6)
        op = Dequantize([activation("x", (1, 256), quant)])
        model = Model()
        theirs = model.run({"x": EVERY_CODE}, model.dequantized("x", quant))
        same(op, {"x": EVERY_CODE}, theirs, emulate=seed % 16 == 0)
