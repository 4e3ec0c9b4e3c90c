"""Exact integer matrix products at BLAS speed, proved per output channel.

float32 adds integers exactly while every partial sum stays below 2^24, in any order. With raw
int8 codes the partial sums of channel c are below 128 * sum|w[c]|. K is cut where that is not
enough, so each piece is exact, and the pieces are added in int64: |x * w| <= 2^14 and K < 2^32
keep any sum below 2^53, so int64 cannot overflow either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT", "cuts_of", "exact_product"]

EXACT = 1 << 24
"""float32 holds every integer up to this one."""

_WORST = 128


def cuts_of(weights: NDArray[np.float32]) -> list[int]:
    """Return where the pieces of K begin, so that each piece's sums are exact in float32.

    *weights* is (K, O), integers from -128 to 127. A piece of 1,023 rows is always exact.
    """
    k = weights.shape[0]
    if k * _WORST * _WORST < EXACT:
        return [0]
    magnitude = np.abs(weights)
    pieces = 1
    while True:
        starts = list(range(0, k, -(-k // pieces)))
        bound = np.add.reduceat(magnitude, starts, axis=0, dtype=np.float64).max() * _WORST
        if bound < EXACT:
            return starts
        pieces *= 2


def exact_product(
    rows: NDArray[np.float32], weights: NDArray[np.float32], starts: list[int]
) -> NDArray[np.int64]:
    """Return rows @ weights as int64, exactly; *rows* is (M, K) of raw int8 codes.

    *starts* is what :func:`cuts_of` gives for *weights*.
    """
    if len(starts) == 1:
        return (rows @ weights).astype(np.int64)
    total: NDArray[Any] | None = None
    for start, end in zip(starts, [*starts[1:], rows.shape[1]], strict=True):
        piece = (rows[:, start:end] @ weights[start:end]).astype(np.int64)
        total = piece if total is None else total + piece
    return np.asarray(total)
