"""Rewrite float ops in the precisions that they are computed in.

| precision | activations | weights | bias |
| --- | --- | --- | --- |
| int8 | int8, parameters per tensor from the float types | int8, per output channel | int32 |
| int16 | int16 with zero point 0, the scale from the int8 parameters | the same | int64 |
| fp16 | float16 | float16 | float32 |
| fp32 | float32 | float32 | float32 |

Biases of codes are in units of input scale * weight scale. A value is stored in the precision of
its producer; ``twins`` converts it for readers of another one, and at the graph's inputs and
outputs. Ops on codes in the source are left alone.

A weight scale is raised where the bias would not fit (C07), and a channel that int8 cannot hold is
noted (C33); both rules are in ``weights``.

Invariant: afterwards every float is stored as its type says, and no float type carries parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuabi.enums import DType
from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import TensorType
from npuc.ops.cast import Cast
from npuc.ops.dequantize import Dequantize
from npuc.ops.identity import Identity
from npuc.ops.quantised import CODES, REAL, is_quantised
from npuc.ops.quantize import Quantize
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, erase_unused, real_constant
from npuc.passes.level import Level
from npuc.passes.precision import dtype_of
from npuc.passes.twins import Twins, conversion, stored_type
from npuc.passes.weights import Layer, quantise_transposed, quantise_weights

__all__ = ["Quantise"]


@dataclass(frozen=True, kw_only=True)
class Quantise:
    """Give every float op its precision."""

    NAME: ClassVar[str] = "quantise"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite every float op of *graph*."""
        _Rewriter(graph, context).run()


