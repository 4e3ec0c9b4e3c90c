"""conv1d: ONNX Conv in one dimension, on a tensor of rank 3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from npuc.ir.core import AttrKind, Value, attr, op, operand
from npuc.ops.convolution import (
    BIAS,
    CLAMP,
    GROUP,
    INNER_CLAMP,
    INNER_SCALE,
    INNER_ZP,
    RESIDUAL,
    Convolution,
)
from npuc.ops.example import floats
from npuc.ops.shapes import AUTO_PAD, LINE_DILATIONS, LINE_PADS, LINE_STRIDES

__all__ = ["Conv1d"]


@op("conv1d")
class Conv1d(Convolution):
    """Slide weights (O, C / group, KW) over an input (N, C, W)."""

    SIDES = ("W",)

    x: Value = operand("input, NCW")
    weights: Value = operand("filters, OIW; I is C / group", parameter=True)
    bias: Value | None = BIAS
    residual: Value | None = RESIDUAL
    auto_pad: str = AUTO_PAD
    dilations: Sequence[int] = LINE_DILATIONS
    group: int = GROUP
    kernel_shape: Sequence[int] | None = attr(
        "length of the kernel; absent: that of the weights", AttrKind.INTS, default=None
    )
    pads: Sequence[int] = LINE_PADS
    strides: Sequence[int] = LINE_STRIDES
    clamp: Sequence[float] | None = CLAMP
    inner_scale: float | None = INNER_SCALE
    inner_zp: int | None = INNER_ZP
    inner_clamp: Sequence[float] | None = INNER_CLAMP

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield odd lengths, groups, depthwise, dilation, auto_pad and a residual."""
        for x, w, attributes in _EXAMPLES:
            bias = floats("b", w[0]) if w[0] % 2 else None
            yield cls([floats("x", *x), floats("w", *w), bias], attributes)
        yield cls([floats("x", 2, 5, 9), floats("w", 5, 5, 1), None, floats("r", 2, 5, 9)])


_EXAMPLES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 1, 5), (1, 1, 3), {}),
    ((2, 3, 19), (17, 3, 5), {"strides": [2], "pads": [1, 3], "clamp": [0.0, 6.0]}),
    ((1, 16, 21), (16, 1, 3), {"group": 16, "dilations": [2], "auto_pad": "SAME_UPPER"}),
    ((1, 6, 8), (9, 2, 4), {"group": 3, "kernel_shape": [4], "auto_pad": "SAME_LOWER"}),
)
