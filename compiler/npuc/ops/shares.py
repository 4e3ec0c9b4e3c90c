"""What softmax and log_softmax share: one axis, fixed parameters of results, limits on codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from npuabi.enums import DType
from npuabi.fixedpoint import MOST_TERMS
from npuc.ir.core import Limit, Op, Value
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.tasks import Task
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.ops.shapes import device_axis, normalise_axis

__all__ = ["Shares", "terms_limit"]

_LEAST_SCALE = 2.0**-26


def terms_limit(name: str) -> tuple[Limit, ...]:
    """Return the limits of the op *name*: the common ones, and what a fixed-point sum holds."""
    text = f"{name} on codes runs over at most {MOST_TERMS:,} elements"
    return (*COMMON, Limit(text, _terms_fit, "use fp16"))


def _terms_fit(op: Shares) -> bool:
    extent = op.x.tensor.shape[normalise_axis(op.axis, op.x.tensor.rank)]
    return extent is None or not is_quantised(op.x) or extent <= MOST_TERMS


class Shares(Op):
    """An op on the shares of elements along an axis; subclasses declare operand and attribute."""

    ROWS = True
    TASK: ClassVar[type[Task]]

    x: Value
    axis: int
    FIXED: ClassVar[Mapping[DType, Quant]]
    """Parameters of quantised results, by dtype."""

    def infer(self) -> Sequence[Type]:
        """Return the shape of the operand; quantised, with the fixed parameters."""
        x = self.x.tensor
        require_dtypes(self.x)
        normalise_axis(self.axis, x.rank)
        return [TensorType(x.shape, x.dtype, self.FIXED.get(x.dtype), x.layout)]

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

    def stacks(self) -> bool:
        """Return whether axis is none of the samples."""
        return normalise_axis(self.axis, self.x.tensor.rank) != 0

    def lower(self, builder: Builder) -> None:
        """Append a task; the tables that it looks up are in its parameters."""
        operands = [builder.read(self.x), builder.result_of(self.result), self.params(builder)]
        axis = device_axis(self.axis, self.x.tensor.rank)
        builder.task(self.TASK, self, operands, kernel=(axis, 0))

    def params(self, builder: Builder) -> Value:
        """Return the parameters tensor of the task."""
        raise NotImplementedError(self.NAME)
