"""Float references of ops that move elements against ONNX Runtime and onnx's own evaluator.

Traps: onnx's evaluator has no negative pads, no negative axes of resize, and takes align_corners
along scale * size, not the result's size. ONNX Runtime takes no cubic resize of rank 3. Both
compute positions with rounding, so that at a tie the nearest element may be the other one (C21).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import TensorType
from npuc.ops import (
    DepthToSpace,
    Gather,
    Pad,
    Resize,
    Slice,
    SpaceToDepth,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)
from npuc.resampling import COORDINATES, NEAREST
from tools.onnx_export import to_onnx

onnx = pytest.importorskip("onnx", reason="the peers extra is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the peers extra is not installed")
reference = pytest.importorskip("onnx.reference", reason="the peers extra is not installed")

MOVES: list[type[Op]] = [
    DepthToSpace, Gather, Pad, Slice, SpaceToDepth, Squeeze, Tile, Transpose, Unsqueeze,
]  # fmt: skip


def peers(op: Op, x: Array) -> Iterator[Array]:
    """Yield what ONNX Runtime and onnx's evaluator make of *x*."""
    graph = Graph("peer", op.inputs)
    op.result.name = "y"
    graph.append(op)
    graph.outputs = [op.result]
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
    yield session.run(None, {"x": x})[0]
    yield reference.ReferenceEvaluator(model).run(None, {"x": x})[0]


@pytest.mark.parametrize("kind", MOVES, ids=lambda kind: kind.NAME)
def test_elements_are_moved_as_both_peers_move_them(kind: type[Op]) -> None:
    for seed, example in enumerate(kind.examples()):
        x = np.random.default_rng(seed).normal(size=example.inputs[0].tensor.dims)
        x = x.astype(np.float32)
        (ours,) = example.reference([x], Rounding.DOUBLE)
        both = peers(example, x)
        assert np.array_equal(ours, next(both))
        if min(example.attributes.get("pads", (0,))) >= 0:
            assert np.array_equal(ours, next(both))


def resize(shape: tuple[int, ...], **attributes: Any) -> Resize:
    return Resize([Value("x", TensorType(shape))], attributes)


@pytest.mark.parametrize("place", sorted(COORDINATES))
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weighted_resizes_are_those_of_both_peers(mode: str, place: str) -> None:
    words: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": place}
    more: list[dict[str, Any]] = [
        {"sizes": [1, 2, 13, 4]},
        {"scales": [2.0, 3.0], "axes": [2, 3]},
        {"sizes": [9], "axes": [3]},
        {"sizes": [10, 10], "axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"},
    ]
    if mode == "cubic":
        more.append({"sizes": [3, 12], "axes": [2, 3], "exclude_outside": 1, "cubic_coeff_a": -0.5})
    x = np.random.default_rng(7).normal(size=(1, 2, 5, 6)).astype(np.float32)
    for attributes in more:
        op = resize(x.shape, **words, **attributes)
        (ours,) = op.reference([x.astype(np.float64)], Rounding.DOUBLE)
        for theirs in peers(op, x):
            np.testing.assert_allclose(ours, theirs, atol=2e-5, err_msg=str(attributes))


@pytest.mark.parametrize("place", sorted(COORDINATES))
@pytest.mark.parametrize("how", sorted(NEAREST))
def test_nearest_resizes_differ_at_ties_only(how: str, place: str) -> None:
    for extent, result in ((5, 10), (20, 6), (7, 3), (9, 14), (3, 4), (6, 1)):
        x = np.arange(extent, dtype=np.float32)
        words = {"nearest_mode": how, "coordinate_transformation_mode": place}
        op = resize((extent,), sizes=[result], **words)
        (ours,) = op.reference([x], Rounding.DOUBLE)
        (axis,) = op.along
        places, over = COORDINATES[place](axis)
        for theirs in peers(op, x):
            for at in np.flatnonzero(ours != theirs):
                doubled = Fraction(2 * places[at], over)
                assert doubled.denominator == 1
