"""hard_sigmoid: ONNX HardSigmoid; a straight line between 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from npuc.expression import Expression, maximum, minimum
from npuc.ir.core import Array, AttrKind, attr, op
from npuc.ops.pointwise import Unary

__all__ = ["HardSigmoid"]


@op("hard_sigmoid")
class HardSigmoid(Unary):
    """max(0, min(1, alpha * x + beta))."""

    VARIANTS: ClassVar[Sequence[Mapping[str, Any]]] = ({}, {"alpha": -0.5, "beta": 0.25})

    alpha: float = attr("slope of the line", AttrKind.FLOAT, default=0.2)
    beta: float = attr("value at 0", AttrKind.FLOAT, default=0.5)

    def real(self, x: Array) -> Array:
        return np.clip(self.alpha * x + self.beta, 0.0, 1.0)

    def expression(self, x: Expression) -> Expression:
        return maximum(minimum(self.alpha * x + self.beta, 1.0), 0.0)
