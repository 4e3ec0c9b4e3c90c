"""softmax: ONNX Softmax of opset 13 on; exp(x) over the sum of exp(x) along one axis.

Invariant: the quantised result has scale 1/256 and zero point -128, as in LiteRT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import softmax_parameters
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu import tasks
from npuc.npu.builder import Builder, op_params
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.ops.shapes import device_axis, normalise_axis
from npuc.reference import softmax_codes, softmax_table

__all__ = ["RESULT_QUANT", "Softmax"]

RESULT_QUANT = Quant.per_tensor(1 / 256, -128)
"""Parameters of every int8 softmax's result (LiteRT quantisation specification)."""

_LEAST_SCALE = 2.0**-26


def _not_the_batch(op: Softmax) -> bool:
    return op.x.tensor.rank > 4 or device_axis(op.axis, op.x.tensor.rank) != 0


@op("softmax")
class Softmax(Op):
    """Normalise along axis; quantised in LiteRT's fixed point, by a float table for EVEN."""

    LIMITS = (
        *COMMON,
        Limit("softmax runs along channels, rows or columns", _not_the_batch, "use another axis"),
    )
    ROWS = True

    FIXED: ClassVar[Mapping[DType, Quant]] = {DType.I8: RESULT_QUANT}

    x: Value = operand("any shape")
    axis: int = attr("the dim that sums to 1", AttrKind.INT, default=-1)

    def infer(self) -> Sequence[Type]:
        """Return the shape of the operand; quantised, with the fixed parameters."""
        x = self.x.tensor
        require_dtypes(self.x)
        normalise_axis(self.axis, x.rank)
        quant = RESULT_QUANT if is_quantised(self.x) else None
        return [TensorType(x.shape, x.dtype, quant, x.layout)]

    def verify(self) -> None:
        """Check the parameters."""
        check_results(self)
        require_activation(self.x, self.result)
        if not is_quantised(self.x):
            return
        if self.result.tensor.quant != RESULT_QUANT:
            got = self.result.tensor.quant
            raise ValueError(f"the result has parameters {RESULT_QUANT}, got {got}")
        if quant_of(self.x).scale <= _LEAST_SCALE:
            raise ValueError(f"the operand's scale is above 2^-26, got {quant_of(self.x).scale}")

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the shares."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            return (softmax_codes(x, quant_of(self.x).scale, self.axis, rounding),)
        real = x.astype(np.float64)
        powers = np.exp(real - real.max(axis=self.axis, keepdims=True, initial=-np.inf))
        return (powers / powers.sum(axis=self.axis, keepdims=True),)

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.x.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Append a softmax task; for rounding even, the table of powers is in its parameters."""
        scale = quant_of(self.x).scale
        found = softmax_parameters(scale, builder.rounding)
        params = op_params(
            input_zero_point=quant_of(self.x).zero_point,
            output_zero_point=RESULT_QUANT.zero_point,
            input_multiplier=found.input_multiplier,
            input_shift=found.input_shift,
            diff_min=found.diff_min,
            input_scale=scale,
            output_scale=RESULT_QUANT.scale,
        )
        even = builder.rounding is Rounding.EVEN
        table = softmax_table(scale).astype("<f4").view(np.uint8) if even else None
        operands = [
            builder.read(self.x),
            builder.result_of(self.result),
            builder.params(params, table),
        ]
        axis = device_axis(self.axis, self.x.tensor.rank)
        builder.task(tasks.Softmax, self, operands, kernel=(axis, 0))

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several ranks and axes."""
        yield cls([floats("x", 2, 10)])
        yield cls([floats("x", 1, 17, 2, 3)], {"axis": 1})
        yield cls([floats("x", 1, 2, 3, 4)], {"axis": 2})
