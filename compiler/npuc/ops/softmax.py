"""softmax: ONNX Softmax of opset 13 on; exp(x) over the sum of exp(x) along one axis.

Invariant: int8 results have scale 1/256 and zero point -128, int16 ones 1/32768, as in LiteRT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import softmax_parameters
from npuc.ir.core import Array, AttrKind, Value, attr, op, operand
from npuc.ir.types import Quant
from npuc.npu import tasks
from npuc.npu.builder import Builder, float_params, op_params
from npuc.ops.example import floats
from npuc.ops.quantised import is_quantised, quant_of
from npuc.ops.shares import Shares, terms_limit
from npuc.reference import softmax_codes, softmax_table
from npuc.softmax16 import RESULT_SCALE, input_multiplier, softmax16_codes, softmax16_tables

__all__ = ["RESULT_QUANT", "WIDE_QUANT", "Softmax"]

RESULT_QUANT = Quant.per_tensor(1 / 256, -128)
"""Parameters of every int8 softmax's result (LiteRT quantisation specification)."""

WIDE_QUANT = Quant.per_tensor(RESULT_SCALE, 0)
"""Parameters of every int16 softmax's result."""


@op("softmax")
class Softmax(Shares):
    """Normalise along axis; quantised in LiteRT's fixed point, by a float table for EVEN."""

    LIMITS = terms_limit("softmax")
    TASK = tasks.Softmax

    FIXED: ClassVar[Mapping[DType, Quant]] = {DType.I8: RESULT_QUANT, DType.I16: WIDE_QUANT}

    x: Value = operand("any shape")
    axis: int = attr("the dim that sums to 1", AttrKind.INT, default=-1)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the shares."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            codes = softmax_codes if self.x.tensor.dtype is DType.I8 else softmax16_codes
            return (codes(x, quant_of(self.x).scale, self.axis, rounding),)
        real = x.astype(np.float64)
        powers = np.exp(real - real.max(axis=self.axis, keepdims=True, initial=-np.inf))
        return (powers / powers.sum(axis=self.axis, keepdims=True),)

    def params(self, builder: Builder) -> Value:
        """Return the parameters with their tables."""
        if not is_quantised(self.x):
            return builder.params(float_params())
        if self.x.tensor.dtype is DType.I16:
            multiplier, shift = input_multiplier(quant_of(self.x).scale)
            entries = np.concatenate(softmax16_tables()).astype("<i2")
            head = op_params(input_multiplier=multiplier, input_shift=shift)
            return builder.params(head, entries.view(np.uint8))
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
        return builder.params(params, table)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several ranks and axes."""
        yield cls([floats("x", 2, 10)])
        yield cls([floats("x", 1, 17, 2, 3)], {"axis": 1})
        yield cls([floats("x", 1, 2, 3, 4)], {"axis": 2})
        yield cls([floats("x", 3, 5)], {"axis": 0})
