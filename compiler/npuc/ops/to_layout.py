"""to_layout: the same tensor laid out otherwise; made by the layout pass at integer interfaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Layout, Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_copy
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import check_results, require_tied

__all__ = ["ToLayout"]

_LAYOUTS = {layout.name.lower(): layout for layout in (Layout.NCHW, Layout.NHWC, Layout.NCHW16C)}


@op("to_layout")
class ToLayout(Op):
    """Copy every element to where the other layout has it; numbers and shape stay."""

    LIMITS = COMMON
    RELAYS = True
    COMPUTES = False
    STACKS = True

    x: Value = operand("any tensor")
    layout: str = attr("nchw, nhwc or nchw16c", AttrKind.STRING)

    def infer(self) -> Sequence[Type]:
        """Return the operand's type in the other layout."""
        if self.layout not in _LAYOUTS:
            raise ValueError(f"layout is {', '.join(_LAYOUTS)}, got {self.layout!r}")
        return [self.x.tensor.with_layout(_LAYOUTS[self.layout])]

    def verify(self) -> None:
        """Check that only the layout differs."""
        check_results(self)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the operand."""
        return (np.asarray(operands[0]),)

    def lower(self, builder: Builder) -> None:
        """Append a copy into the other layout."""
        lower_copy(builder, self, builder.read(self.x), builder.result_of(self.result))

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield each layout."""
        for layout in _LAYOUTS:
            yield cls([floats("x", 1, 19, 3, 5)], {"layout": layout})
