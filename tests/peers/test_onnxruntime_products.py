"""Rounding even of products, reductions and norms against ONNX Runtime's QDQ models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.ir.core import Array, Op
from npuc.ir.types import Quant
from npuc.ops import ArgMax, LogSoftmax, MatMul, ReduceMax, ReduceMean, ReduceSum
from tests.peers.emulated import activation, both, codes, parameters
from tests.peers.test_onnxruntime_qdq import Model, agree, onnx, quant_of, quantized, store


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((40, 70), (70, 33)),
        ((2, 30, 70), (2, 70, 33)),
        ((2, 3, 19, 40), (2, 3, 40, 21)),
        ((2, 1, 9, 5), (3, 5, 8)),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    quants = [parameters(rng, 0.01, 0.2) for _ in range(2)]
    values = [activation(n, s, q) for n, s, q in zip("ab", (a, b), quants, strict=True)]
    op = MatMul(values)
    spread = quants[0].scale * quants[1].scale * 60 * a[-1] ** 0.5
    store(op, parameters(rng, spread / 4, spread * 4))
    inputs = {v.name: codes(rng, v.tensor.dims) for v in values}
    agree(op, "MatMul", inputs, emulate=seed == 0)


REDUCTIONS: list[tuple[str, type[Op]]] = [
    ("ReduceMean", ReduceMean),
    ("ReduceSum", ReduceSum),
    ("ReduceMax", ReduceMax),
]


def their_reduction(kind: str, op: Op, codes_of: Array, axes: Sequence[int]) -> Array:
    """Return what ONNX Runtime makes of DequantizeLinear, the reduction, QuantizeLinear."""
    model = Model()
    real = model.dequantized("x", quant_of(op.inputs[0]))
    made = model.node(kind, [real, model.constant("axes", np.array(axes, np.int64))], "made")
    return model.run({"x": codes_of}, quantized(model, made, quant_of(op.result)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("axes", [(2, 3), (1,), (0, 3)])
@pytest.mark.parametrize(("kind", "cls"), REDUCTIONS)
def test_reductions_differ_by_one_where_float32_sums_do(
    kind: str, cls: type[Op], axes: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (3, 23, 11, 18)
    x = activation("x", shape, parameters(rng, 0.01, 0.2))
    op = cls([x], {"axes": list(axes)})
    target = parameters(rng, 0.003, 0.1)
    count = float(np.prod([shape[axis] for axis in axes]))
    if kind == "ReduceSum":
        target = Quant.per_tensor(float(np.float32(target.scale * count)), target.zero_point)
    store(op, quant_of(x) if kind == "ReduceMax" else target)
    inputs = {"x": codes(rng, shape)}
    theirs = their_reduction(kind, op, inputs["x"], axes).astype(int)
    for ours in both(op, inputs, Rounding.EVEN, emulate=seed == 0):
        wrong = np.abs(ours - theirs)
        assert wrong.max() <= (kind != "ReduceMax")
        assert np.count_nonzero(wrong) <= 1e-2 * wrong.size + 1, np.count_nonzero(wrong)


@pytest.mark.parametrize("last", [0, 1])
def test_argmax(last: int) -> None:
    x = activation("x", (3, 40, 7), Quant.per_tensor(0.1, 3))
    op = ArgMax([x], {"axis": 1, "keepdims": 0, "select_last_index": last})
    values = np.random.default_rng(1).integers(-3, 4, (3, 40, 7)).astype(np.int8)
    model = Model()
    real = model.dequantized("x", quant_of(x))
    model.node("ArgMax", [real], "y", axis=1, keepdims=0, select_last_index=last)
    theirs = model.run({"x": values}, "y", kind=onnx.TensorProto.INT64)
    for ours in both(op, {"x": values}, Rounding.EVEN):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(8))
def test_log_softmax_differs_by_one_where_float32_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = ((40, 10), (30, 100), (7, 1), (20, 500))[seed % 4]
    x = activation("x", shape, parameters(rng, 0.002, 1.0))
    op = LogSoftmax([x])
    inputs = {"x": codes(rng, shape)}
    model = Model()
    real = model.dequantized("x", quant_of(x))
    made = model.node("LogSoftmax", [real], "made", axis=-1)
    theirs = model.run(inputs, quantized(model, made, quant_of(op.result))).astype(int)
    for ours in both(op, inputs, Rounding.EVEN, emulate=seed < 4):
        wrong = np.abs(ours - theirs)
        assert wrong.max() <= 1
        assert np.count_nonzero(wrong) <= 1e-3 * wrong.size + 1, np.count_nonzero(wrong)
