"""quantize: ONNX QuantizeLinear; real numbers to codes.

The parameters stand in the result's type; scale and zero_point may also be written as attributes,
and then the type may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu import tasks
from npuc.npu.builder import Builder, op_params
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    CODES,
    check_results,
    quant_of,
    require_float,
    require_parameters,
    stated_dtype,
)
from npuc.reference import quantize_codes

__all__ = ["Quantize"]


@op("quantize")
class Quantize(Op):
    """q = round(x / scale) + zero_point, divided in float32, saturated to int8 or int16."""

    LIMITS = (
        *COMMON,
        Limit(
            "activations are quantised per tensor",
            lambda op: quant_of(op.result).axis is None,
            "give the tensor one scale",
        ),
    )
    RELAYS = True
    COMPUTES = False
    STACKS = True

    x: Value = operand("real numbers, any shape")
    scale: float | None = attr(
        "real value of a step; absent: in the result's type", AttrKind.FLOAT, default=None
    )
    zero_point: int | None = attr(
        "code of 0; absent: in the result's type, or 0", AttrKind.INT, default=None
    )

    def infer(self) -> Sequence[Type]:
        """Return the operand's shape in i8 or the stated i16, with the attributes as parameters."""
        require_float(self)
        if self.scale is None and self.zero_point is not None:
            raise ValueError("zero_point comes with a scale")
        stated = self._stated()
        dtype = stated_dtype(self, CODES, DType.I8)
        return [TensorType(self.x.tensor.shape, dtype, stated, self.x.tensor.layout)]

    def _stated(self) -> Quant | None:
        if self.scale is None:
            return None
        return Quant.per_tensor(self.scale, self.zero_point or 0)

    def verify(self) -> None:
        """Check the parameters, and that attributes and type agree."""
        check_results(self)
        require_parameters(self.result)
        stated = self._stated()
        if stated is not None and stated != self.result.tensor.quant:
            got = self.result.tensor.quant
            raise ValueError(f"attributes say {stated}, the result's type says {got}")

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the codes."""
        x = np.asarray(operands[0])
        return (quantize_codes(x, quant_of(self.result), self.result.tensor.numpy, rounding),)

    def lower(self, builder: Builder) -> None:
        """Append a quantize task."""
        quant = quant_of(self.result)
        params = op_params(output_zero_point=quant.zero_point, output_scale=quant.scale)
        operands = [
            builder.read(self.x),
            builder.result_of(self.result),
            builder.params(params),
        ]
        builder.task(tasks.Quantize, self, operands)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield two ranks."""
        yield cls([floats("x", 1, 3, 4, 5)], {"scale": 0.05, "zero_point": -3})
        yield cls([floats("x", 7)], {"scale": 0.5})
