"""What every op asks of quantised operands: element types, parameters, tied parameters, clamps.

Float ops take f32 or f16 without parameters; quantised ones take i8, or i16 with zero point 0,
with parameters per tensor. Errors
are ValueErrors whose text is for the user.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from npuabi.enums import DType
from npuc.ir.core import Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops.shapes import text

__all__ = [
    "CODES",
    "CODE_RANGES",
    "REAL",
    "check_clamp",
    "check_results",
    "is_quantised",
    "quant_of",
    "require_activation",
    "require_bias",
    "require_dtypes",
    "require_float",
    "require_float_layer",
    "require_parameters",
    "require_scaled_bias",
    "require_symmetric",
    "require_tied",
    "require_weights",
    "stated_dtype",
]

REAL = (DType.F32, DType.F16)
"""Element types that hold numbers and not codes."""
CODES = (DType.I8, DType.I16)
"""Element types of quantised activations; i16 is symmetric, its zero point is 0."""

CODE_RANGES = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}
"""The smallest and the largest code."""

_BIAS_TOLERANCE = 1e-5


def is_quantised(value: Value) -> bool:
    """Return whether *value* holds codes and not real numbers."""
    return value.tensor.coded


def stated_dtype(op: Op, allowed: Collection[DType], default: DType) -> DType:
    """Return the element type that the result is stated to have, where it is one of *allowed*.

    For ``infer`` of ops that the element type of the operands does not decide.
    """
    stated = op.results[0].tensor.dtype if op.results else default
    return stated if stated in allowed else default


def quant_of(value: Value) -> Quant:
    """Return the parameters of a quantised value; ValueError when it has none."""
    found = value.tensor.quant
    if found is None:
        advice = f"write its type as tensor<{text(value.tensor.shape)}xi8, q<scale = .., zp = ..>>"
        raise ValueError(f"%{value.name} has no quantisation parameters: {advice}")
    return found


def require_float(op: Op) -> None:
    """Refuse operands that are not numbers; for ops without a quantised form."""
    for value in op.inputs:
        if is_quantised(value):
            raise ValueError(f"%{value.name} is {value.tensor.dtype.text}, expected f32 or f16")


def require_float_layer(x: Value, weights: Value, bias: Value | None, *more: Value | None) -> None:
    """Check that a layer's float operands are of one type; the bias may be f32 beside f16."""
    for value in (weights, bias, *more):
        if value is None or value.tensor.dtype is x.tensor.dtype:
            continue
        if value is bias and value.tensor.dtype is DType.F32:
            continue
        kinds = f"{value.tensor.dtype.text}, expected {x.tensor.dtype.text} as %{x.name} is"
        raise ValueError(f"%{value.name} is {kinds}")


def require_dtypes(*values: Value) -> None:
    """Refuse activations of mixed element types, or of others than f32, f16, i8 and i16."""
    found = sorted({v.tensor.dtype for v in values})
    names = ", ".join(d.text for d in found)
    if len(found) > 1:
        raise ValueError(f"operands have one element type, got {names}")
    if found[0] not in (*REAL, *CODES):
        expected = ", ".join(d.text for d in (*REAL, *CODES))
        raise ValueError(f"element types are {expected}, got {names}")


def require_activation(*values: Value | None) -> None:
    """Check that each quantised *value* is i8 with sound parameters for the whole tensor."""
    for value in values:
        if value is None or not is_quantised(value):
            continue
        if value.tensor.dtype not in CODES:
            raise ValueError(f"%{value.name} is {value.tensor.dtype.text}, expected i8 or i16")
        if quant_of(value).axis is not None:
            raise ValueError(f"%{value.name} is quantised per axis, expected per tensor")
        require_parameters(value)
        if value.tensor.dtype is DType.I16 and quant_of(value).zero_point:
            raise ValueError(f"%{value.name} is i16, whose zero point is 0")


def require_parameters(value: Value) -> None:
    """Check that scales are positive numbers, and zero points codes of the element type."""
    quant = quant_of(value)
    for scale in quant.scales:
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"%{value.name} has scale {scale!r}, expected a positive number")
    half = 1 << (8 * value.tensor.dtype.size - 1)
    for zero_point in quant.zero_points:
        if not -half <= zero_point < half:
            expected = f"{-half} to {half - 1}"
            raise ValueError(f"%{value.name} has zero point {zero_point}, expected {expected}")


