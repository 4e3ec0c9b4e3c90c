"""Where resized rows and columns come from: ONNX Resize's coordinates, taps and their weights.

Positions are exact: they are whole numbers over one denominator, so that a tie is a tie (C21) in
whatever precision a scale was written. Weights come in three forms: float64, whole numbers (int8
and int16 arithmetic), and float32 as ONNX Runtime computes them (rounding even).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["COORDINATES", "NEAREST", "Axis", "Taps", "even_taps", "exact_taps", "nearest",
           "whole_taps"]  # fmt: skip

_LITERT_BITS = 10
_OWN_BITS = {256: 12, 65536: 20}
"""Fraction bits of a weight where LiteRT has no rule, by the codes of the element type."""

_F32 = np.float32
Rows = tuple[list[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One resized axis: ``extent`` elements become ``result``; ``scale`` is their ratio."""

    extent: int
    result: int
    scale: Fraction
    coordinates: str
    mode: str = "linear"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    litert: bool = False

    @property
    def kept(self) -> bool:
        """Whether the elements stay where they are."""
        return self.scale == 1 and self.extent == self.result


@dataclass(frozen=True, slots=True)
class Taps:
    """Positions in the operand and their weights, each (taps, results); ``bits`` of fraction."""

    positions: NDArray[np.int64]
    weights: NDArray[Any]
    bits: int = 0

    def matrix(self, extent: int) -> NDArray[Any]:
        """Return the weights as (results, extent)."""
        count = self.positions.shape[1]
        made = np.zeros((count, extent), self.weights.dtype)
        for places, weights in zip(self.positions, self.weights, strict=True):
            made[np.arange(count), places] += weights
        return made


def _half_pixel(a: Axis) -> Rows:
    # (x + 1/2) / scale - 1/2, over 2p for scale p / q
    p, q = a.scale.numerator, a.scale.denominator
    return [(2 * x + 1) * q - p for x in range(a.result)], 2 * p


def _symmetric(a: Axis) -> Rows:
    # half_pixel, shifted by extent / 2 - result / (2 scale): the middles lie on each other
    places, over = _half_pixel(a)
    shift = a.extent * a.scale.numerator - a.result * a.scale.denominator
    return [place + shift for place in places], over


def _pytorch(a: Axis) -> Rows:
    return _half_pixel(a) if a.result > 1 else ([0] * a.result, 1)


def _align_corners(a: Axis) -> Rows:
    return [x * (a.extent - 1) for x in range(a.result)], max(a.result - 1, 1)


def _asymmetric(a: Axis) -> Rows:
    return [x * a.scale.denominator for x in range(a.result)], a.scale.numerator


COORDINATES: dict[str, Callable[[Axis], Rows]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _pytorch,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
}
"""Positions in the operand of each result, as numerators and their denominator."""

