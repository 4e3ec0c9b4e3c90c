"""Reducing windows: max and exact sums along rows, then columns; float sums tap by tap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npufw.kernels.base import Step

__all__ = ["added_row_by_row", "counts", "overhang", "reduced"]


def overhang(step: Step) -> tuple[int, int, int, int]:
    """Return the pads, grown at the end until the last window (rounded up) fits."""
    grown = []
    for axis, (kernel, stride, dilation) in enumerate((step.rows, step.columns)):
        need = (step.output.dims[2 + axis] - 1) * stride + dilation * (kernel - 1) + 1
        before, after = step.toa.pads[axis], step.toa.pads[axis + 2]
        grown.append(max(after, need - step.input.dims[2 + axis] - before))
    return step.toa.pads[0], step.toa.pads[1], grown[0], grown[1]


def reduced(values: NDArray[Any], step: Step, join: np.ufunc) -> NDArray[Any]:
    """Return *join* over each window of N, H, W, C *values*, which hold the pads already."""
    for axis, (kernel, stride, dilation) in enumerate((step.rows, step.columns)):
        steps = step.output.dims[2 + axis]
        span = (steps - 1) * stride + 1
        lead = (slice(None),) * (1 + axis)
        taps = [values[(*lead, slice(t, t + span, stride))] for t in _offsets(kernel, dilation)]
        total = taps[0].copy()
        for tap in taps[1:]:
            join(total, tap, out=total)
        values = total
    return values


def added_row_by_row(values: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
    """Return the sum of each window of N, H, W, C *values*, its taps added in row-major order."""
    (kh, sh, dh), (kw, sw, dw) = step.rows, step.columns
    n, c, oh, ow = step.output.dims
    total = np.zeros((n, oh, ow, c), np.float32)
    for top in _offsets(kh, dh):
        rows = values[:, top : top + (oh - 1) * sh + 1 : sh]
        for left in _offsets(kw, dw):
            total += rows[:, :, left : left + (ow - 1) * sw + 1 : sw]
    return total


def counts(step: Step, axis: int, *, pads_count: bool) -> NDArray[np.int64]:
    """Return the taps that count in each window along *axis*: in bounds, or in the pads too."""
    kernel, stride, dilation = (step.rows, step.columns)[axis]
    before, after = step.toa.pads[axis], step.toa.pads[axis + 2]
    low = -before if pads_count else 0
    high = step.input.dims[2 + axis] + (after if pads_count else 0)
    first = np.arange(step.output.dims[2 + axis], dtype=np.int64) * stride - before
    taps = first[:, None] + np.array(_offsets(kernel, dilation), np.int64)
    return np.asarray(((taps >= low) & (taps < high)).sum(axis=1))


def _offsets(kernel: int, dilation: int) -> list[int]:
    return [dilation * i for i in range(kernel)]
