"""swish: ONNX Swish of opset 24, also called SiLU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from npuc.expression import Expression, exp
from npuc.ir.core import Array, AttrKind, attr, op
from npuc.ops.pointwise import Unary

__all__ = ["Swish"]


@op("swish")
class Swish(Unary):
    """x / (1 + exp(-alpha * x))."""

    VARIANTS: ClassVar[Sequence[Mapping[str, Any]]] = ({}, {"alpha": 1.702})

    alpha: float = attr("factor of x inside the sigmoid", AttrKind.FLOAT, default=1.0)

    def real(self, x: Array) -> Array:
        return x / (1.0 + np.exp(-self.alpha * x))

    def expression(self, x: Expression) -> Expression:
        return x / (1.0 + exp(-self.alpha * x))
