"""prelu: ONNX PRelu; slopes below zero that broadcast to the tensor.

Slopes are constants. Beside codes they are int8 codes per tensor, so each is off by at most half a
step of their range (C34).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.expression import Expression, X, Y, select
from npuc.ir.const import Const
from npuc.ir.core import Array, Op, Value, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import constant_array
from npuc.npu.pointwise import lower_eval, lower_slopes
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.ops.shapes import broadcast, text
from npuc.pointwise_codes import Slopes, sloped
from npuc.tables import coded

__all__ = ["Prelu"]


def _steps(x: Expression, slope: Expression) -> Expression:
    return select(x < 0.0, x * slope, x)


@op("prelu")
class Prelu(Op):
    """x, and slope * x below zero; quantised as LiteRT's PRELU."""

    LIMITS = COMMON
    ROWS = True

    x: Value = operand("any shape")
    slope: Value = operand(
        "slopes below zero; the shape broadcasts to that of x", parameter=True, codes=True
    )

    def infer(self) -> Sequence[Type]:
        """Return the type of the operand; the slopes must not widen it."""
        x, slope = self.x.tensor, self.slope.tensor
        require_dtypes(self.x)
        if broadcast(x.shape, slope.shape) != x.shape:
            raise ValueError(f"slopes {text(slope.shape)} do not broadcast to {text(x.shape)}")
        return [TensorType(x.shape, x.dtype, None, x.layout)]

    def verify(self) -> None:
        """Check parameters: slopes are int8 codes per tensor beside codes, else real numbers."""
        check_results(self)
        require_activation(self.x, self.result, self.slope)
        if is_quantised(self.slope) != is_quantised(self.x):
            kinds = f"{self.slope.tensor.dtype.text} beside {self.x.tensor.dtype.text}"
            raise ValueError(f"%{self.slope.name} is {kinds}")
        if is_quantised(self.slope) and self.slope.tensor.dtype is not DType.I8:
            raise ValueError(f"%{self.slope.name} is {self.slope.tensor.dtype.text}, expected i8")

    def stacks(self) -> bool:
        """Return whether every sample has the same slopes."""
        slope = self.slope.tensor
        return slope.rank < self.x.tensor.rank or slope.shape[:1] == (1,)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return x, times the slope below zero."""
        x, slope = map(np.asarray, operands)
        if not is_quantised(self.x):
            real = x.astype(np.float64)
            return (np.where(real < 0, real * slope, real),)
        source, target, by = map(quant_of, (self.x, self.result, self.slope))
        centred = x.astype(np.int64) - source.zero_point
        slopes = slope.astype(np.int64) - by.zero_point
        dtype = self.x.tensor.dtype
        if rounding is Rounding.EVEN:
            wide = [centred, slopes]
            return (coded(self._even_steps(), wide, target.zero_point, dtype, rounding),)
        return (sloped(centred, self._slopes(), target, dtype, rounding, slopes),)

    def lower(self, builder: Builder) -> None:
        """Append a prelu, or an eval of numbers and for EVEN."""
        slope = self._lined_up()
        if not is_quantised(self.x):
            return lower_eval(builder, self, _steps(X, Y), [self.x, slope], self.result)
        if builder.rounding is Rounding.EVEN:
            return lower_eval(builder, self, self._even_steps(), [self.x, slope], self.result)
        return lower_slopes(builder, self, self.x, slope, self._slopes(), self.result)

    def _lined_up(self) -> Value:
        """Return the slopes with as many dims as x, so that they lie as x does."""
        array, tensor = constant_array(self, self.slope, "slope"), self.slope.tensor
        shape = (1,) * (self.x.tensor.rank - tensor.rank) + tensor.dims
        made = Const.of(array.reshape(shape), tensor.with_shape(shape), name=self.slope.name)
        return made.result

    def _slopes(self) -> Slopes:
        """The scales in float32, as LiteRT computes them."""
        x, y, by = (np.float32(quant_of(v).scale) for v in (self.x, self.result, self.slope))
        return Slopes(above=float(x / y), below=float(x * by / y))

    def _even_steps(self) -> Expression:
        x, y, by = (quant_of(v).scale for v in (self.x, self.result, self.slope))
        return _steps(X * x, Y * by) / y

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield a slope for all, one a channel, and one an element."""
        shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
            ((2, 19, 4, 3), (19, 1, 1)),
            ((1, 3, 4, 5), ()),
            ((3, 5, 9), (5, 1)),
            ((2, 17), (17,)),
            ((7,), (7,)),
            ((), ()),
            ((1, 3, 2, 5), (1, 3, 2, 5)),
        )
        for x, slope in shapes:
            yield cls([floats("x", *x), floats("slope", *slope)])
