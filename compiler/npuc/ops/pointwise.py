"""What ops that work element by element share: a subclass states its function, the rest follows.

``real`` is the function in float64, ``expression`` the float32 steps that the device takes. Codes
enter as (q - zero point) * scale and leave times 1 / scale (EVEN: over the scale), each step in
float32: ``steps``. An op whose codes follow another rule, such as a fixed-point kernel of LiteRT,
states it as ``codes``.

The device runs EVAL of ``expression`` on numbers, LOOKUP of 256 entries on i8 codes, and on i16
codes EVAL of ``steps``, or where they hold a series LOOKUP of LiteRT's 513 interpolated entries.

Invariant: outside its domain codes count as the domain's nearest end, so that no table holds what
is no number.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.expression import Expression, X, is_exact, maximum, minimum, numbers
from npuc.ir.core import Array, AttrKind, Op, OperandField, Value
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.pointwise import lower_eval, lower_lookup
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.tables import all_codes, coded, looked_up, nodes

__all__ = ["Unary", "inverse"]

_SHAPES: tuple[tuple[int, ...], ...] = ((), (17,), (2, 35), (3, 5, 9), (1, 19, 5, 3))


def inverse(scale: float) -> float:
    """Return 1 / *scale* in float32."""
    return float(np.float32(1) / np.float32(scale))


class Unary(Op):
    """A function of one tensor, element by element."""

    LIMITS = COMMON
    ROWS = True
    STACKS = True
    OPERANDS = (OperandField("x", "any shape"),)
    DOMAIN: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    """Where the function is a number; codes outside count as the nearest end."""
    INTERPOLATED: ClassVar[bool] = False
    """Whether i16 codes are interpolated though IEEE 754 gives every bit of the function."""
    VARIANTS: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    """Attributes of the examples."""

    @property
    def x(self) -> Value:
        """The operand."""
        return self.inputs[0]

    @property
    def domain(self) -> tuple[float, float]:
        """``DOMAIN``, unless it depends on the attributes."""
        return self.DOMAIN

    @abstractmethod
    def real(self, x: Array) -> Array:
        """Return the function of float64 *x*."""

    @abstractmethod
    def expression(self, x: Expression) -> Expression:
        """Return the float32 steps of the function of *x*."""

    def infer(self) -> Sequence[Type]:
        """Return the type of the operand; quantised, without parameters but fixed ones."""
        x = self.x.tensor
        require_dtypes(self.x)
        for spec in self.ATTRS:
            value = self.attributes[spec.name]
            if spec.kind == AttrKind.FLOAT and not math.isfinite(value):
                raise ValueError(f"{spec.name} is a finite number, got {value}")
        return [TensorType(x.shape, x.dtype, self.FIXED.get(x.dtype), x.layout)]

    def verify(self) -> None:
        """Check the result against the operand, and fixed parameters."""
        check_results(self)
        require_activation(self.x, self.result)
        fixed = self.FIXED.get(self.x.tensor.dtype)
        if fixed is not None and self.result.tensor.quant != fixed:
            raise ValueError(f"the result has parameters {fixed}, got {self.result.tensor.quant}")

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the function of each element."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            return (self.on_codes(x, rounding),)
        with np.errstate(all="ignore"):
            return (np.asarray(self.real(x.astype(np.float64)), np.float64),)

    def on_codes(self, q: Array, rounding: Rounding) -> Array:
        """Return the codes of the function at i8 or i16 codes *q*."""
        if not self._evaluates(rounding):
            return looked_up(self.table(rounding), q)
        return self.codes(q.astype(np.int64), DType.I16, rounding)

    def codes(self, q: Array, dtype: DType, rounding: Rounding) -> Array:
        """Return the codes, of *dtype*, of the function at codes *q*, given as int64."""
        source, target = quant_of(self.x), quant_of(self.result)
        steps = self.steps(source, target, rounding)
        return coded(steps, [q - source.zero_point], target.zero_point, dtype, rounding)

    def steps(self, source: Quant, target: Quant, rounding: Rounding) -> Expression:
        """Return the float32 steps from a code less its zero point to one, before rounding."""
        value = self.expression(self.within(X * source.scale))
        if rounding is Rounding.EVEN:
            return value / target.scale
        return value * inverse(target.scale)

    def within(self, x: Expression) -> Expression:
        """Return *x* or the end of the domain that it lies beyond."""
        low, high = self.domain
        x = x if math.isinf(low) else maximum(x, low)
        return x if math.isinf(high) else minimum(x, high)

    def table(self, rounding: Rounding) -> Array:
        """Return the table that stands for the function between codes."""
        if self.x.tensor.dtype is DType.I8:
            return self.codes(all_codes(), DType.I8, rounding)
        function = self.expression(self.within(X))
        return nodes(lambda x: numbers(function, x), quant_of(self.x), quant_of(self.result))

    def lower(self, builder: Builder) -> None:
        """Append a lookup of codes, or an eval."""
        if not is_quantised(self.x):
            return lower_eval(builder, self, self.expression(X), [self.x], self.result)
        if not self._evaluates(builder.rounding):
            table = self.table(builder.rounding)
            return lower_lookup(builder, self, self.x, table, self.result)
        steps = self.steps(quant_of(self.x), quant_of(self.result), builder.rounding)
        return lower_eval(builder, self, steps, [self.x], self.result)

    def _evaluates(self, rounding: Rounding) -> bool:
        """Whether codes run through the steps and not through a table."""
        if self.x.tensor.dtype is not DType.I16 or self.INTERPOLATED:
            return False
        return is_exact(self.steps(quant_of(self.x), quant_of(self.result), rounding))

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield every rank, and every variant of the attributes."""
        for shape in _SHAPES:
            yield cls([floats("x", *shape)], dict(cls.VARIANTS[0]))
        for variant in cls.VARIANTS[1:]:
            yield cls([floats("x", 1, 3, 4, 5)], dict(variant))
