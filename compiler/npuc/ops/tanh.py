"""tanh: ONNX Tanh.

Invariant: quantised results have the parameters that LiteRT's TANH fixes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from npuabi.enums import DType
from npuc.expression import Expression, tanh
from npuc.ir.core import Array, op
from npuc.ir.types import Quant
from npuc.ops.squash import TANH, Squash

__all__ = ["Tanh"]


@op("tanh")
class Tanh(Squash):
    """The hyperbolic tangent."""

    FORM = TANH
    FIXED: ClassVar[Mapping[DType, Quant]] = {
        DType.I8: Quant.per_tensor(1 / 128, 0),
        DType.I16: Quant.per_tensor(1 / 32768, 0),
    }

    def real(self, x: Array) -> Array:
        return np.tanh(x)

    def expression(self, x: Expression) -> Expression:
        return tanh(x)
