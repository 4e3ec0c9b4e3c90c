"""softmax: ONNX Softmax of opset 13 on; exp(x) over the sum of exp(x) along one axis.

Invariant: int8 results have scale 1/256 and zero point -128, int16 ones 1/32768, as in LiteRT.
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
from npuc.npu.builder import Builder, float_params, op_params
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
from npuc.softmax16 import RESULT_SCALE, input_multiplier, softmax16_codes, softmax16_tables

__all__ = ["RESULT_QUANT", "WIDE_QUANT", "Softmax"]

RESULT_QUANT = Quant.per_tensor(1 / 256, -128)
"""Parameters of every int8 softmax's result (LiteRT quantisation specification)."""

WIDE_QUANT = Quant.per_tensor(RESULT_SCALE, 0)
"""Parameters of every int16 softmax's result."""

_LEAST_SCALE = 2.0**-26


_MOST_TERMS = 4095


def _terms_fit(op: Softmax) -> bool:
    extent = op.x.tensor.shape[normalise_axis(op.axis, op.x.tensor.rank)]
    return extent is None or not is_quantised(op.x) or extent <= _MOST_TERMS


@op("softmax")
class Softmax(Op):
    """Normalise along axis; quantised in LiteRT's fixed point, by a float table for EVEN."""

    LIMITS = (
        *COMMON,
        Limit(
            f"softmax on codes runs over at most {_MOST_TERMS:,} elements", _terms_fit, "use fp16"
        ),
    )
    ROWS = True

    FIXED: ClassVar[Mapping[DType, Quant]] = {DType.I8: RESULT_QUANT, DType.I16: WIDE_QUANT}

    x: Value = operand("any shape")
    axis: int = attr("the dim that sums to 1", AttrKind.INT, default=-1)

    def infer(self) -> Sequence[Type]:
        """Return the shape of the operand; quantised, with the fixed parameters."""
        x = self.x.tensor
        require_dtypes(self.x)
        normalise_axis(self.axis, x.rank)
        quant = self.FIXED.get(x.dtype)
        return [TensorType(x.shape, x.dtype, quant, x.layout)]

    def verify(self) -> None:
        """Check the parameters."""
        check_results(self)
        require_activation(self.x, self.result)
        if not is_quantised(self.x):
            return
        wanted, got = self.FIXED[self.x.tensor.dtype], self.result.tensor.quant
        if got != wanted:
            raise ValueError(f"the result has parameters {wanted}, got {got}")
        if self.x.tensor.dtype is DType.I8 and quant_of(self.x).scale <= _LEAST_SCALE:
            raise ValueError(f"the operand's scale is above 2^-26, got {quant_of(self.x).scale}")

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the shares."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            codes = softmax_codes if self.x.tensor.dtype is DType.I8 else softmax16_codes
            return (codes(x, quant_of(self.x).scale, self.axis, rounding),)
        real = x.astype(np.float64)
        powers = np.exp(real - real.max(axis=self.axis, keepdims=True, initial=-np.inf))
        return (powers / powers.sum(axis=self.axis, keepdims=True),)

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.x.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Append a softmax task; the tables that it looks up are in its parameters."""
        operands = [
            builder.read(self.x),
            builder.result_of(self.result),
            self._params(builder),
        ]
        axis = device_axis(self.axis, self.x.tensor.rank)
        builder.task(tasks.Softmax, self, operands, kernel=(axis, 0))

    def _params(self, builder: Builder) -> Value:
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
