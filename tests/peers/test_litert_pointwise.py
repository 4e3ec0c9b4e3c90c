"""Elementwise ops in rounding double against LiteRT's reference kernels, code by code.

int8 operands hold every code or pair of codes, int16 ones every code or random pairs. The integer
reference is compared everywhere, the emulated firmware on the first case of each op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import REGISTRY, Array, Op, Value
from npuc.ir.types import Quant, TensorType
from tests.peers.emulated import both, constant, parameters
from tests.peers.tflite_models import Node, Tensor, options, run, schema, write

CODE = schema.BuiltinOperator
KINDS: dict[DType, Any] = {DType.I8: np.int8, DType.I16: np.int16}
BOTH = pytest.mark.parametrize("dtype", list(KINDS), ids=lambda dtype: dtype.text)
SEEDS = range(6)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One op of ours and LiteRT's; ``domain`` says which real inputs theirs takes."""

    name: str
    code: Any
    attributes: dict[str, Any] = field(default_factory=dict)
    table: Any = None
    from_zero: bool = False
    wide: bool = True

    def __str__(self) -> str:
        return "-".join([self.name, *map(str, self.attributes.values())])


FUNCTIONS = [
    Peer(name="sigmoid", code=CODE.LOGISTIC),
    Peer(name="tanh", code=CODE.TANH),
    Peer(name="hard_swish", code=CODE.HARD_SWISH, wide=False),
    Peer(name="gelu", code=CODE.GELU, table=options("GeluOptions")),
    Peer(
        name="gelu",
        code=CODE.GELU,
        attributes={"approximate": "tanh"},
        table=options("GeluOptions", approximate=True),
    ),
    *(
        Peer(
            name="leaky_relu",
            code=CODE.LEAKY_RELU,
            attributes={"alpha": alpha},
            table=options("LeakyReluOptions", alpha=alpha),
        )
        for alpha in (0.1, -1.5, 2.0)
    ),
    Peer(name="exp", code=CODE.EXP),
    Peer(name="log", code=CODE.LOG),
    Peer(name="sqrt", code=CODE.SQRT, from_zero=True),
    Peer(name="rsqrt", code=CODE.RSQRT, from_zero=True),
    Peer(name="abs", code=CODE.ABS),
    Peer(name="relu6", code=CODE.RELU6),
]


def quants(rng: np.random.Generator, dtype: DType, count: int) -> list[Quant]:
    """Return parameters for all codes of *dtype*."""
    made = [parameters(rng, 0.01, 0.2) for _ in range(count)]
    if dtype is DType.I8:
        return made
    return [Quant.per_tensor(float(np.float32(q.scale / 128)), 0) for q in made]


def litert(peer: Peer, inputs: Sequence[Array], quant: Sequence[Quant], dims: Any) -> Array:
    """Return LiteRT's codes of *inputs*; *quant* are their parameters and the result's."""
    dtype = inputs[0].dtype.type
    kinds = [x.dtype.type for x in inputs]
    shapes = [x.shape for x in inputs]
    tensors = [
        Tensor(shape=shape, dtype=kind, quant=q)
        for shape, kind, q in zip((*shapes, dims), (*kinds, dtype), quant, strict=True)
    ]
    count = len(inputs)
    node = Node(code=peer.code, inputs=list(range(count)), outputs=[count], options=peer.table)
    return run(write(tensors, [node], node.inputs, node.outputs), inputs)[0]


def built(peer: Peer, dtype: DType, shapes: Any, quant: Sequence[Quant]) -> Op:
    cls = REGISTRY[peer.name]
    values = [
        Value(name, TensorType(shape, dtype, q))
        for name, shape, q in zip("ab", shapes, quant, strict=False)
    ]
    dims = np.broadcast_shapes(*shapes)
    made = cls(values, peer.attributes, result_types=[TensorType(dims, dtype, quant[-1])])
    made.verify()
    return made


def wrong(op: Op, inputs: dict[str, Array], theirs: Array, *, emulate: bool) -> int:
    """Return how many codes of ours differ, the worst of reference and firmware."""
    ours = both(op, inputs, Rounding.DOUBLE, emulate=emulate)
    return max(int(np.count_nonzero(found != theirs)) for found in ours)


