"""Exact integer matrix products at BLAS speed, proved per output channel.

float32 adds integers exactly while every partial sum stays below 2^24, in any order. With raw
int8 codes the partial sums of channel c are below 128 * sum|w[c]|. K is cut where that is not
enough, so each piece is exact, and the pieces are added in float64: |x * w| <= 2^14 and K < 2^32
keep any sum below 2^53, where float64 is exact too.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT", "column_sums", "cuts_of", "exact_product", "wide_product"]

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
        ends = pairwise([*starts, k])
        if max(column_sums(magnitude[a:b]).max() for a, b in ends) * _WORST < EXACT:
            return starts
        pieces *= 2


def column_sums(weights: NDArray[np.float32]) -> NDArray[Any]:
    """Return the exact sum of each column of (K, O) integers from -128 to 128.

    A product with ones: BLAS is many times faster along this axis than numpy's reduction.
    """
    exact = len(weights) * _WORST <= EXACT
    ones: NDArray[Any] = np.ones(len(weights), np.float32 if exact else np.float64)
    return np.asarray(ones @ weights)


def exact_product(
    rows: NDArray[np.float32], weights: NDArray[np.float32], starts: list[int]
) -> NDArray[Any]:
    """Return rows @ weights, exact integers in float32 or float64; *rows* is (M, K) of int8 codes.

    *starts* is what :func:`cuts_of` gives for *weights*.
    """
    if len(starts) == 1:
        return np.asarray(rows @ weights)
    total = np.zeros((len(rows), weights.shape[1]))
    for start, end in pairwise([*starts, rows.shape[1]]):
        total += rows[:, start:end] @ weights[start:end]
    return total


def wide_product(rows: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return rows @ weights of int16 codes and int8 weights in float64, exactly.

    A product is at most 2^22, and K is below 2^31: no partial sum reaches 2^53.
    """
    return np.asarray(rows.astype(np.float64) @ weights.astype(np.float64))
