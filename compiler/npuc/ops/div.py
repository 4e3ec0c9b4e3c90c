"""div: ONNX Div; the quotient of two tensors, with a fused activation.

Numbers divide as IEEE 754 has it. Of codes x / 0 gives the end of the range on the side of x, 0 / 0
gives 0.
"""

from __future__ import annotations

import numpy as np

from npuabi.enums import Rounding
from npuabi.fixedpoint import quantize_multiplier
from npuc.expression import Expression
from npuc.ir.core import Array, op
from npuc.npu.builder import Builder
from npuc.npu.pointwise import lower_eval, lower_pair
from npuc.npu.tasks import Div as DivTask
from npuc.ops.pairs import Pair
from npuc.ops.quantised import quant_of
from npuc.pointwise_codes import divided, quotient_scale

__all__ = ["Div"]


@op("div")
class Div(Pair):
    """a / b; quantised as LiteRT's DIV, where x / 0 saturates and 0 / 0 is 0."""

    def real(self, a: Array, b: Array) -> Array:
        return np.asarray(a / b)

    def expression(self, x: Expression, y: Expression) -> Expression:
        return x / y

    def codes(self, x: Array, y: Array, rounding: Rounding) -> Array:
        """Return LiteRT's codes, or for EVEN those of the float32 steps."""
        if rounding is Rounding.EVEN:
            return self.even_codes(x, y)
        return divided(x, y, self._scale(), quant_of(self.result), self.dtype, rounding)

    def lower_codes(self, builder: Builder, clamp: tuple[int, int]) -> None:
        """Append a div, or for EVEN an eval."""
        operands = [self.a, self.b]
        if builder.rounding is Rounding.EVEN:
            return lower_eval(builder, self, self.steps(), operands, self.result, clamp)
        multiplier, shift = quantize_multiplier(self._scale())
        fields = {"output_multiplier": multiplier, "output_shift": shift}
        return lower_pair(builder, DivTask, self, operands, self.result, clamp, **fields)

    def _scale(self) -> float:
        return quotient_scale(quant_of(self.a), quant_of(self.b), quant_of(self.result))
