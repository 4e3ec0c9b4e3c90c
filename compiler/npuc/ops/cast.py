"""cast: ONNX Cast between float types; how a float is stored on the device is its precision's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu import tasks
from npuc.npu.builder import Builder
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import REAL, check_results, require_float

__all__ = ["Cast"]

_TARGETS = {dtype.text: dtype for dtype in REAL}


@op("cast")
class Cast(Op):
    """Round every element to another float type; halves go to even, f16 overflows to infinity."""

    LIMITS = COMMON
    RELAYS = True
    TIED = True
    RELAYS = True
    STACKS = True

    x: Value = operand("any shape")
    to: str = attr("f32 or f16", AttrKind.STRING)

    def infer(self) -> Sequence[Type]:
        """Return the operand's shape in the other type."""
        require_float(self)
        if self.to not in _TARGETS:
            raise ValueError(f"to is {' or '.join(_TARGETS)}, got {self.to!r}")
        x = self.x.tensor
        return [TensorType(x.shape, _TARGETS[self.to], layout=x.layout)]

    def verify(self) -> None:
        """Check the result's type."""
        check_results(self)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the rounded numbers."""
        x = np.asarray(operands[0])
        with np.errstate(over="ignore"):
            return (x.astype(_TARGETS[self.to].numpy).astype(np.float64),)

    def lower(self, builder: Builder) -> None:
        """Append a cast task."""
        builder.task(tasks.Cast, self, [builder.read(self.x), builder.result_of(self.result)])

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield both directions."""
        yield cls([floats("x", 1, 3, 4, 5)], {"to": "f16"})
        yield cls([Value("x", TensorType((2, 7), DType.F16))], {"to": "f32"})
