"""conv_transpose2d: ONNX ConvTranspose in two dimensions; groups, dilation, fused activation.

Invariant: on codes the bits are those of conv2d: the exact sum of the products that reach a
result, plus the bias, requantised with x * w[c] / y and clamped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import Product, constant_array, lower_product
from npuc.npu.movement import strided
from npuc.npu.regions import whole
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_clamp,
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_float,
    require_float_layer,
    require_scaled_bias,
    require_symmetric,
)
from npuc.ops.shapes import AUTO_PAD, DILATIONS, STRIDES, require_rank, text, whole_numbers
from npuc.reference import clamp_codes, clamp_real, conv_scales, needs_wide, requantise
from npuc.transposed import Axis, Phase, filters_of, scales_of
from npuc.window import Window

__all__ = ["ConvTranspose2d"]

_FIELD_MAX = 255


def _fits(op: ConvTranspose2d) -> bool:
    if None in op.x.tensor.shape:
        return True
    numbers = [
        number
        for axis, size in zip(op.along, op.x.tensor.dims[2:], strict=True)
        for phase in axis.phases(size)
        for number in (len(phase.taps), phase.dilation, phase.before, phase.behind)
    ]
    return max(numbers, default=0) <= _FIELD_MAX


@op("conv_transpose2d")
class ConvTranspose2d(Op):
    """Spread an input (N, C, H, W) by weights (C, O / group, KH, KW), the gradient of conv2d."""

    LIMITS = (
        *COMMON,
        Limit(
            f"kernel, dilations and pads, divided by the strides, are at most {_FIELD_MAX}",
            _fits,
            "use a smaller kernel",
        ),
    )
    STACKS = True
    WEIGHT_AXIS = 1

    x: Value = operand("input, NCHW")
    weights: Value = operand("(C, O / group, KH, KW)", parameter=True)
    bias: Value | None = operand("one number an output channel", optional=True, parameter=True)
    auto_pad: str = AUTO_PAD
    dilations: Sequence[int] = DILATIONS
    group: int = attr("parts into which the channels are split", AttrKind.INT, default=1)
    kernel_shape: Sequence[int] | None = attr(
        "rows and columns of the kernel; absent: those of the weights", AttrKind.INTS, default=None
    )
    output_padding: Sequence[int] = attr(
        "rows and columns added behind the result", AttrKind.INTS, default=(0, 0)
    )
    output_shape: Sequence[int] | None = attr(
        "rows and columns of the result, in place of pads", AttrKind.INTS, default=None
    )
    pads: Sequence[int] = attr(
        "rows and columns taken off the result: top, left, bottom, right",
        AttrKind.INTS,
        default=(0, 0, 0, 0),
    )
    strides: Sequence[int] = STRIDES
    clamp: Sequence[float] | None = attr(
        "fused activation: smallest and largest real result", AttrKind.FLOATS, default=None
    )

    @property
    def along(self) -> tuple[Axis, Axis]:
        """What happens along rows and columns, pads resolved."""
        rows, columns = self._axis(0), self._axis(1)
        return rows, columns

    def _axis(self, number: int) -> Axis:
        free = Axis(
            kernel=self.weights.tensor.dims[2 + number],
            stride=self.strides[number],
            dilation=self.dilations[number],
            more=self.output_padding[number],
        )
        extent = self.x.tensor.shape[2 + number]
        same = self.auto_pad in ("SAME_UPPER", "SAME_LOWER")
        if extent is None or not (same or self.output_shape is not None):
            begin, end = self.pads[number], self.pads[number + 2]
            return replace(free, begin=begin, end=end)
        wanted = extent * free.stride if self.output_shape is None else self.output_shape[number]
        total = free.full(extent) - wanted
        if total < 0:
            raise ValueError(
                f"a result of {wanted} is larger than the {free.full(extent)} that the kernel "
                "reaches: state pads and output_padding"
            )
        small, large = total // 2, total - total // 2
        upper = self.auto_pad == "SAME_UPPER"
        begin, end = (small, large) if upper else (large, small)
        return replace(free, begin=begin, end=end)

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return self.weights.tensor.dims[1] * self.group

    def infer(self) -> Sequence[Type]:
        """Return (N, O, OH, OW)."""
        require_rank("input", self.x.tensor.shape, 4, "N, C, H, W")
        require_rank("weights", self.weights.tensor.shape, 4, "C, O / group, KH, KW")
        self._check_numbers()
        self._check_channels()
        x = self.x.tensor
        size = [axis.output(d) for axis, d in zip(self.along, x.shape[2:], strict=True)]
        if any(d is not None and d < 1 for d in size):
            raise ValueError(f"pads {list(self.pads)} leave nothing of the result")
        return [TensorType((x.shape[0], self.outputs, *size), x.dtype, None, x.layout)]

    def _check_numbers(self) -> None:
        if None in self.weights.tensor.shape:
            raise ValueError("weights have no dynamic dims")
        kernel = self.weights.tensor.dims[2:]
        if self.kernel_shape is not None and tuple(self.kernel_shape) != kernel:
            stated = text(tuple(self.kernel_shape))
            raise ValueError(f"kernel_shape is {stated}, weights have {text(kernel)}")
        if self.auto_pad not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
            known = "NOTSET, SAME_UPPER, SAME_LOWER or VALID"
            raise ValueError(f"auto_pad is {known}, got {self.auto_pad!r}")
        if self.auto_pad != "NOTSET" and any(self.pads):
            raise ValueError(f"auto_pad {self.auto_pad} computes the pads: remove pads or auto_pad")
        whole_numbers("strides", self.strides, 2, 1)
        whole_numbers("dilations", self.dilations, 2, 1)
        whole_numbers("pads", self.pads, 4, 0)
        whole_numbers("output_padding", self.output_padding, 2, 0)
        if self.output_shape is not None:
            whole_numbers("output_shape", self.output_shape, 2, 1)
        steps = zip(self.output_padding, self.strides, self.dilations, strict=True)
        if any(more >= max(stride, dilation) for more, stride, dilation in steps):
            got = list(self.output_padding)
            raise ValueError(f"output_padding is less than stride or dilation, got {got}")

    def _check_channels(self) -> None:
        channels, depth = self.x.tensor.shape[1], self.weights.tensor.dims[0]
        if self.group < 1 or depth % self.group:
            raise ValueError(f"{depth} input channels do not split into {self.group} groups")
        if channels is not None and channels != depth:
            raise ValueError(f"input has {channels} channels, the weights {depth}")
        if self.bias is not None and self.bias.tensor.shape != (self.outputs,):
            got = text(self.bias.tensor.shape)
            raise ValueError(f"bias has one number for each of {self.outputs} channels, got {got}")

    def verify(self) -> None:
        """Check element types and parameters."""
        check_results(self)
        check_clamp("clamp", self.clamp)
        if not is_quantised(self.x):
            require_float(self)
            return require_float_layer(self.x, self.weights, self.bias)
        require_activation(self.x, self.result)
        require_symmetric(self.weights)
        require_scaled_bias(self.x, self._scales(), self.bias)
        return None

    def _scales(self) -> tuple[float, ...]:
        """Return the weights' scale for each output channel."""
        return scales_of(quant_of(self.weights), self.weights.tensor.dims, self.group)

    def _filter_quant(self) -> Quant | None:
        if not is_quantised(self.weights):
            return None
        return Quant(self._scales(), (0,) * self.outputs, axis=0)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the transposed convolution; exact."""
        x, weights, bias = (*operands, None)[:3]
        if x is None or weights is None:
            raise ValueError("conv_transpose2d takes an input and weights")
        if is_quantised(self.x):
            return (self._quantised(x, weights, bias, rounding),)
        y = self._sums(x, weights)
        if bias is not None:
            y += bias.astype(np.float64)[:, None, None]
        return (clamp_real(y, self.clamp),)

    def _sums(self, x: Array, weights: Array) -> Array:
        """Return the sums of what each input spreads over the result, in float64."""
        rows, columns = self.along
        filters = filters_of(weights.astype(np.float64), self.group)
        spread = np.zeros((len(x), len(filters), rows.full(x.shape[2]), columns.full(x.shape[3])))
        images = x.astype(np.float64).reshape(len(x), self.group, -1, x.shape[2] * x.shape[3])
        for i, j in product(range(rows.kernel), range(columns.kernel)):
            tap = filters[:, :, i, j].reshape(self.group, -1, filters.shape[1])
            part = (tap @ images).reshape(*spread.shape[:2], *x.shape[2:])
            at = (_places(rows, i, x.shape[2]), _places(columns, j, x.shape[3]))
            spread[:, :, at[0], at[1]] += part
        height, width = spread.shape[2:]
        return spread[:, :, rows.begin : height - rows.end, columns.begin : width - columns.end]

    def _quantised(self, x: Array, weights: Array, bias: Array | None, rounding: Rounding) -> Array:
        source, target, dtype = quant_of(self.x), quant_of(self.result), self.x.tensor.dtype
        sums = self._sums(x.astype(np.int64) - source.zero_point, weights).astype(np.int64)
        if bias is not None:
            sums += bias.astype(np.int64)[:, None, None]
        scales = conv_scales(source.scale, self._scales(), target.scale, rounding)
        limits = clamp_codes(target, self.clamp, rounding, dtype)
        wide = needs_wide(filters_of(weights, self.group), bias, source.zero_point, dtype)
        point = target.zero_point
        return requantise(sums, scales, point, limits, rounding, wide=wide, dtype=dtype)

    def lower(self, builder: Builder) -> None:
        """Append a convolution of stride 1 for each phase, into its places of the result."""
        filters = filters_of(constant_array(self, self.weights, "weights"), self.group)
        bias = None if self.bias is None else constant_array(self, self.bias, "bias")
        source, target = builder.read(self.x), builder.result_of(self.result)
        sizes = self.x.tensor.dims[2:]
        rows, columns = (a.phases(n) for a, n in zip(self.along, sizes, strict=True))
        for down, across in product(rows, columns):
            box = whole(source).along(2, down.start, down.size).along(3, across.start, across.size)
            places = (down.first, across.first), tuple(self.strides), (down.count, across.count)
            made = Product(
                op=self,
                x=self.x,
                result=self.result,
                weights=_taps(filters, down, across),
                weight_quant=self._filter_quant(),
                bias=bias,
                window=_window(down, across),
                group=self.group,
                clamp=self.clamp,
                source=builder.slice(source, box),
                target=strided(builder, target, *places),
            )
            lower_product(builder, made)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield strides, groups, depthwise, dilation, pads, output padding and stated shapes."""
        for x, w, attributes in _EXAMPLES:
            outputs = w[1] * attributes.get("group", 1)
            bias = floats("b", outputs) if outputs % 2 else None
            yield cls([floats("x", *x), floats("w", *w), bias], attributes)


