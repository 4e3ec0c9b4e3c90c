"""pow: ONNX Pow with a constant exponent, which is an attribute here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from npuc.expression import Expression, power, sqrt
from npuc.ir.core import Array, AttrKind, attr, op
from npuc.ir.types import Type
from npuc.ops.pointwise import Unary

__all__ = ["Pow"]

_SHORT: dict[float, Callable[[Expression], Expression]] = {
    -1.0: lambda x: 1.0 / x,
    -0.5: lambda x: 1.0 / sqrt(x),
    0.5: sqrt,
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
}
"""Exponents that take few steps, and no series."""


@op("pow")
class Pow(Unary):
    """x to the power of exponent; for a broken exponent codes of x < 0 count as 0."""

    VARIANTS: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"exponent": 2.5},
        {"exponent": 3.0},
        {"exponent": -3.0},
    )

    exponent: float = attr("the power, a finite number", AttrKind.FLOAT)

    @property
    def domain(self) -> tuple[float, float]:
        """All numbers for a whole exponent, else those from 0 on."""
        whole = float(self.exponent).is_integer()
        return (-math.inf if whole else 0.0), math.inf

    def infer(self) -> Sequence[Type]:
        """Return the type of the operand; refuse an exponent that is no number."""
        if not math.isfinite(self.exponent):
            raise ValueError(f"exponent is a finite number, got {self.exponent}")
        return super().infer()

    def real(self, x: Array) -> Array:
        return np.asarray(np.power(x, self.exponent))

    def expression(self, x: Expression) -> Expression:
        short = _SHORT.get(self.exponent)
        return power(x, self.exponent) if short is None else short(x)
