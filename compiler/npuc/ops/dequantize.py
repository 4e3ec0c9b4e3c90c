"""dequantize: ONNX DequantizeLinear; codes to real numbers.

The operand's type has the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, Limit, Op, Value, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu import tasks
from npuc.npu.builder import Builder, op_params
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    CODES,
    REAL,
    check_results,
    is_quantised,
    quant_of,
    require_parameters,
    stated_dtype,
)
from npuc.reference import dequantize_codes

__all__ = ["Dequantize"]


@op("dequantize")
class Dequantize(Op):
    """x = (q - zero_point) * scale, in float32; rounded once more to f16."""

    LIMITS = (
        *COMMON,
        Limit(
            "activations are int8 or int16, quantised per tensor",
            lambda op: op.x.tensor.dtype in CODES and quant_of(op.x).axis is None,
            "give the tensor one scale; constants may have one a channel",
        ),
    )
    RELAYS = True
    COMPUTES = False
    STACKS = True

    x: Value = operand("codes, any shape")

    def infer(self) -> Sequence[Type]:
        """Return the operand's shape in f32, or the stated f16."""
        if not is_quantised(self.x):
            raise ValueError(f"%{self.x.name} is {self.x.tensor.dtype.text}, expected codes")
        dtype = stated_dtype(self, REAL, DType.F32)
        return [TensorType(self.x.tensor.shape, dtype, layout=self.x.tensor.layout)]

    def verify(self) -> None:
        """Check the parameters."""
        check_results(self)
        require_parameters(self.x)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the real numbers, as float32 or float16."""
        real = dequantize_codes(np.asarray(operands[0]), quant_of(self.x))
        with np.errstate(over="ignore"):
            return (real.astype(self.result.tensor.numpy),)

    def lower(self, builder: Builder) -> None:
        """Append a dequantize task."""
        quant = quant_of(self.x)
        params = op_params(input_zero_point=quant.zero_point, input_scale=quant.scale)
        operands = [
            builder.read(self.x),
            builder.result_of(self.result),
            builder.params(params),
        ]
        builder.task(tasks.Dequantize, self, operands)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield two shapes."""
        for shape in ((1, 3, 4, 5), (7,)):
            stored = TensorType(shape, DType.I8, Quant.per_tensor(0.05, -3))
            yield cls([Value("x", stored)])
