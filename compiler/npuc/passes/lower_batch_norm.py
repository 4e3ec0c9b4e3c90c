"""Turn each batch_norm that was not folded into a depthwise 1x1 conv2d, which is the same affine.

Tensors of rank 2 or 3 pass through a reshape to rank 4 and back.

Invariant: afterwards no batch_norm is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import TensorType
from npuc.ops.batch_norm import BatchNorm
from npuc.ops.conv2d import Conv2d
from npuc.ops.reshape import Reshape
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, add_constant, erase_unused
from npuc.passes.fold_batch_norm import affine_of
from npuc.passes.level import Level

__all__ = ["LowerBatchNorm"]


@dataclass(frozen=True, kw_only=True)
class LowerBatchNorm:
    """Replace batch_norm by conv2d with one 1x1 filter a channel."""

    NAME: ClassVar[str] = "lower_batch_norm"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Lower every batch_norm of *graph*."""
        names = Names(graph)
        for op in graph.ops:
            if isinstance(op, BatchNorm):
                _lower(graph, op, names, context)


def _lower(graph: Graph, norm: Op, names: Names, context: PassContext) -> None:
    x = norm.inputs[0]
    if not 2 <= x.tensor.rank <= 4:
        raise norm.error(f"rank is 2, 3 or 4, got {x.tensor.rank}: reshape before and after it")
    affine = affine_of(norm)
    if affine is None:
        raise norm.error("gamma, beta, mean and variance must be constants")
    wide = _reshaped(graph, norm, x, _rank_4(x.tensor.dims), f"{x.name}_nchw", names)
    result = _depthwise(graph, norm, wide, affine, names)
    context.decide(norm.result.name, "batch_norm is a depthwise 1x1 conv2d of its own")
    context.note_fusion(result.name, norm.result.name)
    if result.tensor.shape != norm.result.tensor.shape:
        shape = norm.result.tensor.dims
        result = _reshaped(graph, norm, result, shape, f"{norm.result.name}_flat", names)
    result.name, result.type = norm.result.name, norm.result.type
    graph.replace(norm.result, result)
    parameters = [v.owner for v in norm.inputs[1:]]
    norm.erase()
    for owner in parameters:
        if owner is not None:
            erase_unused(owner)


def _rank_4(dims: tuple[int, ...]) -> tuple[int, ...]:
    """(N, C) is (N, C, 1, 1) and (N, C, W) is (N, C, 1, W)."""
    return (*dims[:2], *[1] * (4 - len(dims)), *dims[2:])


def _reshaped(
    graph: Graph, norm: Op, x: Value, shape: tuple[int, ...], name: str, names: Names
) -> Value:
    if x.tensor.shape == shape:
        return x
    op = Reshape(
        [x],
        {"shape": shape},
        result_types=[x.tensor.with_shape(shape)],
        names=[names.fresh(name)],
        location=norm.location,
    )
    return graph.insert(op, before=norm).result


def _depthwise(
    graph: Graph, norm: Op, x: Value, affine: tuple[Array, Array], names: Names
) -> Value:
    factor, offset = affine
    channels = len(factor)
    parts = {"weights": factor.reshape(channels, 1, 1, 1), "bias": offset}
    constants = [
        add_constant(
            graph,
            array,
            TensorType(array.shape),
            name=names.fresh(f"{norm.result.name}_{part}"),
            before=norm,
            location=norm.location,
        )
        for part, array in parts.items()
    ]
    op = Conv2d(
        [x, *constants],
        {"group": channels},
        result_types=[TensorType(x.tensor.shape)],
        names=[names.fresh(f"{norm.result.name}_nchw")],
        location=norm.location,
    )
    return graph.insert(op, before=norm).result
