"""fake_quant: a quantize and a dequantize in one, as training leaves them in a float graph.

The pass freeze_fake_quant makes its parameters those that the operand is stored with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_float, require_parameters
from npuc.reference import dequantize_codes, quantize_codes

__all__ = ["FakeQuant"]


@op("fake_quant")
class FakeQuant(Op):
    """(q - zero_point) * scale of the int8 code q of x; states the parameters of x."""

    LIMITS = COMMON
    COMPUTES = False
    STACKS = True

    x: Value = operand("real numbers, any shape")
    scale: float = attr("real value of a step", AttrKind.FLOAT)
    zero_point: int = attr("code of 0", AttrKind.INT, default=0)

    @property
    def quant(self) -> Quant:
        """The parameters that it states."""
        return Quant.per_tensor(self.scale, self.zero_point)

    @property
    def codes(self) -> TensorType:
        """The type of the codes between."""
        return self.x.tensor.with_quant(DType.I8, self.quant)

    def infer(self) -> Sequence[Type]:
        """Return the operand's type, without parameters."""
        require_float(self)
        require_parameters(Value(self.x.name, self.codes))
        return [self.x.tensor.with_quant(self.x.tensor.dtype, None)]

    def verify(self) -> None:
        """Check the result against the operand."""
        check_results(self)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the nearest numbers that have codes."""
        codes = quantize_codes(np.asarray(operands[0]), self.quant, self.codes.numpy, rounding)
        return (dequantize_codes(codes, self.quant),)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield three ranks."""
        for shape in ((1, 3, 4, 5), (2, 17), ()):
            yield cls([floats("x", *shape)], {"scale": 0.05, "zero_point": -3})