def _places(axis: Axis, tap: int, extent: int) -> slice:
    first = tap * axis.dilation
    return slice(first, first + (extent - 1) * axis.stride + 1, axis.stride)


def _taps(filters: Array, down: Phase, across: Phase) -> Array:
    """Return the filters of a phase, turned round; weights of 0 where the phase has no tap."""
    if not down.taps or not across.taps:
        return np.zeros((*filters.shape[:2], *_window(down, across).kernel), filters.dtype)
    return filters[:, :, down.taps][:, :, :, across.taps]


def _window(down: Phase, across: Phase) -> Window:
    return Window(
        kernel=(max(len(down.taps), 1), max(len(across.taps), 1)),
        dilations=(down.dilation, across.dilation),
        pads=(down.before, across.before, down.behind, across.behind),
    )


_EXAMPLES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 3, 5, 6), (3, 5, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1],
                                  "output_padding": [1, 1]}),
    ((2, 17, 4, 3), (17, 19, 2, 2), {"strides": [2, 2], "clamp": [0.0, 6.0]}),
    ((1, 6, 4, 5), (6, 2, 3, 4), {"group": 3, "strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 16, 5, 4), (16, 1, 4, 4), {"group": 16, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 6, 5), (2, 3, 3, 2), {"dilations": [2, 3], "strides": [1, 2],
                                  "output_shape": [9, 11]}),
    ((1, 4, 3, 3), (4, 7, 1, 2), {"strides": [3, 3], "output_padding": [2, 0]}),
)  # fmt: skip
