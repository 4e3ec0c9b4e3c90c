"""Types of graph text: from ``tensor<1x8xi8, q<scale = 0.05, zp = -3>>`` to a checked type.

Invariant: a type that comes out obeys every rule of its parts: dims within bounds, a
quantisation only on integers, scales finite and above 0, zero points within the element type.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import replace

from npuabi.enums import DType, Layout, Space
from npuc.frontend.limits import MAX_DIM, MAX_RANK, MAX_TENSOR_ELEMENTS
from npuc.frontend.syntax import Attribute, Issue, Literal, QuantText, TypeText, Word
from npuc.ir.types import Buffer, Place, Quant, TensorType, Type

__all__ = ["build_type", "check_size"]

_DTYPES = {d.text: d for d in DType}
_LAYOUTS = {x.name.lower(): x for x in Layout}
_SPACES = {x.name.lower(): x for x in Space}
_RANGES = {
    DType.I8: (-128, 127),
    DType.U8: (0, 255),
    DType.I16: (-(1 << 15), (1 << 15) - 1),
    DType.I32: (-(1 << 31), (1 << 31) - 1),
    # A float value whose int8 parameters are chosen already: frozen or calibrated.
    DType.F32: (-128, 127),
    DType.F16: (-128, 127),
}
_BUFFER_INTEGERS = ("lane", "bank", "offset")

_Item = QuantText | Attribute | Word


def build_type(text: TypeText) -> Type:
    """Return the type that *text* states; raises Issue at the part that is wrong."""
    parts = _Parts(text.shaped)
    for item in text.items:
        parts.add(item, buffer=text.kind.text == "buffer")
    return parts.buffer(text.kind) if text.kind.text == "buffer" else parts.tensor


def check_size(tensor: TensorType, column: int) -> None:
    """Refuse a tensor that no target could address; raises Issue."""
    # numpy multiplies the other dims of an empty array too.
    elements = math.prod(d for d in tensor.shape if d)
    if elements > MAX_TENSOR_ELEMENTS:
        text = f"{tensor} has {elements} elements, the limit is {MAX_TENSOR_ELEMENTS}"
        raise Issue(column, text)


class _Parts:
    """Collects the items of one type, each at most once."""

    def __init__(self, shaped: Word) -> None:
        self.tensor = _shaped(shaped)
        self.space: Word | None = None
        self.fields: dict[str, Literal] = {}
        check_size(self.tensor, shaped.column)

    def add(self, item: _Item, *, buffer: bool) -> None:
        if isinstance(item, QuantText):
            self._add_quant(item)
        elif isinstance(item, Word) and item.text in _LAYOUTS:
            self._add_layout(item)
        elif buffer and isinstance(item, Word) and item.text in _SPACES and self.space is None:
            self.space = item
        elif buffer and isinstance(item, Attribute) and self._takes(item.name.text):
            self.fields[item.name.text] = item.literal
        else:
            raise _unknown_item(item, buffer=buffer)

    def _takes(self, name: str) -> bool:
        return name in (*_BUFFER_INTEGERS, "strides") and name not in self.fields

    def _add_quant(self, item: QuantText) -> None:
        if self.tensor.quant is not None:
            raise Issue(item.column, "a type has one quantisation")
        self.tensor = replace(self.tensor, quant=_quant(item, self.tensor))

    def _add_layout(self, item: Word) -> None:
        if self.tensor.layout is not None:
            raise Issue(item.column, "a type has one layout")
        self.tensor = self.tensor.with_layout(_LAYOUTS[item.text])

    def buffer(self, kind: Word) -> Buffer:
        if self.space is None or "strides" not in self.fields:
            raise Issue(kind.column, "a buffer states strides = [...] and its space (sram, arena)")
        strides = _integers(self.fields["strides"])
        numbers = {name: _natural(self.fields.get(name)) for name in _BUFFER_INTEGERS}
        return Buffer(
            tensor=self.tensor,
            strides=strides,
            place=Place(_SPACES[self.space.text], numbers["offset"]),
            lane=numbers["lane"] or 0,
            bank=numbers["bank"],
        )


def _unknown_item(item: _Item, *, buffer: bool) -> Issue:
    word = item.name if isinstance(item, Attribute) else item
    known = [*_LAYOUTS, *(_SPACES if buffer else ()), "q<...>"]
    text = word.text if isinstance(word, Word) else "q"
    return Issue(word.column, f"{text!r} is unknown or given twice, known are {', '.join(known)}")


def _natural(literal: Literal | None) -> int | None:
    if literal is None:
        return None
    if type(literal.value) is not int or literal.value < 0:
        raise Issue(literal.column, f"expected a whole number from 0, got {literal.value}")
    return literal.value


def _integers(literal: Literal) -> tuple[int, ...]:
    values = literal.value
    if not isinstance(values, tuple) or any(type(v) is not int for v in values):
        raise Issue(literal.column, f"expected a list of whole numbers, got {values}")
    return tuple(map(int, values))


def _shaped(word: Word) -> TensorType:
    *dims, element = word.text.split("x")
    if element not in _DTYPES:
        known = ", ".join(_DTYPES)
        text = f"{element!r} is no element type, expected one of {known}, as in tensor<1x3xf32>"
        raise Issue(word.column + len(word.text) - len(element), text)
    if len(dims) > MAX_RANK:
        raise Issue(word.column, f"a tensor has at most {MAX_RANK} dims, got {len(dims)}")
    shape: list[int | None] = []
    column = word.column
    for index, dim in enumerate(dims):
        shape.append(_dim(dim, index, column))
        column += len(dim) + 1
    return TensorType(tuple(shape), _DTYPES[element])


def _dim(text: str, index: int, column: int) -> int | None:
    if text == "?":
        return None
    if not re.fullmatch("[0-9]+", text) or len(text) > len(str(MAX_DIM)) or int(text) > MAX_DIM:
        rule = f"a dim is a whole number from 0 to {MAX_DIM}, or ? for a dynamic one"
        raise Issue(column, f"dim {index} is {text[:24]!r}: {rule}")
    return int(text)


def _quant(text: QuantText, tensor: TensorType) -> Quant:
    if tensor.dtype not in _RANGES:
        raise Issue(text.column, f"{tensor.dtype.text} takes no scale and zero point")
    fields = _quant_fields(text)
    axis = fields.get("axis")
    if axis is None:
        return Quant((_scale(fields["scale"]),), (_zero_point(fields["zp"], tensor.dtype),))
    scales = _per_channel(fields["scale"])
    points = _per_channel(fields["zp"])
    index = _axis(axis, tensor)
    for name, values in (("scale", scales), ("zp", points)):
        if tensor.shape[index] not in (None, len(values)):
            have = f"{name} has {len(values)} values, dim {index} is {tensor.shape[index]}"
            raise Issue(fields[name].column, have)
    if len(scales) != len(points):
        raise Issue(text.column, f"{len(scales)} scales, but {len(points)} zero points")
    return Quant(
        tuple(map(_scale, scales)), tuple(_zero_point(p, tensor.dtype) for p in points), index
    )


def _quant_fields(text: QuantText) -> dict[str, Literal]:
    fields: dict[str, Literal] = {}
    for item in text.fields:
        name = item.name.text
        if name not in ("axis", "scale", "zp") or name in fields:
            raise Issue(
                item.name.column, f"{name} is unknown or given twice, q has axis, scale, zp"
            )
        fields[name] = item.literal
    missing = [name for name in ("scale", "zp") if name not in fields]
    if missing:
        raise Issue(text.column, f"q<...> states no {missing[0]}")
    return fields


def _per_channel(literal: Literal) -> list[Literal]:
    if not isinstance(literal.value, tuple):
        raise Issue(literal.column, "with an axis, scale and zp are lists, one value a channel")
    return [Literal(v, literal.column) for v in literal.value]


def _axis(literal: Literal, tensor: TensorType) -> int:
    if type(literal.value) is not int or not 0 <= literal.value < tensor.rank:
        raise Issue(literal.column, f"axis is from 0 to {tensor.rank - 1}, got {literal.value}")
    return literal.value


def _scale(literal: Literal) -> float:
    """Return a scale; the kernels hold it as float32, where it must not vanish either."""
    value = literal.value
    if isinstance(value, bool | str | tuple) or not _fits_float32(float(value)):
        raise Issue(literal.column, f"a scale is a finite number above 0, got {value}")
    return float(value)


def _fits_float32(value: float) -> bool:
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return False
    return bool(0 < rounded < math.inf)


def _zero_point(literal: Literal, dtype: DType) -> int:
    low, high = _RANGES[dtype]
    if type(literal.value) is not int or not low <= literal.value <= high:
        raise Issue(
            literal.column, f"a zero point of {dtype.text} is {low} to {high}, got {literal.value}"
        )
    return literal.value
