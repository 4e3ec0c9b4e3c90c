"""What kernels on floats share: the head of their parameters, a layer's bias, clamps.

Invariant: numbers are computed in float32, and rounded once, to the output's dtype. What is no
number, or none that the dtype holds, stays that: floats have no error of range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import ToaFlag
from npuabi.errors import ErrorCode
from npuabi.records import FloatParams
from npufw.errors import FirmwareError
from npufw.kernels.base import Arrays, Step
from npufw.kernels.layout import pixels
from npufw.kernels.params import HEAD_WORDS
from npufw.kernels.vector import FLOATS

__all__ = ["bounded", "float_bias", "float_head", "float_output", "is_float", "real_pixels"]

Reals = NDArray[np.float32]

_BOUNDS = ("low", "high", "inner_low", "inner_high")


def is_float(step: Step) -> bool:
    """Return whether *step* computes on floats."""
    return step.input.dtype in FLOATS


def real_pixels(arrays: Arrays, step: Step) -> Reals:
    """Return the first operand as N, H, W, C in float32."""
    return pixels(arrays.input, step.input).astype(np.float32)


def float_head(words: NDArray[Any], where: str) -> FloatParams:
    """Return the FloatParams at the start of *words*; FirmwareError when a bound is no number."""
    row = np.frombuffer(words.reshape(-1)[:HEAD_WORDS].tobytes(), FloatParams.DTYPE)
    params = FloatParams(**dict(zip(FloatParams.FIELDS, row[0].item(), strict=True)))
    for name in _BOUNDS:
        if np.isnan(getattr(params, name)):
            text = f"{where}: parameters: {name} is no number"
            raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    return params


def float_bias(words: NDArray[Any], channels: int) -> Reals:
    """Return the bias of each output channel, which follows the head."""
    raw = words.reshape(-1)[HEAD_WORDS : HEAD_WORDS + channels].astype("<i4")
    return raw.view("<f4").astype(np.float32)


def bounded(values: Reals, low: float, high: float) -> Reals:
    """Return *values* within [low, high]."""
    return np.minimum(np.maximum(values, np.float32(low)), np.float32(high))


def float_output(sums: Reals, step: Step, arrays: Arrays, params: FloatParams) -> NDArray[Any]:
    """Return the output of N, H, W, C *sums*: the residual added if any, clamped, rounded."""
    with np.errstate(over="ignore", invalid="ignore"):
        if step.toa.flags & ToaFlag.RESIDUAL:
            inner = bounded(sums, params.inner_low, params.inner_high)
            sums = inner + pixels(arrays.residual, step.operand("residual")).astype(np.float32)
        return bounded(sums, params.low, params.high).astype(step.output.dtype.numpy)
