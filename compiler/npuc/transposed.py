"""A transposed convolution as plain ones: its padding, its weights as filters, its phases.

Output row o gets x[i] * w[k] wherever i * stride - pad + k * dilation = o. Rows of one remainder
of the stride, a phase, take the same taps at neighbouring inputs: each phase is a convolution of
stride 1 with some of the kernel, turned round. The rules of padding are ONNX's (ConvTranspose).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.ir.core import Array
from npuc.ir.types import Quant

__all__ = ["Axis", "Phase", "filters_of", "scales_of", "weights_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The results ``first``, first + stride, ...: ``count`` of them, by a convolution of stride 1.

    ``taps`` are places in the kernel, in the order of the input they read, ``dilation`` apart;
    without any the result is the bias alone. ``start`` and ``size`` are the part of the input
    that is read, ``before`` and ``behind`` the padding around it.
    """

    first: int
    count: int
    taps: tuple[int, ...]
    dilation: int
    start: int
    size: int
    before: int
    behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Rows or columns: the kernel's numbers along them, and the padding taken off the result."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0
    more: int = 0
    """Results added behind, ONNX's output_padding."""

    @property
    def reach(self) -> int:
        """From the first result that an input reaches to the last, both counted."""
        return (self.kernel - 1) * self.dilation + 1

    def full(self, extent: int) -> int:
        """Return the results before the padding is taken off."""
        return (extent - 1) * self.stride + self.reach + self.more

    def output(self, extent: int | None) -> int | None:
        """Return the results of *extent* inputs."""
        return None if extent is None else self.full(extent) - self.begin - self.end

    def phases(self, extent: int) -> list[Phase]:
        """Return the convolutions that make all results of *extent* inputs, some phases empty."""
        results = self.full(extent) - self.begin - self.end
        firsts = range(min(self.stride, results))
        return [self._phase(first, extent, results) for first in firsts]

    def _phase(self, first: int, extent: int, results: int) -> Phase:
        count = -(-(results - first) // self.stride)
        offsets = {
            (first + self.begin - tap * self.dilation) // self.stride: tap
            for tap in range(self.kernel)
            if (first + self.begin - tap * self.dilation) % self.stride == 0
        }
        # Input t + offset for result t of the phase; the last result reads the largest.
        order = sorted(offsets)
        low, high = (order[0], order[-1] + count) if order else (0, 0)
        start, end = max(low, 0), min(high, extent)
        if start >= end:
            size = min(count, extent)
            return Phase(first=first, count=count, taps=(), dilation=1, start=0, size=size,
                         before=0, behind=count - size)  # fmt: skip
        return Phase(
            first=first,
            count=count,
            taps=tuple(offsets[offset] for offset in order),
            dilation=self.dilation // math.gcd(self.dilation, self.stride),
            start=start,
            size=end - start,
            before=start - low,
            behind=high - end,
        )


def filters_of(weights: Array, group: int) -> Array:
    """Return weights (C, O / group, ...) as a convolution has them: (O, C / group, ...)."""
    channels, outputs, *kernel = weights.shape
    grouped = weights.reshape(group, channels // group, outputs, *kernel)
    return grouped.swapaxes(1, 2).reshape(group * outputs, channels // group, *kernel)


def weights_of(filters: Array, group: int) -> Array:
    """Return filters (O, C / group, ...) as weights (C, O / group, ...)."""
    outputs, depth, *kernel = filters.shape
    grouped = filters.reshape(group, outputs // group, depth, *kernel)
    return grouped.swapaxes(1, 2).reshape(group * depth, outputs // group, *kernel)


def scales_of(quant: Quant, shape: Sequence[int], group: int) -> tuple[float, ...]:
    """Return the scale of each of the O outputs' filters, given weights of *shape* (C, O / group).

    Along axis 1 the groups share the scales; along axis 0 a group has one, at each of its inputs.
    ValueError where they do not agree.
    """
    channels, outputs = shape[:2]
    if quant.axis is None:
        return quant.scales * (group * outputs)
    counts = {0: channels, 1: outputs}
    if counts.get(quant.axis) != len(quant.scales):
        text = f"{len(quant.scales)} scales along axis {quant.axis}"
        raise ValueError(f"weights of {channels} x {outputs} channels have {text}")
    if quant.axis == 1:
        return quant.scales * group
    depth = channels // group
    firsts = quant.scales[::depth]
    if quant.scales != tuple(np.repeat(firsts, depth).tolist()):
        raise ValueError("scales along axis 0 are the same for all inputs of a group")
    return tuple(np.repeat(firsts, outputs).tolist())
