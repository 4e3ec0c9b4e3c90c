"""What the norms ask of their operands, attributes and rows."""

from __future__ import annotations

import math
from typing import Protocol

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr
from npuc.norms import LONGEST_ROW, Norm, norm_codes, norm_real
from npuc.ops.quantised import check_results, is_quantised, quant_of, require_activation
from npuc.ops.shapes import text

__all__ = ["ROW", "STASH_TYPE", "check_channels", "check_norm", "normalised"]

STASH_TYPE = attr("1 only: the type of the sums, float32", AttrKind.INT, default=1)


class _Rows(Protocol):
    x: Value

    @property
    def row_elements(self) -> int: ...


def _row_fits(op: _Rows) -> bool:
    dims, dtype = op.x.tensor.shape, op.x.tensor.dtype
    return None in dims or not is_quantised(op.x) or op.row_elements <= LONGEST_ROW[dtype]


ROW = Limit(
    f"a row that is normalised has at most {LONGEST_ROW[DType.I8]:,} elements at int8, "
    f"{LONGEST_ROW[DType.I16]:,} at int16",
    _row_fits,
    "use another precision, or smaller rows",
)
"""The exact sums of a row fit 64 bits."""


def check_norm(op: Op) -> None:
    """Check types, parameters, epsilon and stash_type."""
    check_results(op)
    x, *affine = op.inputs
    require_activation(x, op.result)
    for value in affine:
        if value.tensor.dtype is not DType.F32:
            raise ValueError(f"%{value.name} is {value.tensor.dtype.text}, expected f32")
    epsilon = op.attributes["epsilon"]
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon is a number of at least 0, got {epsilon}")
    if op.attributes.get("stash_type", 1) != 1:
        raise ValueError(f"stash_type is 1 (float32), got {op.attributes['stash_type']}")


def normalised(op: Op, x: Array, norm: Norm, rounding: Rounding) -> Array:
    """Return the result of *op* on its operand's numbers or codes."""
    (source,) = op.activations
    if is_quantised(source):
        return norm_codes(x, norm, quant_of(source), quant_of(op.result), rounding)
    return norm_real(x, norm)


def check_channels(x: Value, **parameters: Value) -> None:
    """Refuse parameters that have not one number for each channel of *x*."""
    channels = x.tensor.shape[1]
    for name, value in parameters.items():
        shape = value.tensor.shape
        if len(shape) != 1 or (None not in (channels, shape[0]) and shape[0] != channels):
            expected = "?" if channels is None else channels
            got = text(shape)
            raise ValueError(f"{name} has shape {expected}, one number a channel, got {got}")
