"""Turn a matmul by a constant matrix into a dense layer, with the constant added behind it as bias.

Weights then have one scale an output channel, and lie in the blob as the arrays read them.

Invariant: only the add reads a product that takes it in, and the product has no parameters of its
own (C06). Parameters of the matrix move with its axes (C25).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ops.add import Add
from npuc.ops.dense import Dense
from npuc.ops.matmul import MatMul
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, add_constant, constant_of, erase_unused, only_user
from npuc.passes.level import Level

__all__ = ["MatmulToDense"]


@dataclass(frozen=True, kw_only=True)
class MatmulToDense:
    """Replace every matmul whose second operand is one constant matrix."""

    NAME: ClassVar[str] = "matmul_to_dense"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite *graph* in place; ``no_fuse`` keeps adds apart."""
        names = Names(graph)
        turned: dict[Value, Value] = {}
        for op in [op for op in graph.ops if isinstance(op, MatMul) and _by_a_matrix(op)]:
            bias = None if context.no_fuse else _bias_behind(graph, op)
            if bias is not None:
                context.fused[op.result.name] = bias[0].result.name
            _replace(graph, op, bias, turned, names)


def _by_a_matrix(op: MatMul) -> bool:
    a, b = op.a.tensor, op.b.tensor
    if not isinstance(op.b.owner, Const) or isinstance(op.a.owner, Const) or None in b.shape:
        return False
    quant = b.quant
    per_column = quant is None or quant.axis in (None, b.rank - 1)
    return per_column and a.rank >= b.rank and all(n == 1 for n in b.shape[:-2])


def _bias_behind(graph: Graph, op: MatMul) -> tuple[Add, Array] | None:
    """Return the add that alone reads the product, and the row that it adds to each row."""
    add = only_user(graph, op.result)
    if not isinstance(add, Add) or op.result.tensor.quant is not None:
        return None
    (other,) = [v for v in add.inputs if v is not op.result]
    found = constant_of(other)
    if (
        found is None
        or other.tensor.quant is not None
        or add.result.tensor.shape != op.result.tensor.shape
    ):
        return None
    rows = found.reshape(-1, found.shape[-1] if found.ndim else 1)
    row = np.broadcast_to(rows[0], op.b.tensor.dims[-1:])
    return (add, row) if np.array_equal(rows, np.broadcast_to(rows[0], rows.shape)) else None


def _replace(
    graph: Graph,
    op: MatMul,
    bias: tuple[Add, Array] | None,
    turned: dict[Value, Value],
    names: Names,
) -> None:
    if op.b not in turned:
        turned[op.b] = _transposed(graph, op, names)
    last: Op = op if bias is None else bias[0]
    operands: list[Value | None] = [op.a, turned[op.b]]
    if bias is not None:
        tensor = replace(op.result.tensor, shape=())
        operands.append(
            add_constant(graph, bias[1], tensor, name=names.fresh(f"{op.result.name}_bias"),
                         before=last, location=last.location)
        )  # fmt: skip
    made = Dense(
        operands,
        {"clamp": None if bias is None else bias[0].clamp},
        result_types=[last.result.type],
        names=[last.result.name],
        location=op.location,
    )
    graph.insert(made, before=last)
    graph.replace(last.result, made.result)
    if last is not op:
        erase_unused(last)
    erase_unused(op)


def _transposed(graph: Graph, op: MatMul, names: Names) -> Value:
    matrix, tensor = constant_of(op.b), op.b.tensor
    if matrix is None:
        raise op.error(f"%{op.b.name} is no constant")
    quant = tensor.quant
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=0)
    return add_constant(
        graph,
        np.ascontiguousarray(matrix.reshape(matrix.shape[-2:]).T),
        replace(tensor, quant=quant),
        name=names.fresh(f"{op.b.name}_t"),
        before=op,
        location=op.location,
    )