@BOTH
@pytest.mark.parametrize("peer", FUNCTIONS, ids=str)
def test_functions_of_one_tensor(peer: Peer, dtype: DType) -> None:
    if dtype is DType.I16 and not peer.wide:
        return
    limits = np.iinfo(KINDS[dtype])
    for seed in SEEDS if dtype is DType.I8 else SEEDS[:2]:
        rng = np.random.default_rng(seed)
        source, target = quants(rng, dtype, 2)
        target = REGISTRY[peer.name].FIXED.get(dtype, target)
        first = source.zero_point if peer.from_zero else limits.min
        x = np.arange(first, limits.max + 1).astype(KINDS[dtype])
        theirs = litert(peer, [x], [source, target], x.shape)
        op = built(peer, dtype, [x.shape], [source, target])
        # LiteRT's int16 gelu takes erf and tanh from a libm: a table entry may differ by 1.
        allowed = 128 if peer.name == "gelu" and dtype is DType.I16 else 0
        assert wrong(op, {"a": x}, theirs, emulate=seed == 0) <= allowed


PAIRS = [
    Peer(name="sub", code=CODE.SUB, table=options("SubOptions")),
    Peer(name="mul", code=CODE.MUL, table=options("MulOptions")),
    Peer(name="div", code=CODE.DIV, table=options("DivOptions")),
    Peer(name="min", code=CODE.MINIMUM),
    Peer(name="max", code=CODE.MAXIMUM),
]


@BOTH
@pytest.mark.parametrize("peer", PAIRS, ids=str)
def test_functions_of_two_tensors(peer: Peer, dtype: DType) -> None:
    limits = np.iinfo(KINDS[dtype])
    for seed in SEEDS[:4]:
        rng = np.random.default_rng(seed)
        a, b, target = quants(rng, dtype, 3)
        if peer.name in ("min", "max"):
            a = b = target
        shape = (1, 16, 32, 32) if dtype is DType.I8 else (1, 4, 32, 32)
        x, y = (rng.integers(limits.min, limits.max + 1, shape) for _ in "ab")
        if peer.name == "div":
            # Theirs shifts right by 32 and more where a quotient is small: undefined in C.
            steps = 200 if dtype is DType.I8 else 2000
            target = Quant.per_tensor(
                float(np.float32(a.scale / b.scale / steps)), target.zero_point
            )
            y = np.where(y == b.zero_point, 2 * (b.zero_point < 0) - 1 + y, y)
            x = np.where(np.abs(x) < 8, 8, x) if dtype is DType.I16 else x
        x, y = x.astype(KINDS[dtype]), y.astype(KINDS[dtype])
        theirs = litert(peer, [x, y], [a, b, target], shape)
        op = built(peer, dtype, [shape, shape], [a, b, target])
        assert wrong(op, {"a": x, "b": y}, theirs, emulate=seed == 0) == 0


@BOTH
def test_prelu_has_int8_slopes_beside_both(dtype: DType) -> None:
    limits = np.iinfo(KINDS[dtype])
    for seed in SEEDS[:4]:
        rng = np.random.default_rng(seed)
        source, target = quants(rng, dtype, 2)
        slope = parameters(rng, 0.002, 0.05)
        shape = (1, 19, 16, 17)
        x = rng.integers(limits.min, limits.max + 1, shape).astype(KINDS[dtype])
        codes = rng.integers(-128, 128, (19, 1, 1)).astype(np.int8)
        tensors = [
            Tensor(shape=(1, 16, 17, 19), dtype=KINDS[dtype], quant=source),
            Tensor(shape=(1, 1, 19), quant=slope, data=codes.reshape(1, 1, 19)),
            Tensor(shape=(1, 16, 17, 19), dtype=KINDS[dtype], quant=target),
        ]
        node = Node(code=CODE.PRELU, inputs=[0, 1], outputs=[2])
        (theirs,) = run(write(tensors, [node], [0], [2]), [np.moveaxis(x, 1, -1)])
        made = REGISTRY["prelu"](
            [Value("a", TensorType(shape, dtype, source)), constant("slope", codes, slope)],
            result_types=[TensorType(shape, dtype, target)],
        )
        made.verify()
        assert wrong(made, {"a": x}, np.moveaxis(theirs, -1, 1), emulate=seed == 0) == 0
