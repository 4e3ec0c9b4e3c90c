"""Graph to MLIR's generic form, for the tools of that world; one way only.

The graph is a ``func.func`` in a ``builtin.module``; every op is ``"npuc.name"`` (tasks keep
``"npu.name"``) of an unregistered dialect. Quantised elements are ``!quant.uniform``, a layout is
the tensor's encoding ``#npu.tensor``, a buffer is ``!npu.buffer``; names that MLIR has no place
for are attributes ``npu.name``.

Invariant: the text parses without knowing our dialects, and every number in it is exact.
Attributes that have their default are left out, as in graph text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from npuabi.enums import DType
from npuc.ir.const import Const, Data, Elided, File, Random, Splat
from npuc.ir.core import Array, Graph, Op, State, Value
from npuc.ir.printer import DENSE_ELEMENTS, checksum, given_attributes, shortest
from npuc.ir.state import initial_of
from npuc.ir.types import Quant, TensorType, Type

__all__ = ["print_mlir"]

_UNSAFE = re.compile(r"[^A-Za-z0-9_$.-]")

_ELEMENTS = {DType.U8: "ui8", DType.I8: "i8", DType.I16: "i16", DType.I32: "i32",
             DType.I64: "i64", DType.F16: "f16", DType.F32: "f32"}  # fmt: skip


def print_mlir(graph: Graph, *, elide: int | None = None) -> str:
    """Return *graph*, of any level, as a module in generic form.

    Written-out constants of more than *elide* elements are replaced by their checksum.
    """
    names = _names(graph)
    arguments = ", ".join(f"{names[v]}: {_type(v.type)}" for v in graph.arguments)
    lines = [
        '"builtin.module"() ({',
        f'  "func.func"() <{{{_signature(graph, elide)}}}> ({{',
        f"  ^bb0({arguments}):",
        *(f"    {_operation(op, names, elide)}" for op in graph.ops),
        f'    "func.return"({_listed(names[v] for v in graph.outputs)}) : '
        f"({_listed(_type(v.type) for v in graph.outputs)}) -> ()",
        f"  }}) {_braced(_graph_attributes(graph))}: () -> ()",
        "}) : () -> ()",
    ]
    return "\n".join(lines) + "\n"


def _names(graph: Graph) -> dict[Value, str]:
    """Return a unique SSA name for each value: its own, with what MLIR cannot read replaced."""
    names: dict[Value, str] = {}
    values = [*graph.arguments, *(v for op in graph.ops for v in op.results)]
    plain = {v.name for v in values}
    used: set[str] = set()
    for number, value in enumerate(values):
        name = _safe(value.name)
        while not name or name in used or (name != value.name and name in plain):
            name = f"{name}_v{number}"
        used.add(name)
        names[value] = f"%{name}"
    return names


def _safe(name: str) -> str:
    """An identifier is all digits or begins with none."""
    safe = _UNSAFE.sub("_", name)
    return f"_{safe}" if safe[:1].isdigit() else safe


def _signature(graph: Graph, elide: int | None) -> str:
    """Return the properties of the function: its type, its name, those of inputs and outputs."""
    inputs = _listed(_type(v.type) for v in graph.arguments)
    outputs = _listed(_type(v.type) for v in graph.outputs)
    parts = [f"function_type = ({inputs}) -> ({outputs})", f"sym_name = {_string(graph.name)}"]
    kept = [_state(state, elide) for state in graph.states]
    updates = [[("npu.state", _string(state.name))] for state in graph.states]
    for word, values, more in (
        ("arg_attrs", graph.arguments, kept),
        ("res_attrs", graph.outputs, updates),
    ):
        if values:
            beside: list[list[tuple[str, str]]] = [[] for _ in values[len(more) :]]
            pairs = zip(values, [*beside, *more], strict=True)
            listed = [_braced([("npu.name", _string(v.name)), *also]).rstrip() for v, also in pairs]
            parts.append(f"{word} = [{_listed(listed)}]")
    return ", ".join(parts)


def _state(state: State, elide: int | None) -> list[tuple[str, str]]:
    """Return what marks the argument that is a state: its name, its first value."""
    first = _braced([_data(initial_of(state), elide)]).rstrip()
    return [("npu.state", _string(state.name)), ("npu.init", first)]


def _graph_attributes(graph: Graph) -> list[tuple[str, str]]:
    return [(f"npu.{name}", _literal(value)) for name, value in graph.attributes.items()]


def _operation(op: Op, names: dict[Value, str], elide: int | None) -> str:
    results = _listed(names[v] for v in op.results)
    left = f"{results} = " if results else ""
    kind = op.NAME if "." in op.NAME else f"npuc.{op.NAME}"
    operands = _listed(names[v] for v in op.inputs)
    inputs = _listed(_type(v.type) for v in op.inputs)
    outputs = _listed(_type(v.type) for v in op.results)
    right = outputs if len(op.results) == 1 else f"({outputs})"
    attributes = _braced(_attributes(op, names, elide))
    return f'{left}"{kind}"({operands}) {attributes}: ({inputs}) -> {right}'


def _attributes(op: Op, names: dict[Value, str], elide: int | None) -> Iterator[tuple[str, str]]:
    renamed = [v.name for v in op.results if names[v] != f"%{v.name}"]
    if any(renamed):
        yield "npu.names", _literal([v.name for v in op.results])
    if any(field.optional or field.variadic for field in op.OPERANDS):
        yield "operandSegmentSizes", f"array<i32: {_listed(map(str, _segments(op)))}>"
    if isinstance(op, Const):
        yield _data(op, elide)
    for field in given_attributes(op):
        yield field.name, _literal(op.attributes[field.name], field.kind)


def _segments(op: Op) -> list[int]:
    """Return how many values each declared operand has: absent ones have none."""
    operands = op.operands
    sizes = []
    for index, field in enumerate(op.OPERANDS):
        if field.variadic:
            sizes.append(len(operands) - index)
        else:
            sizes.append(int(index < len(operands) and operands[index] is not None))
    return sizes


# --- attributes -------------------------------------------------------------------------------


def _literal(value: object, kind: str = "") -> str:
    """Return an attribute; *kind* says floats where a number is written without a fraction."""
    if isinstance(value, list | tuple):
        return _array(value, kind)
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float | np.floating):
        return f"{_float(float(value))} : f64"
    if isinstance(value, int | np.integer):
        return f"{_float(float(value))} : f64" if "float" in kind else f"{int(value)} : i64"
    raise TypeError(f"an attribute cannot hold {value!r}")


def _array(values: Sequence[object], kind: str) -> str:
    """Return integers packed, anything else as a list of attributes."""
    if values and all(type(v) is int for v in values) and "float" not in kind:
        return f"array<i64: {_listed(map(str, values))}>"
    return f"[{_listed(_literal(v, kind) for v in values)}]"


def _float(value: float) -> str:
    """Return the shortest exact decimal, with the point that MLIR asks for; bits if infinite."""
    if not math.isfinite(value):
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return _pointed(repr(value))


def _pointed(text: str) -> str:
    digits, e, exponent = text.partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}{e}{exponent}"


def _string(text: str) -> str:
    """Return a string literal: what is not plain ASCII becomes the hex of its UTF-8 bytes."""
    octets = text.encode()
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in octets)
    return f'"{"".join(plain)}"'


def _braced(pairs: Iterable[tuple[str, str]]) -> str:
    """Return an attribute dictionary and a blank, or nothing."""
    listed = ", ".join(f"{name} = {text}" for name, text in pairs)
    return f"{{{listed}}} " if listed else ""


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


# --- constants --------------------------------------------------------------------------------


def _data(op: Const, elide: int | None) -> tuple[str, str]:
    printer = _PRINTERS.get(type(op.data))
    if printer is not None:
        return printer(op.data)
    array = op.value()
    if elide is not None and array.size > elide:
        return "elided", _string(checksum(array))
    tensor = op.result.tensor
    dims = "".join(f"{d}x" for d in tensor.dims)
    return "value", f"dense<{_numbers(array)}> : tensor<{dims}{_ELEMENTS[tensor.dtype]}>"


def _numbers(array: Array) -> str:
    if array.size > DENSE_ELEMENTS:
        return f'"0x{array.tobytes().hex().upper()}"'
    return _nested(array) if array.size else ""


def _nested(array: Array) -> str:
    if array.ndim:
        return f"[{_listed(map(_nested, array))}]"
    text = shortest(array.dtype.type(array))
    return _pointed(text) if array.dtype.kind == "f" else text


def _splat(data: Splat) -> tuple[str, str]:
    return "splat", _literal(data.value)


def _random(data: Random) -> tuple[str, str]:
    pairs = (("seed", data.seed), ("mean", float(data.mean)), ("std", float(data.std)))
    return "random", _braced([(name, _literal(value)) for name, value in pairs]).rstrip()


def _file(data: File) -> tuple[str, str]:
    return "file", _literal([data.name] if data.key is None else [data.name, data.key])


def _elided(data: Elided) -> tuple[str, str]:
    return "elided", _string(data.digest)


_PRINTERS: dict[type[Data], Callable[[Any], tuple[str, str]]] = {
    Elided: _elided,
    File: _file,
    Random: _random,
    Splat: _splat,
}


# --- types ------------------------------------------------------------------------------------


def _type(type: Type) -> str:
    return _tensor(type) if isinstance(type, TensorType) else f"!npu.{type}"


def _tensor(tensor: TensorType) -> str:
    dims = "".join(f"{'?' if d is None else d}x" for d in tensor.shape)
    element = _ELEMENTS[tensor.dtype]
    notes = []
    if tensor.quant is not None and element.startswith("f"):
        notes.append(str(tensor.quant))
    elif tensor.quant is not None:
        element = _quantised(tensor.dtype.text, tensor.quant)
    if tensor.layout is not None:
        notes.append(tensor.layout.name.lower())
    encoding = f", #npu.tensor<{', '.join(notes)}>" if notes else ""
    return f"tensor<{dims}{element}{encoding}>"


def _quantised(storage: str, quant: Quant) -> str:
    pairs = zip(quant.scales, quant.zero_points, strict=True)
    listed = _listed(f"{_float(scale)}:{point}" for scale, point in pairs)
    if quant.axis is None:
        return f"!quant.uniform<{storage}:f32, {listed}>"
    return f"!quant.uniform<{storage}:f32:{quant.axis}, {{{listed}}}>"
