"""sub: ONNX Sub; the first tensor less the second, with a fused activation."""

from __future__ import annotations

from npuabi.enums import Rounding
from npuc.expression import Expression
from npuc.ir.core import Array, op
from npuc.npu.builder import Builder
from npuc.npu.pointwise import lower_eval, lower_pair
from npuc.npu.tasks import Sub as SubTask
from npuc.ops.pairs import Pair
from npuc.ops.quantised import quant_of
from npuc.pointwise_codes import sub_fields, subtracted

__all__ = ["Sub"]


@op("sub")
class Sub(Pair):
    """a - b; quantised as LiteRT's SUB."""

    def real(self, a: Array, b: Array) -> Array:
        return a - b

    def expression(self, x: Expression, y: Expression) -> Expression:
        return x - y

    def codes(self, x: Array, y: Array, rounding: Rounding) -> Array:
        """Return LiteRT's codes, or for EVEN those of the float32 steps."""
        if rounding is Rounding.EVEN:
            return self.even_codes(x, y)
        a, b, target = map(quant_of, (self.a, self.b, self.result))
        return subtracted(x, y, (a.scale, b.scale), target, self.dtype, rounding)

    def lower_codes(self, builder: Builder, clamp: tuple[int, int]) -> None:
        """Append a sub, or for EVEN an eval."""
        if builder.rounding is Rounding.EVEN:
            return lower_eval(builder, self, self.steps(), [self.a, self.b], self.result, clamp)
        a, b, target = (quant_of(v).scale for v in (self.a, self.b, self.result))
        fields = sub_fields((a, b), target, self.dtype)
        return lower_pair(builder, SubTask, self, [self.a, self.b], self.result, clamp, **fields)