NEAREST: dict[str, Callable[[int, int], int]] = {
    "round_prefer_floor": lambda n, d: -((d - 2 * n) // (2 * d)),
    "round_prefer_ceil": lambda n, d: (2 * n + d) // (2 * d),
    "floor": lambda n, d: n // d,
    "ceil": lambda n, d: -(-n // d),
}
"""The whole position that n / d is rounded to."""


def nearest(axis: Axis, how: str) -> list[int]:
    """Return the position of each result, inside the operand."""
    places, over = COORDINATES[axis.coordinates](axis)
    return [min(max(NEAREST[how](place, over), 0), axis.extent - 1) for place in places]


def exact_taps(axis: Axis) -> Taps:
    """Return two taps (linear) or four (cubic), weights in float64; one where nothing moves."""
    if axis.kept:
        return Taps(_whole_range(axis), np.ones((1, axis.extent)))
    places, over = COORDINATES[axis.coordinates](axis)
    first = np.array([place // over for place in places])
    part = np.array([place % over / over for place in places])
    if axis.mode == "linear":
        return Taps(_inside(axis, first, 0, 1), np.stack([1 - part, part]))
    return _cubic(axis, first, part, axis.cubic_a)


def _inside(axis: Axis, first: NDArray[Any], low: int, high: int) -> NDArray[np.int64]:
    """Positions from *first* + *low* to + *high*; what lies outside is the border's."""
    taps = np.stack([first + step for step in range(low, high + 1)])
    return np.asarray(np.clip(taps, 0, axis.extent - 1), np.int64)


def _cubic(axis: Axis, first: NDArray[Any], part: NDArray[Any], a: Any) -> Taps:
    """Keys' kernel; with exclude_outside the taps outside weigh nothing, the others more."""
    one = part.dtype.type(1)
    weights = np.stack(
        [_far(one + part, a), _near(part, a), _near(one - part, a), _far(one + one - part, a)]
    )
    if axis.exclude_outside:
        taps = first + np.arange(-1, 3)[:, None]
        weights[(taps < 0) | (taps >= axis.extent)] = 0
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = weights / total
    return Taps(_inside(axis, first, -1, 2), weights)


def _near(s: NDArray[Any], a: Any) -> NDArray[Any]:
    two, three, one = (s.dtype.type(n) for n in (2, 3, 1))
    made: NDArray[Any] = ((a + two) * s - (a + three)) * s * s + one
    return made


def _far(s: NDArray[Any], a: Any) -> NDArray[Any]:
    five, eight, four = (s.dtype.type(n) for n in (5, 8, 4))
    made: NDArray[Any] = ((a * s - five * a) * s + eight * a) * s - four * a
    return made


def whole_taps(rows: Axis, columns: Axis, codes: int) -> tuple[Taps, Taps]:
    """Return taps with whole weights, for rounding double and single and *codes* codes.

    They are LiteRT's RESIZE_BILINEAR's where both axes have such a form, and its 10-bit scale
    keeps results within one step of the exact ones (C22) or the axis asks for it. Else the exact
    weights are rounded to 12 bits (int8) or 20 (int16), and the largest takes what is left.
    """
    theirs = (_litert(rows), _litert(columns))
    if theirs[0] is not None and theirs[1] is not None:
        asked = rows.litert or columns.litert
        drift = _drift(rows, theirs[0]) + _drift(columns, theirs[1])
        if asked or drift <= 1 / (codes - 1):
            return theirs[0], theirs[1]
    bits = _OWN_BITS[codes]
    return _rounded(rows, bits), _rounded(columns, bits)


def _drift(axis: Axis, taps: Taps) -> float:
    """Return the largest difference of a result's weights from the exact ones, added up.

    Half of it times the range of codes is the error of a result; rounding adds half a step.
    """
    exact = exact_taps(axis).matrix(axis.extent)
    found = taps.matrix(axis.extent) / (1 << taps.bits)
    return float(np.abs(exact - found).sum(axis=1).max())


def _rounded(axis: Axis, bits: int) -> Taps:
    if axis.kept:
        return _kept(axis)
    exact = exact_taps(axis)
    weights = np.rint(exact.weights * (1 << bits)).astype(np.int64)
    spare = (1 << bits) - weights.sum(axis=0)
    weights[np.abs(weights).argmax(axis=0), np.arange(axis.result)] += spare
    return Taps(exact.positions, weights, bits)


def _kept(axis: Axis) -> Taps:
    return Taps(_whole_range(axis), np.ones((1, axis.extent), np.int64))


def _whole_range(axis: Axis) -> NDArray[np.int64]:
    return np.arange(axis.extent, dtype=np.int64).reshape(1, -1)


def _litert(axis: Axis) -> Taps | None:
    """Return the taps of LiteRT's integer kernel, None where it has no such axis."""
    if axis.kept:
        return _kept(axis)
    unit, extent, count = 1 << _LITERT_BITS, axis.extent, axis.result
    fits = axis.scale == Fraction(count, extent) and axis.mode == "linear"
    if not fits or (axis.coordinates == "pytorch_half_pixel" and count == 1):
        return None
    aligned = axis.coordinates == "align_corners" and count > 1
    over, under = (extent - 1, count - 1) if aligned else (extent, count)
    scale = (unit * over + under // 2) // under
    half = scale // 2 - unit // 2 if "half_pixel" in axis.coordinates else 0
    places = np.arange(count) * scale + half
    # Divisions that truncate: a place in front of the first element belongs to it.
    low = np.maximum(np.fix(places / unit), 0).astype(np.int64)
    high = np.minimum(np.fix((places + unit - 1) / unit), extent - 1).astype(np.int64)
    if low.max() >= extent or high.min() < 0:
        return None
    second = places - unit * low
    return Taps(np.stack([low, high]), np.stack([unit - second, second]), _LITERT_BITS)


def even_taps(axis: Axis) -> Taps:
    """Return taps with float32 weights as ONNX Runtime computes them, coordinates included."""
    places = _float32_places(axis)
    if axis.mode == "linear":
        places = np.clip(places, _F32(0), _F32(axis.extent - 1))
        low = places.astype(np.int64)
        high = np.minimum(low + 1, axis.extent - 1)
        first, second = (np.abs(places - at.astype(_F32)) for at in (high, low))
        alone = low == high
        weights = np.stack([np.where(alone, _F32(0.5), w) for w in (first, second)])
        return Taps(np.stack([low, high]), weights)
    whole = np.floor(places)
    return _cubic(axis, whole.astype(np.int64), places - whole, _F32(axis.cubic_a))


def _float32_places(axis: Axis) -> NDArray[np.float32]:
    x, scale, half = np.arange(axis.result, dtype=_F32), _F32(float(axis.scale)), _F32(0.5)
    if axis.coordinates == "asymmetric":
        return x / scale
    if axis.coordinates == "align_corners":
        return x * _F32(axis.extent - 1) / _F32(max(axis.result - 1, 1))
    if axis.coordinates == "pytorch_half_pixel" and axis.result == 1:
        return np.zeros(1, _F32)
    if axis.coordinates != "half_pixel_symmetric":
        return (x + half) / scale - half
    adjustment = _F32(axis.result) / (scale * _F32(axis.extent))
    offset = _F32(axis.extent) / _F32(2) * (_F32(1) - adjustment)
    # The one mode whose last steps are in float64.
    return (float(offset) + (x + 0.5).astype(np.float64) / float(scale) - 0.5).astype(_F32)
