"""Reading a parameters tensor: the OpParams head, then the channels' blocks.

A convolution's parameters are int32 words. Codes: 16 words of OpParams, then for every 16 output
channels bias[16], multiplier[16], shift[16] (low and high word of a float64 scale where the TOA
says real); beside int16 inputs the bias has 64 bits, its low words before its high words. Floats:
16 words of FloatParams, then the float32 bias of each channel, in whole sixteens.
The values come from memory at run time, so their ranges are checked here and not at boot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import INT32_MIN, MAX_SHIFT, MIN_SHIFT
from npuabi.geometry import LANES
from npuabi.records import OpParams
from npufw.errors import FirmwareError
from npufw.kernels.base import Step

__all__ = [
    "HEAD_WORDS",
    "ChannelBlocks",
    "channel_blocks",
    "conv_words",
    "head",
    "positive_scale",
]

HEAD_WORDS = OpParams.SIZE // 4
"""int32 words of the OpParams head."""

_ROWS = {DType.I8: 3, DType.I16: 4, DType.F16: 1, DType.F32: 1}
"""Words that a convolution's parameters have for each output channel, by its input's dtype."""
_KEPT = 2048
"""Parameters kept decoded, by their bytes: the stripes of an op mostly have the same."""

_SHIFTS = (MIN_SHIFT, MAX_SHIFT)
_CODES = (-128, 127)
_RANGES: dict[str, tuple[int, int]] = {
    "input_zero_point": _CODES,
    "residual_zero_point": _CODES,
    "inner_zero_point": _CODES,
    "output_zero_point": _CODES,
    "input_shift": _SHIFTS,
    "residual_shift": _SHIFTS,
    "output_shift": _SHIFTS,
    "left_shift": (0, 24),
    "diff_min": (INT32_MIN, 0),
}


def conv_words(channels: int, dtype: DType) -> int:
    """Return the int32 words of a convolution's parameters: *channels* outputs, *dtype* inputs."""
    return HEAD_WORDS + _ROWS[dtype] * LANES * -(-channels // LANES)


def head(words: NDArray[Any], where: str) -> OpParams:
    """Return the OpParams at the start of *words* (int32).

    Raises FirmwareError BAD_MULTIPLIER when a value is out of its range.
    """
    params, fault = _head(words.reshape(-1)[:HEAD_WORDS].tobytes())
    if fault:
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, f"{where}: parameters: {fault}")
    return params


@lru_cache(maxsize=_KEPT)
def _head(raw: bytes) -> tuple[OpParams, str]:
    """Return the fields and what is wrong with them, if anything."""
    row = np.frombuffer(raw, OpParams.DTYPE)
    params = OpParams(**dict(zip(OpParams.FIELDS, row[0].item(), strict=True)))
    for name, (low, high) in _RANGES.items():
        value = getattr(params, name)
        if not low <= value <= high:
            return params, f"{name} is {value}, outside {low} to {high}"
    return params, ""


def positive_scale(value: float, step: Step) -> np.float32:
    """Return a scale of the head as float32; FirmwareError BAD_MULTIPLIER unless positive."""
    scale = np.float32(value)
    if not 0 < scale < np.inf:
        text = f"{step.where}: parameters: a scale is {scale}, expected above 0 and finite"
        raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)
    return scale


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelBlocks:
    """Bias, multiplier and shift of each output channel, int64 arrays of shape (O,)."""

    bias: NDArray[np.int64]
    multiplier: NDArray[np.int64]
    shift: NDArray[np.int64]


def channel_blocks(
    words: NDArray[Any], channels: int, dtype: DType, where: str, *, real: bool
) -> ChannelBlocks:
    """Return the blocks that follow the head, for *channels* output channels of codes.

    *real* says that multiplier and shift are the words of a float64 scale. Raises FirmwareError
    BAD_MULTIPLIER when a shift is out of range.
    """
    found = _blocks(words.reshape(-1)[HEAD_WORDS:].tobytes(), channels, _ROWS[dtype])
    low, high = _SHIFTS
    if real or (low <= found.shift.min() and found.shift.max() <= high):
        return found
    text = f"{where}: parameters: a channel's shift is outside {low} to {high}"
    raise FirmwareError(ErrorCode.BAD_MULTIPLIER, text)


@lru_cache(maxsize=_KEPT)
def _blocks(raw: bytes, channels: int, rows: int) -> ChannelBlocks:
    blocks = np.frombuffer(raw, np.int32).reshape(-1, rows, LANES).astype(np.int64)
    bias, *high, multiplier, shift = (row.reshape(-1)[:channels] for row in blocks.swapaxes(0, 1))
    if high:
        bias = (high[0] << 32) | (bias & 0xFFFFFFFF)
    return ChannelBlocks(bias=bias, multiplier=multiplier, shift=shift)
