"""conv2d: ONNX Conv in two dimensions; groups, dilation, fused activation and residual."""

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
from npuc.ops.shapes import AUTO_PAD, DILATIONS, PADS, STRIDES

__all__ = ["Conv2d"]


@op("conv2d")
class Conv2d(Convolution):
    """Slide weights (O, C / group, KH, KW) over an input (N, C, H, W)."""

    x: Value = operand("input, NCHW")
    weights: Value = operand("filters, OIHW; I is C / group", parameter=True)
    bias: Value | None = BIAS
    residual: Value | None = RESIDUAL
    auto_pad: str = AUTO_PAD
    dilations: Sequence[int] = DILATIONS
    group: int = GROUP
    kernel_shape: Sequence[int] | None = attr(
        "rows and columns of the kernel; absent: those of the weights", AttrKind.INTS, default=None
    )
    pads: Sequence[int] = PADS
    strides: Sequence[int] = STRIDES
    clamp: Sequence[float] | None = CLAMP
    inner_scale: float | None = INNER_SCALE
    inner_zp: int | None = INNER_ZP
    inner_clamp: Sequence[float] | None = INNER_CLAMP

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield odd shapes, groups, depthwise, dilation, asymmetric pads and auto_pad."""
        for x, w, attributes in _EXAMPLES:
            bias = floats("b", w[0]) if w[0] % 2 else None
            yield cls([floats("x", *x), floats("w", *w), bias], attributes)
        residual = floats("r", 1, 5, 4, 4)
        fused = {"clamp": [0.0, 6.0], "inner_clamp": [-1.0, float("inf")]}
        yield cls([floats("x", 1, 3, 4, 4), floats("w", 5, 3, 1, 1), None, residual], fused)


_EXAMPLES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 1, 5, 5), (1, 1, 3, 3), {}),
    ((2, 3, 7, 9), (4, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ((1, 33, 3, 2), (17, 33, 1, 1), {"clamp": [0.0, 6.0]}),
    ((1, 6, 8, 8), (9, 2, 3, 3), {"group": 3, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 5, 6, 6), (10, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    ((1, 16, 9, 8), (16, 1, 3, 3), {"group": 16, "dilations": [2, 2], "pads": [2, 1, 0, 3]}),
    ((1, 2, 7, 5), (3, 2, 3, 3), {"auto_pad": "SAME_LOWER", "dilations": [1, 2]}),
    ((1, 4, 5, 5), (7, 4, 5, 5), {"auto_pad": "VALID", "kernel_shape": [5, 5]}),
    ((1, 3, 1, 1), (2, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
)
