"""Rounding even against ONNX Runtime, element by element.

Weights stay within [-64, 63]: without VNNI, ONNX Runtime's u8 x s8 products saturate. Activations
are given to it as uint8, shifted by 128.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import Conv2d

onnx = pytest.importorskip("onnx", reason="the peers extra is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the peers extra is not installed")

ATTRIBUTES: list[tuple[int, int, int, dict[str, Any]]] = [
    # input channels, output channels, kernel, attributes
    (3, 16, 3, {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
    (33, 17, 1, {}),
    (8, 16, 3, {"group": 8, "pads": [1, 1, 1, 1]}),
    (6, 9, 3, {"group": 3, "dilations": [2, 2], "pads": [2, 0, 1, 2]}),
    (1, 1, 2, {"strides": [1, 2]}),
]


def _theirs(arrays: dict[str, Array], attributes: dict[str, Any]) -> Array:
    """Return the uint8 result of ONNX Runtime's QLinearConv."""
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    node = onnx.helper.make_node("QLinearConv", names, ["y"], **attributes)
    uint8 = onnx.TensorProto.UINT8
    graph = onnx.helper.make_graph(
        [node],
        "conv",
        [onnx.helper.make_tensor_value_info("x", uint8, list(arrays["x"].shape))],
        [onnx.helper.make_tensor_value_info("y", uint8, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in arrays.items() if n != "x"],
    )
    opset = onnx.helper.make_opsetid("", 21)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
    result: Array = session.run(None, {"x": arrays["x"]})[0]
    return result


def _shifted(codes: Any) -> Array:
    return np.asarray(np.asarray(codes, np.int64) + 128).astype(np.uint8)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("inputs", "outputs", "kernel", "attributes"), ATTRIBUTES)
def test_conv2d_equals_qlinearconv(
    inputs: int, outputs: int, kernel: int, attributes: dict[str, Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    depth = inputs // attributes.get("group", 1)
    x = rng.integers(-128, 128, (2, inputs, 11, 10)).astype(np.int8)
    w = rng.integers(-64, 64, (outputs, depth, kernel, kernel)).astype(np.int8)
    bias = rng.integers(-5000, 5000, (outputs,)).astype(np.int32)
    sx, sy = np.float32(rng.uniform(0.01, 0.1)), np.float32(rng.uniform(0.05, 0.3))
    sw = rng.uniform(0.001, 0.02, (outputs,)).astype(np.float32)
    zx, zy = (int(v) for v in rng.integers(-128, 128, 2))
    given: dict[str, Array] = {
        "x": _shifted(x), "sx": np.array(sx), "zx": _shifted(zx), "w": w, "sw": sw,
        "zw": np.zeros(outputs, np.int8), "sy": np.array(sy), "zy": _shifted(zy), "b": bias,
    }  # fmt: skip
    theirs = _theirs(given, attributes)
    weights = Quant(tuple(map(float, sw)), (0,) * outputs, 0)
    values = [
        Value("x", TensorType(x.shape, DType.I8, Quant.per_tensor(float(sx), zx))),
        Value("w", TensorType(w.shape, DType.I8, weights)),
        Value("b", TensorType(bias.shape, DType.I32)),
    ]
    result = TensorType(theirs.shape, DType.I8, Quant.per_tensor(float(sy), zy))
    op = Conv2d(values, attributes, result_types=[result])
    op.verify()
    (ours,) = op.reference([x, w, bias], Rounding.EVEN)
    assert np.array_equal(_shifted(ours), theirs)
