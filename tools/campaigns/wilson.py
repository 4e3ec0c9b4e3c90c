"""Wilson's interval of a rate, from counts."""

from __future__ import annotations

import math

__all__ = ["wilson"]

_Z = 1.959963984540054
"""Of 95 %."""


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of the rate of which *hits* in *trials* are a sample."""
    if not trials:
        return 0.0, 1.0
    rate, square = hits / trials, _Z * _Z
    middle = (rate + square / (2 * trials)) / (1 + square / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    spread *= _Z / (1 + square / trials)
    return max(0.0, middle - spread), min(1.0, middle + spread)
