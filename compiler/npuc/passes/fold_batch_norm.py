"""Fold batch_norm into the weights and bias of the op before it: conv2d, dense and their like.

With f = gamma / sqrt(variance + epsilon), computed in float64 and rounded to float32 once:
weights' = weights * f a channel, bias' = (bias - mean) * f + beta.

Invariant: only the batch_norm reads the convolution's result, which has no activation and no
parameters of its own (C06), and whose outputs are the batch_norm's channels; each fold makes its
own constants, so shared weights stay right (C14).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops.batch_norm import BatchNorm
from npuc.ops.convolution import Convolution
from npuc.ops.dense import Dense
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, add_constant, erase_unused, real_constant, sharing
from npuc.passes.level import Level

__all__ = ["FoldBatchNorm", "affine_of"]


@dataclass(frozen=True, kw_only=True)
class FoldBatchNorm:
    """Scale weights instead of results."""

    NAME: ClassVar[str] = "fold_batch_norm"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fold every batch_norm that the guards allow."""
        names = Names(graph)
        for op in graph.ops:
            if not isinstance(op, BatchNorm):
                continue
            x = op.inputs[0]
            obstacle = _obstacle(graph, op)
            if obstacle is not None or x.owner is None:
                context.decide(op.result.name, f"not folded into weights: {obstacle}")
                continue
            into = f"{x.owner.NAME} %{x.name}"
            context.decide(op.result.name, f"batch_norm is in the weights and bias of {into}")
            context.note_fusion(x.name, op.result.name)
            _fold(graph, op, names)


def affine_of(norm: Op) -> tuple[Array, Array] | None:
    """Return (factor, offset), float64 of shape (C), of a batch_norm: y = x * factor + offset.

    None when a parameter is not constant.
    """
    found = [real_constant(v) for v in norm.inputs[1:]]
    gamma, beta, mean, variance = found
    if gamma is None or beta is None or mean is None or variance is None:
        return None
    spread = variance + float(norm.attributes["epsilon"])
    if np.any(spread <= 0):
        raise norm.error("variance + epsilon is not above 0, expected a positive number a channel")
    factor = gamma / np.sqrt(spread)
    return factor, beta - mean * factor


def _obstacle(graph: Graph, norm: Op) -> str | None:
    """Return why *norm* cannot go into the weights before it; None when it can."""
    x = norm.inputs[0]
    producer = x.owner
    if producer is None or producer.WEIGHT_AXIS is None:
        return f"%{x.name} comes from {'an input' if producer is None else producer.NAME}"
    if isinstance(producer, Convolution) and producer.residual is not None:
        return f"%{x.name} holds a residual"
    if isinstance(producer, Dense) and x.tensor.rank > 2:
        return f"dense makes the last dim of %{x.name}, the channels are its second"
    if producer.WEIGHT_AXIS == 1 and producer.inputs[1].tensor.quant is not None:
        return f"the weights of {producer.NAME} are frozen"
    if producer.attributes["clamp"] is not None or x.tensor.quant is not None:
        return f"%{x.name} is clamped or frozen before it"
    if not all(isinstance(v.owner, Const) for v in (*producer.inputs[1:], *norm.inputs[1:])):
        return "a parameter is computed at run time"
    return sharing(graph, x)


def _fold(graph: Graph, norm: Op, names: Names) -> None:
    producer = norm.inputs[0].owner
    affine = affine_of(norm)
    if producer is None or affine is None:
        return
    factor, offset = affine
    x, weights, *rest = producer.inputs
    bias = rest[0] if rest else None
    start = 0.0 if bias is None else real_constant(bias)
    scaled = _scaled(graph, producer, weights, factor, names)
    shifted = add_constant(
        graph,
        start * factor + offset,
        TensorType(offset.shape),
        name=names.fresh(f"{producer.result.name}_bias"),
        before=producer,
        location=producer.location,
    )
    producer.operands = [x, scaled, shifted]
    producer.result.type, producer.result.name = norm.result.type, norm.result.name
    parameters = norm.inputs[1:]
    graph.replace(norm.result, producer.result)
    norm.erase()
    for old in [weights, bias, *parameters]:
        if old is not None and old.owner is not None:
            erase_unused(old.owner)


def _scaled(graph: Graph, op: Op, weights: Value, factor: Array, names: Names) -> Value:
    real = real_constant(weights)
    along = _spread(factor, op, weights.tensor.rank)
    tensor = replace(weights.tensor, quant=_scaled_quant(weights.tensor.quant, factor))
    return add_constant(
        graph,
        real * along,
        tensor,
        name=names.fresh(f"{op.result.name}_weights"),
        before=op,
        location=op.location,
    )


def _spread(factor: Array, op: Op, rank: int) -> Array:
    """Return the factor of each weight, shaped to broadcast: groups of (C, O / group) repeat."""
    if op.WEIGHT_AXIS == 0:
        return factor.reshape(-1, *[1] * (rank - 1))
    group, depth = op.attributes["group"], op.inputs[1].tensor.dims[0]
    rows = np.repeat(factor.reshape(group, -1), depth // group, axis=0)
    return rows.reshape(*rows.shape, *[1] * (rank - 2))


def _scaled_quant(quant: Quant | None, factor: Array) -> Quant | None:
    """Frozen weights keep their codes (negated where the factor is negative)."""
    if quant is None:
        return None
    scales = np.broadcast_to(np.asarray(quant.scales), factor.shape)
    moved = np.abs(np.float32(scales * np.where(factor == 0, 1.0, factor)))
    points = np.broadcast_to(np.asarray(quant.zero_points), factor.shape)
    return Quant(tuple(map(float, moved)), tuple(map(int, points)), axis=0)
