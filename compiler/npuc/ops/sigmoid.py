"""sigmoid: ONNX Sigmoid; 1 / (1 + exp(-x)).

Invariant: quantised results have the parameters that LiteRT's LOGISTIC fixes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from npuabi.enums import DType
from npuc.expression import Expression, exp
from npuc.ir.core import Array, op
from npuc.ir.types import Quant
from npuc.ops.squash import SIGMOID, Squash

__all__ = ["Sigmoid"]


@op("sigmoid")
class Sigmoid(Squash):
    """1 / (1 + exp(-x))."""

    FORM = SIGMOID
    FIXED: ClassVar[Mapping[DType, Quant]] = {
        DType.I8: Quant.per_tensor(1 / 256, -128),
        DType.I16: Quant.per_tensor(1 / 32768, 0),
    }

    def real(self, x: Array) -> Array:
        """Return 1 / (1 + exp(-x))."""
        return 1.0 / (1.0 + np.exp(-x))

    def expression(self, x: Expression) -> Expression:
        """Return the same."""
        return 1.0 / (1.0 + exp(-x))
