"""What sub, mul and div share: two tensors that broadcast, and a fused activation.

``real`` is the function in float64, ``expression`` its float32 steps; ``codes`` is LiteRT's rule.
EVEN computes codes by ``steps``: dequantise, compute, quantise, each step in float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.expression import Expression, X, Y, maximum, minimum
from npuc.ir.core import Array, AttrField, AttrKind, Op, OperandField, Value
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.pointwise import lower_eval
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_clamp,
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.ops.shapes import broadcast
from npuc.reference import clamp_codes, clamp_real
from npuc.tables import coded

__all__ = ["Pair"]

_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1, 19, 4, 3), (1, 19, 4, 3)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((1, 3, 1, 5), (1, 1, 4, 1)),
    ((2, 3, 5), (3, 5)),
    ((4, 7), ()),
    ((), (17,)),
)


class Pair(Op):
    """A function of two tensors, element by element."""

    LIMITS = COMMON
    ROWS = True
    BROADCASTS = True
    OPERANDS = (
        OperandField("a", "first operand"),
        OperandField("b", "second operand; its shape broadcasts with the first's"),
    )
    ATTRS = (
        AttrField(
            "clamp", "fused activation: smallest and largest real result", AttrKind.FLOATS, None
        ),
    )

    @property
    def a(self) -> Value:
        """The first operand."""
        return self.inputs[0]

    @property
    def b(self) -> Value:
        """The second operand."""
        return self.inputs[1]

    @abstractmethod
    def real(self, a: Array, b: Array) -> Array:
        """Return the function of float64 numbers."""

    @abstractmethod
    def expression(self, x: Expression, y: Expression) -> Expression:
        """Return the float32 steps of the function."""

    @abstractmethod
    def codes(self, x: Array, y: Array, rounding: Rounding) -> Array:
        """Return the codes at int64 codes less their zero points, without the activation."""

    @abstractmethod
    def lower_codes(self, builder: Builder, clamp: tuple[int, int]) -> None:
        """Append the task that computes ``codes``, held in *clamp*."""

    def infer(self) -> Sequence[Type]:
        """Return the shape that both broadcast to."""
        a, b = self.a.tensor, self.b.tensor
        require_dtypes(self.a, self.b)
        return [TensorType(broadcast(a.shape, b.shape), a.dtype, None, a.layout)]

    def verify(self) -> None:
        """Check parameters and the fused activation."""
        check_results(self)
        check_clamp("clamp", self.attributes["clamp"])
        require_activation(self.a, self.b, self.result)

    def stacks(self) -> bool:
        """Return whether the first dims meet."""
        return len({v.tensor.rank for v in self.inputs}) == 1

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the function of each pair, held by the activation."""
        a, b = map(np.asarray, operands)
        if not is_quantised(self.a):
            with np.errstate(all="ignore"):
                real = np.asarray(self.real(a.astype(np.float64), b.astype(np.float64)))
            return (clamp_real(real, self.attributes["clamp"]),)
        x, y = (q.astype(np.int64) - quant_of(v).zero_point for q, v in ((a, self.a), (b, self.b)))
        codes = self.codes(x, y, rounding)
        low, high = self._limits(rounding)
        return (np.asarray(np.clip(codes, low, high), codes.dtype),)

    def even_codes(self, x: Array, y: Array) -> Array:
        """Return the codes of the float32 steps."""
        target, dtype = quant_of(self.result), self.result.tensor.dtype
        return coded(self.steps(), [x, y], target.zero_point, dtype, Rounding.EVEN)

    def steps(self) -> Expression:
        """Return the float32 steps from codes less their zero points to one, before rounding."""
        a, b, target = (quant_of(v).scale for v in (self.a, self.b, self.result))
        return self.expression(X * a, Y * b) / target

    @property
    def dtype(self) -> DType:
        """The element type of operands and result."""
        return self.result.tensor.dtype

    def _limits(self, rounding: Rounding) -> tuple[int, int]:
        clamp = self.attributes["clamp"]
        return clamp_codes(quant_of(self.result), clamp, rounding, self.dtype)

    def lower(self, builder: Builder) -> None:
        """Append the op's task, or an eval of numbers."""
        if is_quantised(self.a):
            return self.lower_codes(builder, self._limits(builder.rounding))
        expression = self.expression(X, Y)
        if self.attributes["clamp"] is not None:
            low, high = self.attributes["clamp"]
            expression = minimum(maximum(expression, low), high)
        return lower_eval(builder, self, expression, [self.a, self.b], self.result)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield equal shapes, broadcasts and an activation."""
        for a, b in _SHAPES:
            yield cls([floats("a", *a), floats("b", *b)])
        yield cls([floats("a", 2, 3), floats("b", 2, 3)], {"clamp": [0.0, 6.0]})
