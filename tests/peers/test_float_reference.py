"""The compiler's float reference against ONNX Runtime, value by value through whole networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.frontend.text import parse_file
from npuc.ir.const import Const
from npuc.ir.core import Array, Value
from npuc.ir.interpreter import evaluate
from tools.onnx_export import to_onnx

MODELS = Path(__file__).parents[2] / "models"
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("name", ["conv_bn_relu", "digits", "resnet8"])
def test_every_value_equals_onnx_runtime_to_float32(name: str) -> None:
    graph = parse_file(MODELS / f"{name}.txt")
    with np.load(MODELS / f"{name}_calib.npz") as calibration:
        image = calibration["image"][:1]
    ours: dict[str, Array] = {}

    def keep(value: Value, array: Array) -> None:
        if value.owner is not None and not isinstance(value.owner, Const):
            ours[value.name] = array

    evaluate(graph, {"image": image}, Rounding.DOUBLE, keep)
    model = to_onnx(graph)
    del model.graph.output[:]
    model.graph.output.extend([onnx.ValueInfoProto(name=value) for value in ours])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    assert len(ours) > 3
    for name_, theirs in zip(ours, session.run(None, {"image": image}), strict=True):
        np.testing.assert_allclose(ours[name_], theirs, rtol=1e-4, atol=2e-5, err_msg=name_)
