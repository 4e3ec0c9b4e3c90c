"""log_softmax: ONNX LogSoftmax of opset 13 on; x - log(sum of exp(x)) along one axis.

Invariant: int8 results have scale 16/256 and zero point 127, as in LiteRT; int16 ones 16/32768.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import log_softmax_parameters
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.logsoftmax import RESULTS, log_softmax_codes, power_tables, uses_tables
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

__all__ = ["LogSoftmax"]

_LEAST_SCALE = 2.0**-26
_MOST_TERMS = 4095


def _terms_fit(op: LogSoftmax) -> bool:
    extent = op.x.tensor.shape[normalise_axis(op.axis, op.x.tensor.rank)]
    return extent is None or not is_quantised(op.x) or extent <= _MOST_TERMS


@op("log_softmax")
class LogSoftmax(Op):
    """Logarithm of the shares along axis; quantised in LiteRT's fixed point, by tables for EVEN."""

    LIMITS = (
        *COMMON,
        Limit(
            f"log_softmax on codes runs over at most {_MOST_TERMS:,} elements",
            _terms_fit,
            "use fp16",
        ),
    )
    ROWS = True
    FIXED: ClassVar[Mapping[DType, Quant]] = RESULTS

    x: Value = operand("any shape of at least 1 dim")
    axis: int = attr("the dim whose shares sum to 1", AttrKind.INT, default=-1)

    def infer(self) -> Sequence[Type]:
        """Return the shape of the operand; quantised, with the fixed parameters."""
        x = self.x.tensor
        require_dtypes(self.x)
        normalise_axis(self.axis, x.rank)
        return [TensorType(x.shape, x.dtype, RESULTS.get(x.dtype), x.layout)]

    def verify(self) -> None:
        """Check the parameters."""
        check_results(self)
        require_activation(self.x, self.result)
        if not is_quantised(self.x):
            return
        wanted, got = RESULTS[self.x.tensor.dtype], self.result.tensor.quant
        if got != wanted:
            raise ValueError(f"the result has parameters {wanted}, got {got}")
        if self.x.tensor.dtype is DType.I8 and quant_of(self.x).scale <= _LEAST_SCALE:
            raise ValueError(f"the operand's scale is above 2^-26, got {quant_of(self.x).scale}")

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the logarithms."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            dtype = self.x.tensor.dtype
            return (log_softmax_codes(x, quant_of(self.x), self.axis, rounding, dtype),)
        real = x.astype(np.float64)
        below = real - real.max(axis=self.axis, keepdims=True, initial=-np.inf)
        return (below - np.log(np.exp(below).sum(axis=self.axis, keepdims=True)),)

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.x.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Append a log softmax task; the tables that it looks up are in its parameters."""
        operands = [
            builder.read(self.x),
            builder.result_of(self.result),
            self._params(builder),
        ]
        axis = device_axis(self.axis, self.x.tensor.rank)
        builder.task(tasks.LogSoftmax, self, operands, kernel=(axis, 0))

    def _params(self, builder: Builder) -> Value:
        if not is_quantised(self.x):
            return builder.params(op_params())
        dtype, scale = self.x.tensor.dtype, quant_of(self.x).scale
        common = {
            "input_zero_point": quant_of(self.x).zero_point,
            "output_zero_point": RESULTS[dtype].zero_point,
            "input_scale": scale,
            "output_scale": RESULTS[dtype].scale,
        }
        if uses_tables(dtype, builder.rounding):
            tables = power_tables(scale).astype("<f8")
            return builder.params(op_params(**common), tables.ravel().view(np.uint8))
        found = log_softmax_parameters(scale, builder.rounding)
        fields = {name: getattr(found, name) for name in type(found).__slots__}
        return builder.params(op_params(**common, **fields))

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield several ranks and axes."""
        yield cls([floats("x", 2, 10)])
        yield cls([floats("x", 2, 17, 2, 3)], {"axis": 1})
        yield cls([floats("x", 1, 2, 3, 4)], {"axis": 2})
        yield cls([floats("x", 3, 5)], {"axis": 0})
