"""leaky_relu: ONNX LeakyRelu; another slope below zero, of any size and sign.

The slope stays a real number: on codes it enters the multiplier, so that it is off by at most one
part in 2^31 (C34).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from npuc.expression import Expression, select
from npuc.ir.core import Array, AttrKind, attr, op
from npuc.ops.slopes import TwoSlopes

__all__ = ["LeakyRelu"]


@op("leaky_relu")
class LeakyRelu(TwoSlopes):
    """x, and alpha * x below zero."""

    VARIANTS: ClassVar[Sequence[Mapping[str, Any]]] = ({}, {"alpha": 0.1}, {"alpha": -1.5})

    alpha: float = attr("slope below zero", AttrKind.FLOAT, default=0.01)

    @property
    def slope(self) -> float:
        return float(self.alpha)

    def real(self, x: Array) -> Array:
        return np.where(x < 0.0, self.alpha * x, x)

    def expression(self, x: Expression) -> Expression:
        return select(x < 0.0, self.alpha * x, x)
