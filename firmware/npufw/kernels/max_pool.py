"""MAX_POOL: the largest code of each window's in-bounds taps, clamped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Unit
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.layout import pixels
from npufw.kernels.pooling import overhang, reduced
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import BRICKS, I8
from npufw.kernels.window import padded, pooled_window, same_batch_and_channels, taps_in_bounds

__all__ = ["MAX_POOL"]

_LOWEST = -128
"""Fills the pads: no code is smaller, so a pad never wins over an in-bounds tap."""


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    values = padded(pixels(arrays.input, step.input), overhang(step), _LOWEST, np.int8)
    return clamped(reduced(values, step, np.maximum), step).transpose(0, 3, 1, 2)


MAX_POOL = Kernel(
    opcode=Opcode.MAX_POOL,
    unit=Unit.VECTOR,
    required=frozenset({"input", "output"}),
    optional=frozenset({"parameters"}),
    run=_run,
    rules=(
        operand_is("input", I8, BRICKS),
        operand_is("output", I8, BRICKS),
        same_batch_and_channels,
        pooled_window,
        taps_in_bounds,
        clamp_fits,
    ),
)
