"""Float arithmetic by rational numbers, to check what runs in numpy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

__all__ = ["add_even", "fma", "nearest_float32"]


def nearest_float32(value: Fraction) -> np.float32:
    """Return the float32 nearest to *value*, ties to the even bit pattern; no overflow."""
    guess = np.float32(float(value))
    above, below = (np.nextafter(guess, np.float32(end)) for end in (np.inf, -np.inf))

    def order(candidate: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(candidate)) - value), int(candidate.view(np.int32)) & 1

    return min((guess, above, below), key=order)


def fma(a: float, b: float, c: float) -> np.float32:
    """Return float32 a * b + c, rounded once."""
    return nearest_float32(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def add_even(a: int, b: int, ratios: tuple[float, float], zeros: tuple[int, int, int]) -> int:
    """Return ONNX Runtime's QLinearAdd of two codes, unclamped.

    *ratios* are float32 sa / so and sb / so, *zeros* the zero points of a, b and the result.
    """
    ra, rb = map(np.float32, ratios)
    za, zb, zo = zeros
    rest = np.float32(zo) - fma(za, float(ra), float(np.float32(zb) * rb))
    return round(float(fma(a, float(ra), float(fma(b, float(rb), float(rest))))))
