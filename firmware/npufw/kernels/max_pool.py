"""MAX_POOL: the largest element of each window's in-bounds taps; codes are clamped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Opcode, Unit
from npufw.kernels.base import Arrays, Kernel, Step, operand_is
from npufw.kernels.floats import is_float
from npufw.kernels.layout import pixels
from npufw.kernels.pooling import overhang, reduced
from npufw.kernels.requant import clamp_fits, clamped
from npufw.kernels.vector import BRICKS, EVERY, NUMBERS, one_dtype
from npufw.kernels.window import padded, pooled_window, same_batch_and_channels, taps_in_bounds

__all__ = ["MAX_POOL"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    # Nothing is smaller than what fills the pads, so a pad never wins over an in-bounds tap.
    dtype = arrays.input.dtype
    lowest = -np.inf if is_float(step) else np.iinfo(dtype).min
    values = padded(pixels(arrays.input, step.input), overhang(step), lowest, dtype)
    largest = reduced(values, step, np.maximum)
    return (largest if is_float(step) else clamped(largest, step)).transpose(0, 3, 1, 2)


MAX_POOL = Kernel(
    opcode=Opcode.MAX_POOL,
    unit=Unit.VECTOR,
    required=frozenset({"input", "output"}),
    optional=frozenset({"parameters"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, BRICKS),
        operand_is("output", NUMBERS, BRICKS),
        one_dtype,
        same_batch_and_channels,
        pooled_window,
        taps_in_bounds,
        clamp_fits,
    ),
    precisions=EVERY,
)
