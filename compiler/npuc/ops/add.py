"""add: the sum of two tensors, with a fused activation; shapes broadcast as in ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu import tasks
from npuc.npu.builder import Builder
from npuc.npu.lowering import add_params
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
from npuc.reference import add_codes, clamp_codes, clamp_real

__all__ = ["Add"]


@op("add")
class Add(Op):
    """Add element by element; quantised as LiteRT's ADD, in float32 for rounding even."""

    LIMITS = COMMON
    ROWS = True
    BROADCASTS = True

    a: Value = operand("first operand")
    b: Value = operand("second operand; its shape broadcasts with the first's")
    clamp: Sequence[float] | None = attr(
        "fused activation: smallest and largest real result", AttrKind.FLOATS, default=None
    )

    def infer(self) -> Sequence[Type]:
        """Return the shape that both broadcast to."""
        a, b = self.a.tensor, self.b.tensor
        require_dtypes(self.a, self.b)
        return [TensorType(broadcast(a.shape, b.shape), a.dtype, None, a.layout)]

    def verify(self) -> None:
        """Check parameters and the fused activation."""
        check_results(self)
        check_clamp("clamp", self.clamp)
        require_activation(self.a, self.b, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return a + b, clamped."""
        a, b = map(np.asarray, operands)
        if not is_quantised(self.a):
            return (clamp_real(a.astype(np.float64) + b, self.clamp),)
        target, dtype = quant_of(self.result), self.result.tensor.dtype
        pair = ((a, quant_of(self.a)), (b, quant_of(self.b)))
        limits = clamp_codes(target, self.clamp, rounding, dtype)
        return (add_codes(pair, target, limits, rounding, dtype),)

    def stacks(self) -> bool:
        """Return whether the first dims meet."""
        return len({v.tensor.rank for v in self.inputs}) == 1

    def lower(self, builder: Builder) -> None:
        """Append an add task."""
        params, clamp = add_params(builder, self.a, self.b, self.result, self.clamp)
        operands = [
            builder.read(self.a),
            builder.result_of(self.result),
            builder.params(params),
            builder.read(self.b),
        ]
        builder.task(tasks.Add, self, operands, clamp=clamp)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield equal shapes and broadcasts."""
        pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
            ((1, 19, 4, 3), (1, 19, 4, 3)),
            ((2, 3, 4, 5), (3, 1, 1)),
            ((1, 3, 1, 5), (1, 1, 4, 1)),
            ((4, 7), ()),
        )
        for a, b in pairs:
            yield cls([floats("a", *a), floats("b", *b)])
        yield cls([floats("a", 2, 3), floats("b", 2, 3)], {"clamp": [0.0, 6.0]})
