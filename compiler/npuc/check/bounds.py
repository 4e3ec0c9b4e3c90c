"""How far a float op of the device may be from the reference, given the same operands.

The device sums in fp32, in an order of its own, and rounds the result once to its type. So a result
may be off by 4 * K * 2^-24 * sum|x * w| over its K terms, and then by half a step of the type. Ops
that are no products count as K terms of the largest number that they read or give, K being how
many elements they read for one that they give, at least 4.

Invariant: codes, and ops that only convert, have no bound: there the reference must be met exactly.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, Op
from npuc.ops.quantised import REAL

__all__ = ["bound_of", "has_bound"]

_UNIT = 2.0**-24
_LEAST_TERMS = 4
_HALF_STEPS = {DType.F16: (2.0**-11, 2.0**-25), DType.F32: (2.0**-24, 2.0**-150)}
"""Relative, and of the smallest numbers."""


def has_bound(op: Op) -> bool:
    """Return whether *op* computes real numbers that may differ from the reference."""
    return op.COMPUTES and op.results[0].tensor.dtype in REAL and op.NAME != "cast"


def bound_of(op: Op, operands: Sequence[Array | None], exact: Array) -> Array:
    """Return what each element of a stored result may be off from *exact*, its reference.

    *operands* are those that gave *exact*, in float64.
    """
    terms, sums = _product(op, operands) if op.NAME in _TERMS else _other(op, operands, exact)
    before = 4 * terms * _UNIT * sums
    relative, least = _HALF_STEPS[op.results[0].tensor.dtype]
    bound: Array = before + np.maximum((np.abs(exact) + before) * relative, least)
    return bound


def _product(op: Op, operands: Sequence[Array | None]) -> tuple[int, Array]:
    """Return K, bias and residual counted, and sum|x * w|: the op of the operands' magnitudes."""
    plain = copy.copy(op)
    plain.attributes = {**op.attributes, **dict.fromkeys(_CLAMPS & op.attributes.keys())}
    magnitudes = [None if v is None else np.abs(v) for v in operands]
    (sums,) = plain.reference(magnitudes, Rounding.DOUBLE)
    return _TERMS[op.NAME](op) + 2, sums


def _other(op: Op, operands: Sequence[Array | None], exact: Array) -> tuple[int, Array]:
    read = [v for v in operands if v is not None and v.size]
    largest = max(float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in (*read, exact))
    terms = max(math.ceil(v.size / max(exact.size, 1)) for v in read)
    return max(terms, _LEAST_TERMS), np.asarray(largest)


def _of_filter(op: Op) -> int:
    return math.prod(op.inputs[1].tensor.dims[1:])


def _of_transposed(op: Op) -> int:
    channels, _, *window = op.inputs[1].tensor.dims
    return channels * math.prod(window)


_TERMS: dict[str, Callable[[Op], int]] = {
    "conv2d": _of_filter,
    "conv_transpose2d": _of_transposed,
    "dense": _of_filter,
    "matmul": lambda op: op.inputs[0].tensor.dims[-1],
}
"""Products that an element of the result sums, by op."""

_CLAMPS = frozenset({"clamp", "inner_clamp"})
