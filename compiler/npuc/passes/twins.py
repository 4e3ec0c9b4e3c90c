"""The stored forms of float values: int8 and int16 codes, fp16 and fp32 numbers.

A value is stored in the precision of the op that makes it, its home. A reader of another precision
gets a conversion, made once: a clip without bounds between codes, quantize and dequantize between
codes and numbers, cast between numbers. Constants are stored anew in each.

Invariant: a twin stands before its readers, and a float value has one twin an element type.
"""

from __future__ import annotations

from npuabi.enums import DType
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops.cast import Cast
from npuc.ops.clip import Clip
from npuc.ops.dequantize import Dequantize
from npuc.ops.quantised import CODES, REAL
from npuc.ops.quantize import Quantize
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, add_constant, real_constant
from npuc.passes.parameters import activation_quant, wide_quant
from npuc.reference import quantize_codes

__all__ = ["Twins", "quant_of_float", "stored_type"]


def quant_of_float(op: Op, value: Value) -> Quant:
    """Return the int8 parameters that the float type of *value* carries, an operand of *op*."""
    quant = value.tensor.quant
    if quant is None:
        raise op.error(f"%{value.name} has no quantisation parameters: run calibrate first")
    if quant.axis is not None:
        raise op.error(f"%{value.name} is quantised per axis, expected per tensor")
    return quant


def stored_type(op: Op, value: Value, dtype: DType) -> TensorType:
    """Return the type of the float *value*, an operand or result of *op*, stored as *dtype*."""
    if dtype in REAL:
        return value.tensor.with_quant(dtype, None)
    fixed = {} if value.owner is None else value.owner.FIXED
    if dtype is DType.I16 and dtype in fixed:
        return value.tensor.with_quant(dtype, fixed[dtype])
    quant = quant_of_float(op, value)
    return value.tensor.with_quant(dtype, quant if dtype is DType.I8 else wide_quant(quant))


class Twins:
    """The stored forms of a graph's float values, made on first use."""

    def __init__(self, graph: Graph, context: PassContext, names: Names) -> None:
        self._graph = graph
        self._context = context
        self._names = names
        self._homes: dict[Value, Value] = {}
        self._forms: dict[Value, dict[DType, Value]] = {}

    def put(self, value: Value, home: Value) -> None:
        """State that the op that made *value* stores it as *home*."""
        self._homes[value] = home
        self._forms[value] = {home.tensor.dtype: home}

    def home(self, value: Value) -> Value | None:
        """Return the form in which *value* was made; None when no op was rewritten to make it."""
        return self._homes.get(value)

    def existing(self, value: Value, dtype: DType) -> Value | None:
        """Return *value* stored as *dtype* where it is by now, else its home or nothing."""
        return self._forms.get(value, {}).get(dtype, self.home(value))

    def get(self, op: Op, value: Value, dtype: DType) -> Value:
        """Return *value* stored as *dtype*, made before *op* on first use."""
        forms = self._forms.setdefault(value, {})
        if dtype not in forms:
            forms[dtype] = self._first(op, value, dtype)
        return forms[dtype]

    def _first(self, op: Op, value: Value, dtype: DType) -> Value:
        wanted = stored_type(op, value, dtype)
        constant = real_constant(value)
        if constant is not None:
            return self._constant(op, value, constant, wanted)
        source = self.home(value) or _given(value, wanted)
        suffix = "q" if dtype in CODES and source is value else dtype.text
        return self.converted(op, source, wanted, f"{value.name}_{suffix}")

    def converted(self, op: Op, source: Value, wanted: TensorType, name: str) -> Value:
        """Return *source* as *wanted*, converted before *op* where the types differ."""
        if source.tensor == wanted:
            return source
        return self._graph.insert(
            conversion(source, wanted, self._names.fresh(name), op), before=op
        ).result

    def constant(self, op: Op, value: Value, array: Array, tensor: TensorType) -> Value:
        """Put a stored form of the constant *value* before *op*."""
        suffix = "q" if tensor.dtype not in REAL else tensor.dtype.text
        return add_constant(
            self._graph,
            array,
            tensor,
            name=self._names.fresh(f"{value.name}_{suffix}"),
            before=op,
            location=op.location,
        )

    def parameter(self, op: Op, value: Value) -> Value:
        """Return the constant *value*, a parameter of *op*, as int8 codes put before the op.

        Parameters that its type carries are kept; else they hold its smallest and largest number.
        """
        array = real_constant(value)
        if array is None:
            raise op.error(f"%{value.name} must be a constant, the NPU stores it with the op")
        quant = value.tensor.quant or activation_quant(array.min(), array.max())
        wanted = value.tensor.with_quant(DType.I8, quant)
        codes = quantize_codes(array, quant, wanted.numpy, self._context.rounding)
        return self.constant(op, value, codes, wanted)

    def _constant(self, op: Op, value: Value, array: Array, wanted: TensorType) -> Value:
        if value.tensor == wanted:
            return value
        if wanted.quant is not None:
            array = quantize_codes(array, wanted.quant, wanted.numpy, self._context.rounding)
        return self.constant(value.owner or op, value, array, wanted)


def conversion(source: Value, wanted: TensorType, name: str, reader: Op) -> Op:
    """Return the op that makes *wanted* of *source*: from codes or numbers, to codes or numbers."""
    kind: type[Op] = _KINDS[source.tensor.dtype in CODES, wanted.dtype in CODES]
    return kind(
        [source],
        {"to": wanted.dtype.text} if kind is Cast else {},
        result_types=[wanted],
        names=[name],
        location=reader.location if source.owner is None else source.owner.location,
    )


_KINDS: dict[tuple[bool, bool], type[Op]] = {
    (True, True): Clip,
    (True, False): Dequantize,
    (False, True): Quantize,
    (False, False): Cast,
}


def _given(value: Value, wanted: TensorType) -> Value:
    """Return what a value that no rewritten op makes is read from: itself, or the codes it was."""
    owner = value.owner
    if not isinstance(owner, Dequantize) or wanted.dtype is value.tensor.dtype:
        return value
    codes = owner.inputs[0]
    rescaled = codes.tensor.dtype is wanted.dtype and codes.tensor != wanted
    return value if rescaled or codes.tensor.dtype not in CODES else codes