class _Rewriter:
    """One run over a graph."""

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self._graph = graph
        self._context = context
        self._names = Names(graph)
        self._twins = Twins(graph, context, self._names)

    def run(self) -> None:
        replaced: list[Op] = []
        errors: list[Diagnostic] = []
        for op in self._graph.ops:
            try:
                if self._rewrite(op):
                    replaced.append(op)
            except CompileError as error:
                errors += error.diagnostics
        if errors:
            raise CompileError(errors)
        returned = {v: self._output(v) for v in dict.fromkeys(self._graph.outputs)}
        self._graph.outputs = [returned[v] for v in self._graph.outputs]
        for op in reversed(replaced):
            erase_unused(op)
        for value in self._graph.arguments:
            if not is_quantised(value):
                value.type = value.tensor.with_quant(value.tensor.dtype, None)

    def _rewrite(self, op: Op) -> bool:
        """Put the stored form of *op* before it; return whether *op* is no longer needed."""
        if isinstance(op, Quantize):
            return self._rewrite_quantize(op)
        if not op.COMPUTES or all(is_quantised(v) for v in op.activations):
            return isinstance(op, Dequantize)
        if isinstance(op, Cast) and not is_quantised(op.result):
            return self._rewrite_cast(op)
        dtype = dtype_of(op, self._context)
        operands = self._twins_of(op, dtype) if op.WEIGHT_AXIS is None else self._layer(op, dtype)
        if op.TIED_OPERANDS and dtype in CODES:
            operands = self._alike(op, operands, dtype)
        given = dtype in CODES and (op.TIED or dtype in op.FIXED)
        made = self._given(op, operands, dtype) if given else self._free(op, operands, dtype)
        for old, new in zip(op.results, made, strict=True):
            if is_quantised(old):
                self._graph.replace(old, new)
            else:
                self._twins.put(old, new)
        return True

    def _rewrite_quantize(self, op: Op) -> bool:
        """Let readers of an explicit quantize read the codes that exist already."""
        (real,) = op.inputs
        twin = self._twins.existing(real, op.result.tensor.dtype)
        if real.owner is None or twin is None:
            return False
        returned = self._graph.is_output(op.result)
        if twin.tensor != op.result.tensor or (returned and self._graph.is_output(twin)):
            name = self._names.fresh(f"{op.result.name}_rescaled")
            made = conversion(twin, op.result.tensor, name, op)
            twin = self._graph.insert(made, before=op).result
        if returned:
            twin.name = op.result.name
        self._graph.replace(op.result, twin)
        return True

    def _rewrite_cast(self, op: Op) -> bool:
        """Let a cast between floats be its operand: the precision says how it is stored."""
        (x,) = op.inputs
        self._twins.put(op.result, self._twins.home(x) or x)
        return True

    def _twins_of(self, op: Op, dtype: DType) -> list[Value | None]:
        """Return the stored operands; integers stay as they are, and most parameters."""
        return [self._stored(op, index, v, dtype) for index, v in enumerate(op.operands)]

    def _stored(self, op: Op, index: int, value: Value | None, dtype: DType) -> Value | None:
        field = op.field(index)
        if value is None or is_quantised(value):
            return value
        if field.codes and dtype in CODES:
            return self._twins.parameter(op, value)
        return value if field.parameter else self._twins.get(op, value, dtype)

    def _alike(self, op: Op, operands: list[Value | None], dtype: DType) -> list[Value | None]:
        """Return codes in the parameters of the result."""
        quant = stored_type(op, op.result, dtype).quant
        return [
            v
            if v is None or v.tensor.quant in (None, quant)
            else self._rescaled(op, v, v.tensor.with_quant(dtype, quant), v.name)
            for v in operands
        ]

    def _free(self, op: Op, operands: list[Value | None], dtype: DType) -> list[Value]:
        """Rebuild an op that computes its results in any parameters."""
        types = [v.tensor if is_quantised(v) else stored_type(op, v, dtype) for v in op.results]
        return self._rebuilt(op, operands, types)

    def _given(self, op: Op, operands: list[Value | None], dtype: DType) -> list[Value]:
        """Rebuild an op with its operand's or fixed parameters; rescale where others are wanted.

        Parameters that the source gives are int8's; an int16 value takes those that it gets.
        """
        operand = next(v for v in operands if v is not None)
        source = op.FIXED.get(dtype, operand.tensor.quant)
        types = [v.tensor.with_quant(dtype, source) for v in op.results]
        made = self._rebuilt(op, operands, types)
        if dtype is not DType.I8:
            return made
        wanted = [stored_type(op, v, dtype) for v in op.results]
        return [
            value if value.tensor == tensor else self._rescaled(op, value, tensor, value.name)
            for value, tensor in zip(made, wanted, strict=True)
        ]

    def _rebuilt(
        self, op: Op, operands: list[Value | None], types: list[TensorType]
    ) -> list[Value]:
        made = type(op)(
            operands,
            op.attributes,
            result_types=types,
            names=[self._code_name(v) for v in op.results],
            location=op.location,
        )
        return list(self._graph.insert(made, before=op).results)

    def _code_name(self, value: Value) -> str:
        """An output's name belongs to the float value that the graph returns."""
        if is_quantised(value) or not self._graph.is_output(value):
            return value.name
        name = self._context.stored[value.name] = self._names.fresh(f"{value.name}_q")
        return name

    def _rescaled(self, op: Op, value: Value, tensor: TensorType, name: str) -> Value:
        return self._twins.converted(op, value, tensor, f"{name}_rescaled")

    def _output(self, value: Value) -> Value:
        """Return what the graph returns in place of *value*, under its name."""
        home = self._twins.home(value)
        if home is None or value.owner is None:
            return value
        wanted = TensorType(value.tensor.shape, value.tensor.dtype)
        if home.tensor != wanted:
            return self._graph.append(conversion(home, wanted, value.name, value.owner)).result
        if not self._graph.is_output(home) and home.owner is not None:
            home.name = value.name
            return home
        place = value.owner.location
        copy = Identity([home], result_types=[wanted], names=[value.name], location=place)
        return self._graph.append(copy).result

    def _layer(self, op: Op, dtype: DType) -> list[Value | None]:
        """Return the stored operands of an op with weights: input, weights, bias, residual."""
        x, weights, bias, *rest = (*op.operands, None)[: max(3, len(op.operands))]
        if x is None or weights is None:
            raise op.error("an input and weights are needed")
        source = self._twins.get(op, x, dtype)
        reals = _constant(op, weights), None if bias is None else _constant(op, bias)
        if dtype in REAL:
            layer = self._real_layer(op, reals, dtype)
        else:
            layer = self._code_layer(op, source, reals)
        more = [None if v is None else self._twins.get(op, v, dtype) for v in rest]
        return [source, *layer, *more]

    def _real_layer(
        self, op: Op, reals: tuple[Array, Array | None], dtype: DType
    ) -> list[Value | None]:
        """Return weights as *dtype* and the bias as float32."""
        kinds = (dtype, DType.F32)
        made: list[Value | None] = []
        for value, array, kind in zip((*op.operands[1:], None)[:2], reals, kinds, strict=True):
            wanted = None if value is None else value.tensor.with_quant(kind, None)
            if value is None or array is None or wanted is None or value.tensor == wanted:
                made.append(value)
            else:
                made.append(self._twins.constant(op, value, array, wanted))
        return made

    def _code_layer(
        self, op: Op, source: Value, reals: tuple[Array, Array | None]
    ) -> list[Value | None]:
        """Return int8 weights and the bias in whole units."""
        weights, bias = op.operands[1], (*op.operands, None)[2]
        quant = source.tensor.quant
        result = stored_type(op, op.result, source.tensor.dtype).quant
        if weights is None or quant is None or result is None:
            raise op.error("an input and weights are needed")
        layer = Layer(
            weights=reals[0],
            bias=reals[1],
            input_scale=quant.scale,
            output_scale=result.scale,
            frozen=weights.tensor.quant,
            dtype=source.tensor.dtype,
        )
        try:
            transposed = op.WEIGHT_AXIS == 1
            group = op.attributes["group"] if transposed else 1
            made = quantise_transposed(layer, group) if transposed else quantise_weights(layer)
        except ValueError as error:
            raise op.error(str(error)) from error
        self._context.notes += [
            Diagnostic(op.location, f"{op.NAME} %{op.result.name}: {text}", severity="warning")
            for text in made.notes
        ]
        stored = TensorType((), DType.I8, made.quant)
        codes = self._twins.constant(op, weights, made.weights, stored)
        if bias is None or made.bias is None:
            return [codes, None]
        kind = DType.I64 if made.bias.dtype == np.int64 else DType.I32
        return [codes, self._twins.constant(op, bias, made.bias, TensorType((), kind))]


def _constant(op: Op, value: Value) -> Array:
    found = real_constant(value)
    if found is None:
        raise op.error(f"%{value.name} must be a constant, the NPU has no layer of two activations")
    return found
