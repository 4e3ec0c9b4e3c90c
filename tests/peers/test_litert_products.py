"""Rounding double of products, reductions and norms against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from npuabi.enums import DType
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import MatMul
from tests.peers.emulated import activation, codes, parameters
from tests.peers.test_litert import CODE, agree
from tests.peers.tflite_models import Node, Tensor, options, run, write

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
