"""Convolution, of whatever number of axes: conv2d and conv1d are it, each with its fields.

Rows and columns are what a window slides over; a line of one axis is a plane of one row. Invariant:
on codes the bits are acc = sum((x - x_zp) * w) + bias, requantised with x * w[c] / y, clamped, and
with a residual added by the rule of ``add``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import Product, constant_array, lower_product
from npuc.ops.limits import COMMON, WINDOW
from npuc.ops.quantised import (
    CODE_RANGES,
    check_clamp,
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_bias,
    require_dtypes,
    require_float,
    require_float_layer,
    require_weights,
)
from npuc.ops.shapes import plane, require_rank, text, window_of
from npuc.reference import (
    add_codes,
    clamp_codes,
    clamp_real,
    conv_scales,
    conv_sums,
    needs_wide,
    requantise,
)
from npuc.window import Window

__all__ = [
    "BIAS",
    "CLAMP",
    "GROUP",
    "INNER_CLAMP",
    "INNER_SCALE",
    "INNER_ZP",
    "RESIDUAL",
    "Convolution",
]

BIAS = operand("one number an output channel", optional=True, parameter=True)
RESIDUAL = operand("added to the result, of its shape", optional=True)
GROUP = attr("parts into which the channels are split", AttrKind.INT, default=1)
CLAMP = attr("fused activation: smallest and largest real result", AttrKind.FLOATS, default=None)
INNER_SCALE = attr(
    "scale of the quantised result before the residual is added", AttrKind.FLOAT, default=None
)
INNER_ZP = attr("its zero point", AttrKind.INT, default=None)
INNER_CLAMP = attr("its smallest and largest real value", AttrKind.FLOATS, default=None)


class Convolution(Op):
    """What conv2d and conv1d share: all but the declaration of their fields."""

    LIMITS = (*COMMON, WINDOW)
    STACKS = True
    WEIGHT_AXIS = 0
    SIDES: ClassVar[tuple[str, ...]] = ("H", "W")
    """Names of the dims that the window slides over."""

    x: Value
    weights: Value
    bias: Value | None
    residual: Value | None
    group: int
    kernel_shape: Sequence[int] | None
    clamp: Sequence[float] | None
    inner_scale: float | None
    inner_zp: int | None
    inner_clamp: Sequence[float] | None

    @property
    def window(self) -> Window:
        """Kernel, strides, dilations and the pads that auto_pad comes to."""
        return window_of(self, self.weights.tensor.dims[2:], self.x.tensor.shape[2:])

    @property
    def depthwise(self) -> bool:
        """Whether each output channel reads one input channel (any channel multiplier)."""
        return self.group == self.x.tensor.shape[1] and self.weights.tensor.shape[1] == 1

    @property
    def inner_quant(self) -> Quant:
        """Parameters of the result before the residual is added."""
        if self.inner_scale is None or self.inner_zp is None:
            raise ValueError("a quantised residual needs inner_scale and inner_zp")
        return Quant.per_tensor(self.inner_scale, self.inner_zp)

    def infer(self) -> Sequence[Type]:
        """Return (N, O, OH, OW), or (N, O, OW)."""
        rank, sides = 2 + len(self.SIDES), ", ".join(self.SIDES)
        kernel = ", ".join(f"K{side}" for side in self.SIDES)
        require_rank("input", self.x.tensor.shape, rank, f"N, C, {sides}")
        require_rank("weights", self.weights.tensor.shape, rank, f"O, C / group, {kernel}")
        self._check_kernel()
        self._check_channels()
        x = self.x.tensor
        window = self.window
        size = window.output(*plane(x.shape))[-len(self.SIDES) :]
        if any(d is not None and d < 1 for d in size):
            got = f"kernel {text(window.kernel)} with dilations {text(window.dilations)}"
            raise ValueError(f"{got} does not fit input {text(x.shape)} with pads {window.pads}")
        shape = (x.shape[0], self.weights.tensor.dims[0], *size)
        self._check_residual(shape)
        return [TensorType(shape, x.dtype, None, x.layout)]

    def _check_kernel(self) -> None:
        if None in self.weights.tensor.shape:
            raise ValueError("weights have no dynamic dims")
        kernel = self.weights.tensor.dims[2:]
        if self.kernel_shape is not None and tuple(self.kernel_shape) != kernel:
            stated = text(tuple(self.kernel_shape))
            raise ValueError(f"kernel_shape is {stated}, weights have {text(kernel)}")

    def _check_channels(self) -> None:
        channels = self.x.tensor.shape[1]
        outputs, depth = self.weights.tensor.dims[:2]
        if self.group < 1 or outputs % self.group:
            raise ValueError(f"{outputs} output channels do not split into {self.group} groups")
        if channels is not None and channels != depth * self.group:
            expected = f"weights of {self.group} groups expect {depth * self.group}"
            raise ValueError(f"input has {channels} channels, {expected}")
        if self.bias is not None and self.bias.tensor.shape != (outputs,):
            got = text(self.bias.tensor.shape)
            raise ValueError(f"bias has one number for each of {outputs} channels, got {got}")

    def _check_residual(self, shape: tuple[int | None, ...]) -> None:
        if self.residual is not None and self.residual.tensor.shape != shape:
            got = text(self.residual.tensor.shape)
            raise ValueError(f"residual has the result's shape {text(shape)}, got {got}")

    def verify(self) -> None:
        """Check element types, parameters and the fused parts."""
        check_results(self)
        check_clamp("clamp", self.clamp)
        check_clamp("inner_clamp", self.inner_clamp)
        inner = (self.inner_scale, self.inner_zp, self.inner_clamp)
        if self.residual is None and any(v is not None for v in inner):
            raise ValueError("inner_scale, inner_zp and inner_clamp come with a residual only")
        if not is_quantised(self.x):
            require_float(self)
            return require_float_layer(self.x, self.weights, self.bias, self.residual)
        require_activation(self.x, self.residual, self.result)
        require_weights(self.weights)
        require_bias(self.x, self.weights, self.bias)
        if self.residual is not None:
            require_dtypes(self.x, self.residual)
            self._check_inner()
        return None

    def _check_inner(self) -> None:
        quant, (low, high) = self.inner_quant, CODE_RANGES[self.x.tensor.dtype]
        if not 0 < quant.scale < float("inf") or not low <= quant.zero_point <= high:
            raise ValueError(f"inner parameters are out of range: {quant}")

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the convolution; exact."""
        x, weights, bias, residual = (*operands, None, None)[:4]
        if x is None or weights is None:
            raise ValueError(f"{self.NAME} takes an input and weights")
        planes = [None if v is None else _plane(v) for v in (x, weights, residual)]
        y = self._planes(planes, bias, rounding)
        return (y.reshape(*y.shape[:2], *y.shape[4 - len(self.SIDES) :]),)

    def _planes(
        self, operands: Sequence[Array | None], bias: Array | None, rounding: Rounding
    ) -> Array:
        x, weights, residual = operands
        if x is None or weights is None:
            raise ValueError(f"{self.NAME} takes an input and weights")
        if is_quantised(self.x):
            return self._quantised(x, weights, bias, residual, rounding)
        y = conv_sums(x, weights, self.window, self.group)
        if bias is not None:
            y += bias.astype(np.float64)[:, None, None]
        if residual is not None:
            y = clamp_real(y, self.inner_clamp) + residual
        return clamp_real(y, self.clamp)

    def _quantised(
        self,
        x: Array,
        weights: Array,
        bias: Array | None,
        residual: Array | None,
        rounding: Rounding,
    ) -> Array:
        source, final, dtype = quant_of(self.x), quant_of(self.result), self.x.tensor.dtype
        target = final if residual is None else self.inner_quant
        clamp = self.clamp if residual is None else self.inner_clamp
        centred = x.astype(np.int64) - source.zero_point
        sums = conv_sums(centred, weights, self.window, self.group).astype(np.int64)
        if bias is not None:
            sums += bias.astype(np.int64)[:, None, None]
        scales = conv_scales(source.scale, quant_of(self.weights).scales, target.scale, rounding)
        limits = clamp_codes(target, clamp, rounding, dtype)
        wide = needs_wide(weights, bias, source.zero_point, dtype)
        y = requantise(sums, scales, target.zero_point, limits, rounding, wide=wide, dtype=dtype)
        if residual is None or self.residual is None:
            return y
        pair = ((y, target), (residual, quant_of(self.residual)))
        limits = clamp_codes(final, self.clamp, rounding, dtype)
        return add_codes(pair, final, limits, rounding, dtype)

    def lower(self, builder: Builder) -> None:
        """Append a conv or depthwise task."""
        bias = None if self.bias is None else constant_array(self, self.bias, "bias")
        product = Product(
            op=self,
            x=self.x,
            result=self.result,
            weights=_plane(constant_array(self, self.weights, "weights")),
            weight_quant=self.weights.tensor.quant,
            bias=bias,
            window=self.window,
            group=self.group,
            clamp=self.clamp,
            residual=self.residual,
            inner=None if self.inner_scale is None else self.inner_quant,
            inner_clamp=self.inner_clamp,
        )
        lower_product(builder, product)


def _plane(array: Array) -> Array:
    """Return an array of rank 4: a line is a plane of one row."""
    return array.reshape(*array.shape[:2], 1, -1) if array.ndim == 3 else array
