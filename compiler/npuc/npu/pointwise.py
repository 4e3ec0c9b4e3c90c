"""Lowering of functions of one or two tensors, element by element.

Invariant: operands broadcast as they lie in memory, dims of 1 repeated; ``explicit_broadcast`` has
lined up whatever else differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuabi.postfix import encode, lane_ops
from npuc.expression import Expression, program
from npuc.ir.core import Array, Op, Value
from npuc.npu.builder import Builder, op_params
from npuc.npu.tasks import Eval, Lookup, Prelu, Task
from npuc.pointwise_codes import Slopes, signed_multiplier

__all__ = ["lower_eval", "lower_lookup", "lower_pair", "lower_slopes"]

_WORD = 4


def lower_eval(
    builder: Builder,
    op: Op,
    expression: Expression,
    operands: Sequence[Value],
    result: Value,
    clamp: tuple[int, int] | None = None,
) -> None:
    """Append an EVAL of one or two L2 values into *result*.

    Codes enter the program less their zero point, and leave it before the result's is added;
    *clamp* holds resulting codes.
    """
    steps = program(expression)
    params = op_params(**_points(operands, result))
    words = builder.params(params, encode(steps).view(np.uint8))
    _append(builder, Eval, op, operands, words, result, clamp, groups=lane_ops(steps))


def lower_pair(
    builder: Builder,
    kind: type[Task],
    op: Op,
    operands: Sequence[Value],
    result: Value,
    clamp: tuple[int, int] | None = None,
    **fields: Any,
) -> None:
    """Append a task of two L2 values; *fields* are those of its parameters beyond zero points."""
    params = None
    if any(spec.name == "params" for spec in kind.OPERANDS):
        params = builder.params(op_params(**_points(operands, result), **fields))
    _append(builder, kind, op, operands, params, result, clamp)


def lower_lookup(
    builder: Builder,
    op: Op,
    x: Value,
    table: Array,
    result: Value,
    *,
    form: int = 1,
    **fields: int,
) -> None:
    """Append a LOOKUP of L2 value *x*, in one of the kernel's forms.

    1: 256 i8 or 513 i16 entries; others: 256 uint16 entries, and *fields* scale the codes.
    """
    raw = np.ascontiguousarray(table, table.dtype.newbyteorder("<")).view(np.uint8)
    words = builder.params(op_params(**fields), np.pad(raw, (0, -raw.size % _WORD)))
    _append(builder, Lookup, op, [x], words, result, None, kernel=(form, 1))


def lower_slopes(
    builder: Builder, op: Op, x: Value, by: Value | None, slopes: Slopes, result: Value
) -> None:
    """Append a PRELU of *x*, times the slopes *by* below zero."""
    above, below = signed_multiplier(slopes.above), signed_multiplier(slopes.below)
    operands = [x] if by is None else [x, by]
    fields: dict[str, Any] = {
        "input_multiplier": above[0],
        "input_shift": above[1],
        "residual_multiplier": below[0],
        "residual_shift": below[1],
    }
    lower_pair(builder, Prelu, op, operands, result, **fields)


def _points(operands: Sequence[Value], result: Value) -> dict[str, int]:
    names = ("input_zero_point", "residual_zero_point")
    found = {name: _zero_point(value) for name, value in zip(names, operands, strict=False)}
    return {**found, "output_zero_point": _zero_point(result)}


def _zero_point(value: Value) -> int:
    quant = value.tensor.quant
    return 0 if quant is None else quant.zero_point


def _append(
    builder: Builder,
    kind: type[Task],
    op: Op,
    operands: Sequence[Value],
    params: Value | None,
    result: Value,
    clamp: tuple[int, int] | None,
    **attributes: Any,
) -> None:
    held = {} if clamp is None else {"clamp": clamp}
    first, *others = map(builder.read, operands)
    constants = [] if params is None else [params]
    buffers = [first, builder.result_of(result), *constants, *others]
    builder.task(kind, op, buffers, **held, **attributes)
