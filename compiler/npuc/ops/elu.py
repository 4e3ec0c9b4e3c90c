"""elu: ONNX Elu; an exponential below zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from npuc.expression import Expression, expm1, select
from npuc.ir.core import Array, AttrKind, attr, op
from npuc.ops.pointwise import Unary

__all__ = ["Elu"]


@op("elu")
class Elu(Unary):
    """x, and alpha * (exp(x) - 1) below zero."""

    VARIANTS: ClassVar[Sequence[Mapping[str, Any]]] = ({}, {"alpha": 0.5})

    alpha: float = attr("minus the value far below zero", AttrKind.FLOAT, default=1.0)

    def real(self, x: Array) -> Array:
        return np.where(x < 0.0, self.alpha * np.expm1(np.minimum(x, 0.0)), x)

    def expression(self, x: Expression) -> Expression:
        return select(x < 0.0, self.alpha * expm1(x), x)
