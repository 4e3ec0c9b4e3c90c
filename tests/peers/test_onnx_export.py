"""Exported graphs in ONNX Runtime: they load, and the trained network answers as well there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.frontend.text import parse_file, parse_text
from npuc.ir.core import Graph
from tools.networks import NETWORKS
from tools.onnx_export import to_onnx

MODELS = Path(__file__).parents[2] / "models"
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def _session(graph: Graph) -> Any:
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def test_the_trained_digits_are_right_in_onnx_runtime_as_often_as_the_readme_says() -> None:
    session = _session(parse_file(MODELS / "digits.txt"))
    with np.load(MODELS / "digits_test.npz") as test:
        images, labels = test["image"], test["labels"]
    found = [int(session.run(None, {"image": image[None]})[0].argmax()) for image in images]
    assert int((np.array(found) == labels).sum()) == 357


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_activations_of_random_networks_stay_in_range(name: str) -> None:
    graph = parse_file(MODELS / f"{name}.txt")
    with np.load(MODELS / str(graph.attributes["calibration"])) as calibration:
        feed = {key: calibration[key][:1] for key in calibration.files}
    model = to_onnx(graph)
    names = ("add", "dense", "layer_norm", "matmul", "relu", "relu6")
    inner = [v for op in graph.ops for v in op.results if op.NAME in names]
    del model.graph.output[:]
    model.graph.output.extend([onnx.ValueInfoProto(name=value.name) for value in inner])
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for value in session.run(None, feed):
        assert 0.05 < value.std() < 20
        assert np.abs(value).max() < 100


def test_attributes_that_onnx_takes_as_operands_arrive() -> None:
    graph = parse_text(
        "graph @g(%x: tensor<1x4x2x2xf32>) {\n"
        "  %c = clip(%x) {max = 6.0}\n"
        "  %r = reshape(%c) {shape = [1, 4, 4]}\n"
        "  %p, %q = split(%r) {axis = 1, split = [1, 3]}\n"
        "  return %p, %q\n"
        "}\n"
    )
    x = np.arange(-8, 8, dtype=np.float32).reshape(1, 4, 2, 2)
    p, q = _session(graph).run(None, {"x": x})
    np.testing.assert_array_equal(p, x.reshape(1, 4, 4)[:, :1])
    np.testing.assert_array_equal(q, np.minimum(x, 6).reshape(1, 4, 4)[:, 1:])