def require_weights(weights: Value) -> None:
    """Check i8 weights: parameters per tensor or per output channel (axis 0), zero points 0."""
    require_symmetric(weights)
    _check_axis(weights, quant_of(weights))


def require_symmetric(weights: Value) -> None:
    """Check i8 weights: sound parameters, zero points 0."""
    if weights.tensor.dtype is not DType.I8:
        raise ValueError(f"%{weights.name} is {weights.tensor.dtype.text}, expected i8 weights")
    found = quant_of(weights)
    require_parameters(weights)
    if any(found.zero_points):
        raise ValueError(f"%{weights.name} has weight zero points other than 0")


def _check_axis(value: Value, quant: Quant) -> None:
    channels = value.tensor.shape[0]
    if quant.axis is None:
        return
    if quant.axis != 0:
        raise ValueError(f"%{value.name} is quantised along axis {quant.axis}, expected 0")
    if channels != len(quant.scales):
        counts = f"{len(quant.scales)} scales for {channels} channels"
        raise ValueError(f"%{value.name} has {counts}")


def require_bias(x: Value, weights: Value, bias: Value | None) -> None:
    """Check the bias of weights whose scales are along axis 0, see :func:`require_scaled_bias`."""
    require_scaled_bias(x, quant_of(weights).scales, bias)


def require_scaled_bias(x: Value, scales: Sequence[float], bias: Value | None) -> None:
    """Check an i32 bias (i64 beside an i16 input): zero point 0; its scale, where given, is that
    of x * that of the weights, one or one an output channel.
    """
    if bias is None:
        return
    expected_dtype = DType.I64 if x.tensor.dtype is DType.I16 else DType.I32
    if bias.tensor.dtype is not expected_dtype:
        kinds = f"{bias.tensor.dtype.text}, expected an {expected_dtype.text} bias"
        raise ValueError(f"%{bias.name} is {kinds}")
    quant = bias.tensor.quant
    if quant is None:
        return
    if any(quant.zero_points):
        raise ValueError(f"%{bias.name} has bias zero points other than 0")
    _check_axis(bias, quant)
    # A file's float32 bias scale carries its own rounding.
    expected = quant_of(x).scale * np.array(scales)
    if not np.allclose(quant.scales, expected, rtol=_BIAS_TOLERANCE, atol=0):
        raise ValueError(f"%{bias.name} has a scale other than input scale * weight scale")


def require_tied(source: Value, *results: Value) -> None:
    """Check that *results* share the parameters of *source*: their codes are the same codes.

    Float values may carry the parameters that they will be stored with; those are left alone.
    """
    if not is_quantised(source):
        return
    for value in results:
        if value.tensor.dtype is not source.tensor.dtype:
            kinds = f"{value.tensor.dtype.text}, expected {source.tensor.dtype.text}"
            raise ValueError(f"%{value.name} is {kinds}")
        if value.tensor.quant != source.tensor.quant:
            got, expected = value.tensor.quant, source.tensor.quant
            raise ValueError(
                f"%{value.name} has the parameters of its operand: expected {expected}, got {got}"
            )


def check_results(op: Op) -> None:
    """Check the results' shapes and element types against ``infer``."""
    for value, expected in zip(op.results, op.infer(), strict=True):
        _check_type(value, expected)


def _check_type(value: Value, expected: object) -> None:
    """Refuse *value* when its shape or element type is not that of *expected*."""
    if not isinstance(expected, TensorType):
        raise ValueError(f"%{value.name} is no tensor")
    found = value.tensor
    fits = len(found.shape) == len(expected.shape) and all(
        a == b or a is None or b is None for a, b in zip(found.shape, expected.shape, strict=True)
    )
    if not fits:
        shapes = f"{text(found.shape)}, expected {text(expected.shape)}"
        raise ValueError(f"%{value.name} has shape {shapes}")
    if found.dtype is not expected.dtype:
        kinds = f"{found.dtype.text}, expected {expected.dtype.text}"
        raise ValueError(f"%{value.name} is {kinds}")


def check_clamp(name: str, clamp: Sequence[float] | None) -> None:
    """Check a fused activation's range: two numbers, the first not above the second."""
    if clamp is None:
        return
    if len(clamp) != 2 or any(map(math.isnan, clamp)) or clamp[0] > clamp[1]:
        raise ValueError(f"{name} is [low, high] with low <= high, got {list(clamp)}")
