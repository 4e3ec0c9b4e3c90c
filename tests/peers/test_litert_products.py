"""Rounding double of products, reductions and norms against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from npuabi.enums import DType
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import ArgMax, LogSoftmax, MatMul, ReduceMax, ReduceMean, ReduceSum
from tests.peers.emulated import activation, codes, parameters
from tests.peers.test_litert import CODE, agree
from tests.peers.tflite_models import Node, Tensor, options, run, schema, write

SEEDS = pytest.mark.parametrize("seed", range(4))


def plain(value: Value) -> Tensor:
    """Return the TFLite tensor of an activation, its dims as they are."""
    found = value.tensor
    return Tensor(shape=found.dims, dtype=found.numpy.type, quant=found.quant)


def stored(op: Op, quant: Quant) -> None:
    """Give the result of *op* the element type of its operand and these parameters."""
    op.result.type = op.result.tensor.with_quant(op.inputs[0].tensor.dtype, quant)


def one_node(
    op: Op, node: Node, inputs: dict[str, Array], tensors: Sequence[Tensor], *, emulate: bool = True
) -> None:
    """Compare *op* with the model of one *node* whose first tensors are *inputs*."""
    model = write(tensors, [node], list(range(len(inputs))), node.outputs)
    (theirs,) = run(model, list(inputs.values()))
    agree(op, inputs, theirs, emulate=emulate)


@SEEDS
@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3, 19, 40), (2, 3, 40, 21)), ((2, 30, 70), (2, 70, 33)), ((2, 1, 9, 5), (3, 5, 8))],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    quants = [parameters(rng, 0.01, 0.2) for _ in range(2)]
    values = [activation(n, s, q) for n, s, q in zip("ab", (a, b), quants, strict=True)]
    op = MatMul(values)
    spread = quants[0].scale * quants[1].scale * 60 * a[-1] ** 0.5
    stored(op, parameters(rng, spread / 4, spread * 4))
    node = Node(
        code=CODE.BATCH_MATMUL, inputs=[0, 1], outputs=[2], options=options("BatchMatMulOptions")
    )
    inputs = {v.name: codes(rng, v.tensor.dims) for v in values}
    one_node(op, node, inputs, [*map(plain, values), plain(op.result)], emulate=seed == 0)


@SEEDS
def test_matmul_of_int16(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = {"a": (2, 3, 19, 40), "b": (2, 3, 40, 21)}
    quants = [Quant.per_tensor(float(np.float32(s)), 0) for s in rng.uniform(1e-5, 1e-3, 3)]
    values = [
        Value(name, TensorType(shape, DType.I16, quant))
        for (name, shape), quant in zip(shapes.items(), quants[:2], strict=True)
    ]
    op = MatMul(values)
    spread = quants[0].scale * quants[1].scale * 2.0**14 * 40**0.5
    stored(op, Quant.per_tensor(float(np.float32(spread * rng.uniform(0.5, 4))), 0))
    node = Node(
        code=CODE.BATCH_MATMUL, inputs=[0, 1], outputs=[2], options=options("BatchMatMulOptions")
    )
    inputs = {n: rng.integers(-32768, 32768, s).astype(np.int16) for n, s in shapes.items()}
    one_node(op, node, inputs, [*map(plain, values), plain(op.result)], emulate=seed == 0)


REDUCTIONS: list[tuple[str, type[Op], tuple[int, ...]]] = [
    ("MEAN", ReduceMean, (1, 2)),
    ("MEAN", ReduceMean, (3,)),
    ("MEAN", ReduceMean, (0, 1, 3)),
    ("REDUCE_MAX", ReduceMax, (2,)),
    ("SUM", ReduceSum, (0, 3)),
    ("SUM", ReduceSum, (1,)),
]


def reducing(code: str, op: Op, axes: Sequence[int]) -> tuple[Node, list[Tensor]]:
    """Return the node of a reduction, and its tensors: operand, axes, result."""
    node = Node(
        code=getattr(CODE, code),
        inputs=[0, 1],
        outputs=[2],
        options=options("ReducerOptions", keepDims=True),
    )
    constant = Tensor(shape=(len(axes),), dtype=np.int32, data=np.array(axes, np.int32))
    return node, [plain(op.inputs[0]), constant, plain(op.result)]


@SEEDS
@pytest.mark.parametrize("dtype", [DType.I8, DType.I16], ids=lambda d: d.text)
@pytest.mark.parametrize(("code", "kind", "axes"), REDUCTIONS)
def test_reductions(
    code: str, kind: type[Op], axes: tuple[int, ...], dtype: DType, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape, narrow = (3, 13, 11, 18), dtype is DType.I8
    source, target = (parameters(rng, 0.01, 0.2) for _ in range(2))
    if not narrow:
        source, target = (Quant.per_tensor(q.scale / 256, 0) for q in (source, target))
    if code == "SUM":
        count = float(np.prod([shape[axis] for axis in axes]))
        target = Quant.per_tensor(float(np.float32(target.scale * count / 4)), target.zero_point)
    x = Value("x", TensorType(shape, dtype, source))
    op = kind([x], {"axes": list(axes)})
    stored(op, source if code == "REDUCE_MAX" else target)
    limits = np.iinfo(dtype.numpy)
    values = rng.integers(limits.min, limits.max + 1, shape).astype(dtype.numpy)
    if code == "SUM":
        # The reference kernel reads its operand as uint8 whatever it is.
        return _sum_of_uint8(op, values, axes) if narrow else None
    node, tensors = reducing(code, op, axes)
    one_node(op, node, {"x": values}, tensors, emulate=seed == 0)
    return None


def _sum_of_uint8(op: Op, values: Array, axes: tuple[int, ...]) -> None:
    node, tensors = reducing("SUM", op, axes)
    moved = [
        replace(t, dtype=np.uint8, quant=Quant.per_tensor(t.quant.scale, t.quant.zero_point + 128))
        for t in (tensors[0], tensors[2])
        if t.quant is not None
    ]
    model = write([moved[0], tensors[1], moved[1]], [node], [0], node.outputs)
    (theirs,) = run(model, [(values.astype(np.int16) + 128).astype(np.uint8)])
    agree(op, {"x": values}, (theirs.astype(np.int16) - 128).astype(np.int8))


def test_argmax_takes_the_first_of_equal_codes() -> None:
    rng = np.random.default_rng(1)
    x = activation("x", (3, 40, 7), Quant.per_tensor(0.1, 3))
    op = ArgMax([x], {"axis": 1, "keepdims": 0})
    axis = Tensor(shape=(), dtype=np.int32, data=np.array(1, np.int32))
    table = options("ArgMaxOptions", outputType=schema.TensorType.INT64)
    node = Node(code=CODE.ARG_MAX, inputs=[0, 1], outputs=[2], options=table)
    inputs = {"x": rng.integers(-3, 4, (3, 40, 7)).astype(np.int8)}
    one_node(op, node, inputs, [plain(x), axis, plain(op.result)])


@pytest.mark.parametrize("seed", range(12))
def test_log_softmax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = ((40, 10), (30, 100), (1, 1), (20, 500))[seed % 4]
    x = activation("x", shape, parameters(rng, 0.002, 1.0))
    op = LogSoftmax([x])
    table = options("LogSoftmaxOptions")
    node = Node(code=CODE.LOG_SOFTMAX, inputs=[0], outputs=[1], options=table)
    inputs = {"x": codes(rng, shape)}
    one_node(op, node, inputs, [plain(x), plain(op.result)], emulate=seed < 4)
