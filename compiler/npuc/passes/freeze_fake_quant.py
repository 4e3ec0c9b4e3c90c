"""Freeze fake quantisation: the parameters of dequantize(quantize(x)) move onto x's float type.

A fake_quant is such a pair. A float type with parameters means "this value is stored with these":
calibration leaves it alone. A constant that is stored quantised, dequantize(const), becomes a
frozen float constant likewise.

Invariant: a quantize that anything but its dequantize reads stays, as does a second pair with other
parameters, and a pair whose result is an output that x cannot be; outputs keep their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuabi.enums import DType, Rounding
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import Quant
from npuc.ops.dequantize import Dequantize
from npuc.ops.fake_quant import FakeQuant
from npuc.ops.quantize import Quantize
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, add_constant, constant_of, erase_unused, only_user
from npuc.passes.level import Level

__all__ = ["FreezeFakeQuant"]


@dataclass(frozen=True, kw_only=True)
class FreezeFakeQuant:
    """Replace quantize-dequantize pairs by parameters on the float type."""

    NAME: ClassVar[str] = "freeze_fake_quant"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Freeze every pair of *graph*, fake_quant spelt out as one."""
        names = Names(graph)
        for op in graph.ops:
            if isinstance(op, FakeQuant):
                _spell_out(graph, op, names)
        for op in graph.ops:
            if isinstance(op, Dequantize):
                _freeze(graph, op, context)


def _spell_out(graph: Graph, op: FakeQuant, names: Names) -> None:
    """Replace a fake_quant by quantize and dequantize."""
    quantize = Quantize(
        op.inputs,
        result_types=[op.codes],
        names=[names.fresh(f"{op.result.name}_q")],
        location=op.location,
    )
    dequantize = Dequantize(
        [graph.insert(quantize, before=op).result],
        result_types=[op.result.type],
        names=[op.result.name],
        location=op.location,
    )
    graph.replace(op.result, graph.insert(dequantize, before=op).result)
    op.erase()


def _freeze(graph: Graph, op: Op, context: PassContext) -> None:
    (codes,) = op.inputs
    quant = codes.tensor.quant
    if quant is None or codes.tensor.dtype is not DType.I8:
        return
    if isinstance(codes.owner, Quantize):
        _freeze_pair(graph, op, codes.owner, quant, context)
    elif constant_of(codes) is not None:
        _freeze_constant(graph, op, codes, quant)


def _freeze_pair(graph: Graph, op: Op, quantize: Op, quant: Quant, context: PassContext) -> None:
    (real,) = quantize.inputs
    if only_user(graph, quantize.result) is not op or real.tensor.quant not in (None, quant):
        return
    if graph.is_output(op.result):
        if real.owner is None or graph.is_output(real):
            return
        real.name, op.result.name = op.result.name, real.name
    for gone in (quantize.result.name, op.result.name):
        context.note_fusion(gone, real.name)
    real.type = real.tensor.with_quant(real.tensor.dtype, quant)
    graph.replace(op.result, real)
    erase_unused(op)
    erase_unused(quantize)


def _freeze_constant(graph: Graph, op: Op, codes: Value, quant: Quant) -> None:
    real = op.reference([constant_of(codes)], rounding=Rounding.DOUBLE)[0]
    kept = add_constant(
        graph,
        real,
        op.result.tensor.with_quant(op.result.tensor.dtype, quant),
        name=op.result.name,
        before=op,
        location=op.location,
    )
    graph.replace(op.result, kept)
    erase_unused(op)
