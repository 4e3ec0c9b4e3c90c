"""gelu: ONNX Gelu of opset 20; x times the normal distribution's share below x."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from npuc.expression import Expression, erfc, tanh
from npuc.ir.core import Array, AttrKind, attr, op
from npuc.ir.types import Type
from npuc.ops.pointwise import Unary

__all__ = ["Gelu"]

_ROOT_HALF = math.sqrt(0.5)
_SLOPE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@op("gelu")
class Gelu(Unary):
    """x / 2 * erfc(-x / sqrt(2)); approximate "tanh" replaces erfc by a tanh."""

    VARIANTS: ClassVar[Sequence[Mapping[str, Any]]] = ({}, {"approximate": "tanh"})

    approximate: str = attr("none or tanh", AttrKind.STRING, default="none")

    def infer(self) -> Sequence[Type]:
        """Return the type of the operand; refuse other approximations."""
        if self.approximate not in ("none", "tanh"):
            raise ValueError(f"approximate is none or tanh, got {self.approximate!r}")
        return super().infer()

    def real(self, x: Array) -> Array:
        if self.approximate == "tanh":
            return np.asarray(0.5 * x * (1.0 + np.tanh(_SLOPE * (x + _CUBIC * x**3))))
        return np.asarray(0.5 * x * _erfc(-x * _ROOT_HALF))

    def expression(self, x: Expression) -> Expression:
        if self.approximate == "tanh":
            return 0.5 * x * (1.0 + tanh(_SLOPE * (x + _CUBIC * x * x * x)))
        return x * 0.5 * erfc(x * -_ROOT_HALF)
