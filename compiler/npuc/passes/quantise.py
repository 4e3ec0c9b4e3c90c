"""Rewrite float ops as int8 ops, with the parameters that the float types carry.

Activations are int8 per tensor, weights int8 per output channel in [-127, 127] with zero point 0,
biases int32 in units of input scale * weight scale. Float inputs pass through ``quantize``, float
outputs through ``dequantize``. Ops that are int8 already are left alone.

A weight scale is raised where the bias would not fit (C07), and a channel that int8 cannot hold is
noted (C33); both rules are in ``weights``.

Invariant: afterwards no op but quantize and dequantize touches a float, and no float type carries
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuabi.enums import DType
from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops.clip import Clip
from npuc.ops.dequantize import Dequantize
from npuc.ops.quantize import Quantize
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, add_constant, erase_unused, real_constant
from npuc.passes.level import Level
from npuc.passes.weights import Layer, quantise_weights
from npuc.reference import quantize_codes

__all__ = ["Quantise"]


@dataclass(frozen=True, kw_only=True)
class Quantise:
    """Replace float arithmetic by integer arithmetic."""

    NAME: ClassVar[str] = "quantise"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Quantise every float op of *graph*."""
        _Rewriter(graph, context).run()


class _Rewriter:
    """One run: *_twins* maps each float value to the int8 value that stands for it."""

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self._graph = graph
        self._context = context
        self._names = Names(graph)
        self._twins: dict[Value, Value] = {}

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
            if value.tensor.dtype is DType.F32:
                value.type = value.tensor.with_quant(DType.F32, None)

    def _rewrite(self, op: Op) -> bool:
        """Put the int8 form of *op* before it; return whether *op* is no longer needed."""
        if isinstance(op, Quantize):
            return self._rewrite_quantize(op)
        if not op.COMPUTES or op.results[0].tensor.dtype is not DType.F32:
            return isinstance(op, Dequantize)
        operands = self._twins_of(op) if op.WEIGHT_AXIS is None else self._layer(op)
        if op.TIED_OPERANDS:
            operands = self._alike(op, operands)
        given = op.TIED or op.FIXED
        made = self._given(op, operands) if given else self._free(op, operands)
        for old, new in zip(op.results, made, strict=True):
            self._twins[old] = new
        return True

    def _rewrite_quantize(self, op: Op) -> bool:
        """Let readers of an explicit quantize read the int8 value that exists already."""
        (real,) = op.inputs
        if real.owner is None or real not in self._twins:
            return False
        twin = self._twins[real]
        returned = self._graph.is_output(op.result)
        if twin.tensor != op.result.tensor or (returned and self._graph.is_output(twin)):
            twin = self._rescaled(op, twin, op.result.tensor, op.result.name)
        if returned:
            twin.name = op.result.name
        self._graph.replace(op.result, twin)
        return True

    def _twin(self, op: Op, value: Value) -> Value:
        """Return the int8 value of the float *value*, made before *op* on first use."""
        if value not in self._twins:
            self._twins[value] = self._first_twin(op, value)
        return self._twins[value]

    def _first_twin(self, op: Op, value: Value) -> Value:
        owner = value.owner
        if isinstance(owner, Dequantize) and owner.inputs[0].tensor == _stored(op, value):
            return owner.inputs[0]
        constant = real_constant(value)
        if constant is not None:
            typed = _stored(op, value)
            rounding = self._context.rounding
            codes = quantize_codes(constant, _quant(op, value), typed.numpy, rounding)
            return self._codes(owner or op, value, codes, typed)
        made = Quantize(
            [value],
            result_types=[_stored(op, value)],
            names=[self._names.fresh(f"{value.name}_q")],
            location=op.location if owner is None else owner.location,
        )
        return self._graph.insert(made, before=op).result

    def _twins_of(self, op: Op) -> list[Value | None]:
        """Return the int8 operands; parameters stay as they are."""
        read = set(op.activations)
        return [self._twin(op, v) if v in read else v for v in op.operands]

    def _alike(self, op: Op, operands: list[Value | None]) -> list[Value | None]:
        """Return int8 operands in the parameters of the result."""
        quant = _quant(op, op.result)
        return [
            v
            if v is None or v.tensor.quant in (None, quant)
            else self._rescaled(op, v, v.tensor.with_quant(DType.I8, quant), v.name)
            for v in operands
        ]

    def _free(self, op: Op, operands: list[Value | None]) -> list[Value]:
        """Rebuild an op that computes its results in any parameters."""
        types = [_stored(op, v) for v in op.results]
        return self._rebuilt(op, operands, types)

    def _given(self, op: Op, operands: list[Value | None]) -> list[Value]:
        """Rebuild an op with its operand's or fixed parameters; rescale where others are wanted."""
        operand = next(v for v in operands if v is not None)
        source = op.FIXED.get(DType.I8, operand.tensor.quant)
        types = [v.tensor.with_quant(DType.I8, source) for v in op.results]
        made = self._rebuilt(op, operands, types)
        wanted = [_stored(op, v) for v in op.results]
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
        returned = self._graph.is_output(value)
        return self._names.fresh(f"{value.name}_q") if returned else value.name

    def _rescaled(self, op: Op, value: Value, tensor: TensorType, name: str) -> Value:
        """Return *value* in other parameters: a clip without bounds."""
        made = Clip(
            [value],
            result_types=[tensor],
            names=[self._names.fresh(f"{name}_rescaled")],
            location=op.location,
        )
        return self._graph.insert(made, before=op).result

    def _output(self, value: Value) -> Value:
        """Return what the graph returns in place of *value*."""
        twin = self._twins.get(value)
        if twin is None or value.owner is None or isinstance(value.owner, Dequantize):
            return value
        made = Dequantize(
            [twin],
            result_types=[TensorType(value.tensor.shape)],
            names=[value.name],
            location=value.owner.location,
        )
        return self._graph.append(made).result

    def _layer(self, op: Op) -> list[Value | None]:
        """Return the int8 operands of a conv2d or dense: input, weights, bias, residual."""
        x, weights, bias, *rest = (*op.operands, None)[: max(3, len(op.operands))]
        if x is None or weights is None:
            raise op.error("an input and weights are needed")
        source = self._twin(op, x)
        layer = Layer(
            weights=_constant(op, weights),
            bias=None if bias is None else _constant(op, bias),
            input_scale=_quant(op, x).scale,
            output_scale=_quant(op, op.result).scale,
            frozen=weights.tensor.quant,
        )
        try:
            made = quantise_weights(layer)
        except ValueError as error:
            raise op.error(str(error)) from error
        self._context.notes += [
            Diagnostic(op.location, f"{op.NAME} %{op.result.name}: {text}", severity="warning")
            for text in made.notes
        ]
        codes = self._codes(op, weights, made.weights, TensorType((), DType.I8, made.quant))
        sums = None
        if bias is not None and made.bias is not None:
            sums = self._codes(op, bias, made.bias, TensorType((), DType.I32))
        return [source, codes, sums, *[None if v is None else self._twin(op, v) for v in rest]]

    def _codes(self, op: Op, value: Value, array: Array, tensor: TensorType) -> Value:
        return add_constant(
            self._graph,
            array,
            tensor,
            name=self._names.fresh(f"{value.name}_q"),
            before=op,
            location=op.location,
        )


def _constant(op: Op, value: Value) -> Array:
    found = real_constant(value)
    if found is None:
        raise op.error(f"%{value.name} must be a constant, the NPU has no layer of two activations")
    return found


def _quant(op: Op, value: Value) -> Quant:
    """Return the per-tensor parameters that the float type of *value* carries."""
    quant = value.tensor.quant
    if quant is None:
        raise op.error(f"%{value.name} has no quantisation parameters: run calibrate first")
    if quant.axis is not None:
        raise op.error(f"%{value.name} is quantised per axis, expected per tensor")
    return quant


def _stored(op: Op, value: Value) -> TensorType:
    return value.tensor.with_quant(DType.I8, _quant(op, value))
