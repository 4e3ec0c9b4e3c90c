"""Split the residual of a float convolution off into an add: the inverse of ``fuse_residual``.

A source may write the fused form. Apart, the sum before the add is calibrated and quantised like
any value, and ``fuse_residual`` joins the two where the NPU can.

Invariant: afterwards no float convolution has a residual; the bits of float64 stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.core import Graph, Op
from npuc.ir.types import TensorType
from npuc.ops.add import Add
from npuc.ops.convolution import Convolution
from npuc.ops.quantised import is_quantised
from npuc.passes.context import PassContext
from npuc.passes.edit import Names
from npuc.passes.level import Level

__all__ = ["SplitResidual"]

_INNER = ("inner_scale", "inner_zp", "inner_clamp")


@dataclass(frozen=True, kw_only=True)
class SplitResidual:
    """Give float residuals an add of their own."""

    NAME: ClassVar[str] = "split_residual"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite *graph* in place; raises CompileError for half of the inner parameters."""
        names = Names(graph)
        for op in graph.ops:
            if isinstance(op, Convolution) and op.residual is not None and not is_quantised(op.x):
                _split(graph, op, names, context)


def _split(graph: Graph, conv: Convolution, names: Names, context: PassContext) -> None:
    result = conv.result
    inner = type(conv)(
        [conv.x, conv.weights, conv.bias],
        {**conv.attributes, "clamp": conv.inner_clamp, **dict.fromkeys(_INNER)},
        result_types=[_inner_type(conv)],
        names=[names.fresh(f"{result.name}_inner")],
        location=conv.location,
    )
    total: Op = Add(
        [graph.insert(inner, before=conv).result, conv.residual],
        {"clamp": conv.clamp},
        result_types=[result.type],
        names=[result.name],
        location=conv.location,
    )
    graph.replace(result, graph.insert(total, before=conv).result)
    conv.erase()
    context.note_fusion(inner.result.name, result.name)


def _inner_type(conv: Convolution) -> TensorType:
    """Return the type of the sum: parameters that the source states are frozen."""
    tensor = conv.result.tensor.with_quant(conv.result.tensor.dtype, None)
    if conv.inner_scale is None and conv.inner_zp is None:
        return tensor
    if conv.inner_scale is None or conv.inner_zp is None:
        raise conv.error("inner_scale and inner_zp come together, or neither: calibrated then")
    return tensor.with_quant(tensor.dtype, conv.inner_quant)
