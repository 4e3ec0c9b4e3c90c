"""log_softmax: ONNX LogSoftmax of opset 13 on; x - log(sum of exp(x)) along one axis.

Invariant: int8 results have scale 16/256 and zero point 127, as in LiteRT; int16 ones 16/32768.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import log_softmax_parameters
from npuc.ir.core import Array, AttrKind, Value, attr, op, operand
from npuc.ir.types import Quant
from npuc.logsoftmax import RESULTS, log_softmax_codes, power_tables, uses_tables
from npuc.npu import tasks
from npuc.npu.builder import Builder, op_params
from npuc.ops.example import floats
from npuc.ops.quantised import is_quantised, quant_of
from npuc.ops.shares import Shares, terms_limit

__all__ = ["LogSoftmax"]


@op("log_softmax")
class LogSoftmax(Shares):
    """Logarithm of the shares along axis; quantised in LiteRT's fixed point, by tables for EVEN."""

    LIMITS = terms_limit("log_softmax")
    TASK = tasks.LogSoftmax
    FIXED: ClassVar[Mapping[DType, Quant]] = RESULTS

    x: Value = operand("any shape of at least 1 dim")
    axis: int = attr("the dim whose shares sum to 1", AttrKind.INT, default=-1)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the logarithms."""
        x = np.asarray(operands[0])
        if is_quantised(self.x):
            dtype = self.x.tensor.dtype
            return (log_softmax_codes(x, quant_of(self.x), self.axis, rounding, dtype),)
        real = x.astype(np.float64)
        below = real - real.max(axis=self.axis, keepdims=True, initial=-np.inf)
        return (below - np.log(np.exp(below).sum(axis=self.axis, keepdims=True)),)

    def params(self, builder: Builder) -> Value:
        """Return the parameters with their tables."""
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
