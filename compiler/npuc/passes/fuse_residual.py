"""Fuse a stored add into the conv2d that feeds it: the convolution reads the residual itself.

On codes the fused op computes the bits of the two: the convolution with its own parameters and
clamp (the ``inner_`` attributes), then ADD with its three multipliers and its clamp. On floats it
rounds once, at the end.

Invariant: nothing but the add reads the convolution's result (C06).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuabi.enums import Rounding
from npuc.ir.core import Graph, Op, Value
from npuc.ops.add import Add
from npuc.ops.convolution import Convolution
from npuc.ops.quantised import is_quantised
from npuc.passes.context import PassContext
from npuc.passes.edit import sharing
from npuc.passes.level import Level

__all__ = ["FuseResidual"]


@dataclass(frozen=True, kw_only=True)
class FuseResidual:
    """Move residual adds into the convolution before them."""

    NAME: ClassVar[str] = "fuse_residual"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fuse what the guards allow; nothing when the context says ``no_fuse``."""
        if context.no_fuse:
            return
        order = {op: number for number, op in enumerate(graph.ops)}
        for op in graph.ops:
            if isinstance(op, Add):
                _fuse(graph, op, order, context)


def _fuse(graph: Graph, add: Op, order: dict[Op, int], context: PassContext) -> None:
    """Fuse the later of the add's convolutions, so that the other result is there to be read."""
    # The fused op adds the residual to its own result, in this order; rounding even minds.
    ordered = context.rounding is Rounding.EVEN and is_quantised(add.result)
    inputs = add.inputs[:1] if ordered else add.inputs
    obstacles = [_obstacle(graph, add, v) for v in inputs]
    found = [v.owner for v, why in zip(inputs, obstacles, strict=True) if why is None]
    convs = [op for op in found if isinstance(op, Convolution)]
    if not convs:
        reasons = "; ".join(dict.fromkeys(filter(None, obstacles)))
        context.decide(add.result.name, f"not fused into a conv2d before it: {reasons}")
        return
    conv = max(convs, key=lambda op: order[op])
    (residual,) = (v for v in add.inputs if v is not conv.result)
    quant = conv.result.tensor.quant
    inner = {} if quant is None else {"inner_scale": quant.scale, "inner_zp": quant.zero_point}
    fused = type(conv)(
        [conv.operands[0], conv.operands[1], conv.bias, residual],
        {
            **conv.attributes,
            "clamp": add.attributes["clamp"],
            **inner,
            "inner_clamp": conv.attributes["clamp"],
        },
        result_types=[add.result.type],
        names=[add.result.name],
        location=conv.location,
    )
    read = f"conv2d %{conv.result.name}, which reads %{residual.name} as its residual"
    context.decide(add.result.name, f"add is done by {read}")
    context.note_fusion(conv.result.name, add.result.name)
    order[graph.insert(fused, before=add)] = order[add]
    graph.replace(add.result, fused.result)
    add.erase()
    conv.erase()


def _obstacle(graph: Graph, add: Op, value: Value) -> str | None:
    """Return why the op that gives *value* cannot add the other operand; None when it can."""
    conv = value.owner
    if not isinstance(conv, Convolution):
        return f"%{value.name} comes from {'an input' if conv is None else conv.NAME}"
    # The depthwise mode of the arrays has no residual stream.
    if conv.residual is not None or conv.group != 1:
        return f"conv2d %{value.name} has {'groups' if conv.group != 1 else 'a residual already'}"
    if {v.tensor.shape for v in add.inputs} != {add.result.tensor.shape}:
        return "an operand is repeated along a dim"
    if len({v.tensor.dtype for v in (*add.inputs, add.result)}) > 1:
        return "the operands are in different precisions"
    return sharing(graph, value)
