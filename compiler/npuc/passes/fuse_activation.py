"""Fuse relu and clip into the ``clamp`` of the op that feeds them: conv2d, dense, add and others.

Invariant: nothing but the activation reads the op's result, so no number changes (C06). Between
quantised tensors both must have the same parameters, else the activation also rescales.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.core import Graph, Op, Value
from npuc.ops.quantised import is_quantised
from npuc.passes.context import PassContext
from npuc.passes.edit import sharing
from npuc.passes.level import Level

__all__ = ["FuseActivation"]

Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class FuseActivation:
    """Move activations into the op before them."""

    NAME: ClassVar[str] = "fuse_activation"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fuse what the guards allow; nothing when the context says ``no_fuse``."""
        if context.no_fuse:
            return
        for op in graph.ops:
            bounds = op.bounds()
            if bounds is not None:
                _fuse(graph, op, bounds, context)


def _fuse(graph: Graph, op: Op, bounds: Bounds, context: PassContext) -> None:
    (x,) = op.inputs
    producer = x.owner
    obstacle = _obstacle(graph, op, producer)
    if producer is None or obstacle is not None:
        context.decide(op.result.name, f"not fused into the op before it: {obstacle}")
        return
    producer.attributes["clamp"] = _compose(producer.attributes["clamp"], bounds)
    context.decide(op.result.name, f"{op.NAME} is the clamp of {producer.NAME} %{x.name}")
    context.note_fusion(x.name, op.result.name)
    x.type, x.name = op.result.type, op.result.name
    graph.replace(op.result, x)
    op.erase()


def _obstacle(graph: Graph, op: Op, producer: Op | None) -> str | None:
    """Return why the activation *op* stays on its own; None when it need not."""
    (x,) = op.inputs
    if producer is None or "clamp" not in producer.attributes:
        return f"{'an input' if producer is None else producer.NAME} has no clamp"
    if not _same_numbers(x, op.result):
        return f"%{x.name} and %{op.result.name} have parameters of their own"
    return sharing(graph, x)


def _same_numbers(x: Value, y: Value) -> bool:
    """Whether the activation does nothing but clamp."""
    if not is_quantised(x):
        return x.tensor.quant is None
    return x.tensor.quant == y.tensor.quant and x.tensor.dtype is y.tensor.dtype


def _compose(inner: Sequence[float] | None, outer: Bounds) -> Bounds:
    """Return the one clamp that equals *inner* and then *outer*.

    clip(x, low, high) = min(max(x, low), high) is monotone, so it maps the bounds of *inner*.
    """
    low, high = (-math.inf, math.inf) if inner is None else inner
    return _clip(min(low, high), outer), _clip(high, outer)


def _clip(value: float, bounds: Bounds) -> float:
    return min(max(value, bounds[0]), bounds[1])
