"""Numerics of the norms' references: rows of a tensor brought to mean 0 and variance 1.

On codes the rule is ours, since no runtime has one. With n codes q a row, S their sum and Q the
sum of their squares, all exact in int64: d = n * q - S, r = 1 / sqrt(n * Q - S^2 + epsilon * n^2 /
scale^2), code = round(d * r * (gamma / output scale) + beta / output scale) + zero point. Each
float64 step is rounded once, in the order of the formula. r is 0 where the root is. The firmware's
kernel is written separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import round_half_away
from npuc.ir.core import Array
from npuc.ir.types import Quant

__all__ = ["LONGEST_ROW", "Norm", "norm_codes", "norm_real"]

LONGEST_ROW = {DType.I8: (1 << 24), DType.I16: 92_681}
"""Elements of a row whose n * Q int64 holds, and n * q of int8 too."""


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Which axes make up a row, in how many groups of dim 1; epsilon; what a row is turned into.

    ``gamma`` and ``beta`` broadcast against the tensor.
    """

    axes: Sequence[int]
    groups: int
    epsilon: float
    gamma: Array
    beta: Array

    def split(self, x: Array) -> tuple[Array, tuple[int, ...]]:
        """Return *x* with dim 1 cut into groups, and the axes of a row there."""
        if self.groups == 1:
            return x, tuple(self.axes)
        n, c, *rest = x.shape
        axes = (2, *(axis + 1 for axis in self.axes if axis > 1))
        return x.reshape(n, self.groups, c // self.groups, *rest), axes


def norm_real(x: Array, norm: Norm) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon) * gamma + beta, in float64.

    Where the root is 0 the quotient is; a row that holds a NaN or an infinity is all NaN.
    """
    real, axes = norm.split(x.astype(np.float64))
    centred = real - real.mean(axis=axes, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + norm.epsilon)
    unit = np.divide(centred, spread, out=np.zeros_like(centred), where=spread != 0)
    result: Array = unit.reshape(x.shape) * norm.gamma.astype(np.float64) + norm.beta
    return result


def norm_codes(x: Array, norm: Norm, source: Quant, target: Quant, rounding: Rounding) -> Array:
    """Return the codes in *target*'s parameters of codes *x* in *source*'s."""
    codes, axes = norm.split(x.astype(np.int64))
    count = int(np.prod([codes.shape[axis] for axis in axes]))
    total = codes.sum(axis=axes, keepdims=True)
    squares = (codes * codes).sum(axis=axes, keepdims=True)
    scale, output = float(np.float32(source.scale)), float(np.float32(target.scale))
    spread = (count * squares - total * total).astype(np.float64)
    root = np.sqrt(spread + norm.epsilon * count * count / (scale * scale))
    inverse = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    unit = ((count * codes - total).astype(np.float64) * inverse).reshape(x.shape)
    gamma, beta = (
        v.astype(np.float32).astype(np.float64) / output for v in (norm.gamma, norm.beta)
    )
    steps = unit * gamma + beta
    whole = np.rint(steps) if rounding is Rounding.EVEN else round_half_away(steps)
    limits = np.iinfo(x.dtype)
    result: Array = np.clip(whole + target.zero_point, limits.min, limits.max).astype(x.dtype)
    return result
