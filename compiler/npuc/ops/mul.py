"""mul: ONNX Mul; the product of two tensors, with a fused activation."""

from __future__ import annotations

from npuabi.enums import Rounding
from npuabi.fixedpoint import multiplier_of
from npuc.expression import Expression
from npuc.ir.core import Array, op
from npuc.npu.builder import Builder
from npuc.npu.pointwise import lower_pair
from npuc.npu.tasks import Mul as MulTask
from npuc.ops.pairs import Pair
from npuc.ops.quantised import quant_of
from npuc.pointwise_codes import multiplied, product_scale

__all__ = ["Mul"]


@op("mul")
class Mul(Pair):
    """a * b; quantised as LiteRT's MUL, for rounding even as ONNX Runtime's QLinearMul."""

    def real(self, a: Array, b: Array) -> Array:
        return a * b

    def expression(self, x: Expression, y: Expression) -> Expression:
        return x * y

    def codes(self, x: Array, y: Array, rounding: Rounding) -> Array:
        return multiplied(x, y, self._scale(), quant_of(self.result), self.dtype, rounding)

    def lower_codes(self, builder: Builder, clamp: tuple[int, int]) -> None:
        multiplier, shift = multiplier_of(self._scale(), builder.rounding)
        fields = {"output_multiplier": multiplier, "output_shift": shift}
        lower_pair(builder, MulTask, self, [self.a, self.b], self.result, clamp, **fields)

    def _scale(self) -> float:
        return product_scale(quant_of(self.a), quant_of(self.b), quant_of(self.result))
