"""tile: ONNX Tile; a tensor repeated along its dims.

Invariant: quantised codes are copied as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.movement import lower_remap
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_activation, require_dtypes, require_tied

__all__ = ["Tile"]


@op("tile")
class Tile(Op):
    """Repeat a tensor along each dim."""

    LIMITS = COMMON
    TIED = True

    x: Value = operand("any shape")
    repeats: Sequence[int] = attr("how often the tensor stands along each dim", AttrKind.INTS)

    def infer(self) -> Sequence[Type]:
        """Return the shape, each dim times its repeats."""
        require_dtypes(self.x)
        shape = self.x.tensor.shape
        if len(self.repeats) != len(shape) or any(r < 0 for r in self.repeats):
            expected = f"{len(shape)} numbers of at least 0"
            raise ValueError(f"repeats are {expected}, got {list(self.repeats)}")
        pairs = zip(shape, self.repeats, strict=True)
        return [self.x.tensor.with_shape(tuple(None if d is None else d * r for d, r in pairs))]

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the repeated tensor."""
        return (np.tile(np.asarray(operands[0]), tuple(self.repeats)),)

    def stacks(self) -> bool:
        """Return whether the samples are not repeated."""
        return tuple(self.repeats[:1]) == (1,)

    def lower(self, builder: Builder) -> None:
        """Append a remap."""
        tables = {
            axis: np.tile(np.arange(self.x.tensor.dims[axis]), times).tolist()
            for axis, times in enumerate(self.repeats)
            if times != 1
        }
        lower_remap(builder, self, self.x, self.result, tables)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield repeats of pixels, of channels and of rows."""
        yield cls([floats("x", 1, 19, 2, 3)], {"repeats": [1, 1, 3, 2]})
        yield cls([floats("x", 1, 3, 2, 3)], {"repeats": [2, 7, 1, 1]})
        yield cls([floats("x", 2, 5)], {"repeats": [1, 4]})
