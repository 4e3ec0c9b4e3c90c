"""A sliding window: where its taps fall, with padding and ceil mode, and how many results it has.

The rules are ONNX's (Conv, MaxPool, AveragePool, opset 21).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.ir.core import Array

__all__ = ["Window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A kernel that slides over rows and columns, its padding resolved to numbers."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    ceil: bool = False

    def reach(self, axis: int) -> int:
        """Rows (axis 0) or columns (axis 1) from the first tap to the last, both counted."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def output(self, height: int | None, width: int | None) -> tuple[int | None, int | None]:
        """Return the result's rows and columns; below 1 when the window does not fit."""
        return self._extent(0, height), self._extent(1, width)

    def _extent(self, axis: int, size: int | None) -> int | None:
        if size is None:
            return None
        begin, end, step = self.pads[axis], self.pads[axis + 2], self.strides[axis]
        slack = size + begin + end - self.reach(axis)
        if not self.ceil or slack < 0:
            return slack // step + 1
        count = -(-slack // step) + 1
        # ONNX 19: a window that would start in the end padding is dropped (C23).
        return count - 1 if (count - 1) * step >= size + begin else count

    def taps(self, axis: int, size: int, *, padded: bool) -> Array:
        """Return for each result row (or column) how many taps lie inside the input.

        With *padded* the pads count as inside; what ceil mode adds beyond them never does (C03).
        """
        count = self._extent(axis, size) or 0
        begin, end = (self.pads[axis], self.pads[axis + 2]) if padded else (0, 0)
        starts = np.arange(count) * self.strides[axis] - self.pads[axis]
        places = starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
        inside: Array = ((places >= -begin) & (places < size + end)).sum(axis=1)
        return inside
