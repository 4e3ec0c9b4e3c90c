"""A convolution's input as rows of a matrix: one output pixel a row, its taps along K.

The stripes of an op that differ in output channels read the same input one after the other, so the
last matrix is kept. Invariant: it is taken again only for a step of the same window over the same
codes, compared one by one; nothing depends on where or when the codes were written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npufw.kernels.base import Step
from npufw.kernels.layout import pixels
from npufw.kernels.window import padded

__all__ = ["MOST_NUMBERS", "Gathered", "gathered", "windows"]

MOST_NUMBERS = 1 << 22
"""In the largest matrix that is made at once."""

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The last matrix, and what it was made of."""

    key: Key
    codes: NDArray[Any]
    rows: NDArray[np.float32]


def gathered(
    step: Step, view: NDArray[Any], zero_point: int, last: Gathered | None
) -> Gathered | None:
    """Return the rows of *step*'s input *view*, or None when they are too many to hold at once.

    *last* is what an earlier call returned.
    """
    toa, (n, _, oh, ow) = step.toa, step.output.dims
    if n * oh * ow * toa.kernel[0] * toa.kernel[1] * step.input.dims[1] > MOST_NUMBERS:
        return None
    key: Key = (n, oh, ow, step.input.dims, step.input.layout, zero_point)
    key += (toa.kernel, toa.stride, toa.dilation, toa.pads)
    if last is not None and last.key == key and np.array_equal(last.codes, view):
        return last
    rows = windows(step, view, zero_point).reshape(n * oh * ow, -1)
    return Gathered(key=key, codes=view.copy(), rows=rows)


def windows(step: Step, view: NDArray[Any], zero_point: int) -> NDArray[np.float32]:
    """Return the taps as N, OH, OW, KH, KW, C: a view of a padded copy of the input *view*.

    Reshaping it to rows is one bulk copy, and none for a 1x1 kernel.
    """
    values = padded(pixels(view, step.input), step.toa.pads, zero_point, np.float32)
    (kh, sh, dh), (kw, sw, dw) = step.rows, step.columns
    n, _, oh, ow = step.output.dims
    of_n, of_h, of_w, of_c = values.strides
    return np.ndarray(
        (n, oh, ow, kh, kw, values.shape[3]),
        np.float32,
        buffer=values,
        strides=(of_n, sh * of_h, sw * of_w, dh * of_h, dw * of_w, of_c),
    )
