"""Sliding windows: the rules of kernel, stride, dilation and pads, and padding as an array.

All arithmetic is on Python ints, so that hostile fields cannot overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import ErrorCode
from npufw.kernels.base import Fault, Step, dims_text

__all__ = ["exact_window", "padded", "pooled_window", "same_batch_and_channels", "taps_in_bounds"]

_MAX_PADDED = 1 << 26
"""Elements of a padded stripe; SRAM holds far less, pads of 255 on each side included."""


def _axis(step: Step, axis: int) -> tuple[int, int, int, int, int, int]:
    # input extent, output extent, kernel extent with dilation, stride, pads before and after
    kernel, stride, dilation = step.rows if axis == 0 else step.columns
    reach = dilation * (kernel - 1) + 1
    before, after = step.toa.pads[axis], step.toa.pads[axis + 2]
    return step.input.dims[2 + axis], step.output.dims[2 + axis], reach, stride, before, after


def _numbers(step: Step) -> Fault:
    toa = step.toa
    if min(*toa.kernel, *toa.stride, *toa.dilation) < 1:
        text = (
            f"kernel {toa.kernel}, stride {toa.stride} and dilation {toa.dilation} are at least 1"
        )
        return ErrorCode.BAD_WINDOW, text
    n, c, h, w = step.input.dims
    top, left, bottom, right = toa.pads
    if n * c * (h + top + bottom) * (w + left + right) > _MAX_PADDED:
        return ErrorCode.BAD_WINDOW, f"the padded input has more than {_MAX_PADDED} elements"
    return None


def _window(step: Step, *, ceil: bool) -> Fault:
    fault = _numbers(step)
    if fault is not None:
        return fault
    for axis, name in enumerate(("rows", "columns")):
        extent, out, reach, stride, before, after = _axis(step, axis)
        room = extent + before + after - reach
        allowed = {room // stride + 1, -(-room // stride) + 1} if ceil else {room // stride + 1}
        if room + (stride - 1 if ceil else 0) < 0 or out not in allowed:
            wanted = " or ".join(map(str, sorted(allowed)))
            text = (
                f"input {dims_text(step.input)} gives {wanted} output {name}, "
                f"the output is {dims_text(step.output)}"
            )
            return ErrorCode.BAD_DIMS, text
    return None


def exact_window(step: Step) -> Fault:
    """Rule: output extent = floor((extent + pads - reach) / stride) + 1 on both axes."""
    return _window(step, ceil=False)


def pooled_window(step: Step) -> Fault:
    """Rule: as exact_window, or rounded up (the last window may overhang the pads)."""
    return _window(step, ceil=True)


def taps_in_bounds(step: Step) -> Fault:
    """Rule: every pooling window holds at least one element that is not padding."""
    for axis, name in enumerate(("rows", "columns")):
        extent, out, reach, stride, before, _ = _axis(step, axis)
        dilation = (step.rows, step.columns)[axis][2]
        first = np.arange(out, dtype=np.int64) * stride - before
        start = first + -(-np.maximum(-first, 0) // dilation) * dilation
        if ((start >= extent) | (start >= first + reach)).any():
            return ErrorCode.BAD_WINDOW, f"a window lies wholly in the padding of the {name}"
    return None


def same_batch_and_channels(step: Step) -> Fault:
    """Rule: input and output have the same N and C."""
    if step.input.dims[:2] != step.output.dims[:2]:
        text = f"input {dims_text(step.input)} and output {dims_text(step.output)} differ in N or C"
        return ErrorCode.BAD_DIMS, text
    return None


def padded(
    values: NDArray[Any],
    pads: tuple[int, ...],
    fill: float,
    dtype: Any,
) -> NDArray[Any]:
    """Return N, H, W, C *values* as *dtype* with rows and columns of *fill* around them.

    The result is a new array without gaps.
    """
    top, left, bottom, right = pads
    n, h, w, c = values.shape
    if not any(pads):
        return values.astype(dtype, order="C")
    out = np.empty((n, h + top + bottom, w + left + right, c), dtype)
    out[:, :top], out[:, top + h :] = fill, fill
    out[:, top : top + h, :left], out[:, top : top + h, left + w :] = fill, fill
    out[:, top : top + h, left : left + w] = values
    return out
