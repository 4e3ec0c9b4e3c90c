"""conv2d: ONNX Conv in two dimensions; groups, depthwise, dilation, fused activation and residual.

Invariant: on codes the bits are acc = sum((x - x_zp) * w) + bias, requantised with x * w[c] / y,
clamped, and with a residual added by the rule of ``add``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import Product, constant_array, lower_product
from npuc.ops.example import floats
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
from npuc.ops.shapes import AUTO_PAD, DILATIONS, PADS, STRIDES, require_rank, text, window_of
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

__all__ = ["Conv2d"]


@op("conv2d")
class Conv2d(Op):
    """Slide weights (O, C / group, KH, KW) over an input (N, C, H, W)."""

    LIMITS = (*COMMON, WINDOW)
    STACKS = True
    WEIGHT_AXIS = 0

    x: Value = operand("input, NCHW")
    weights: Value = operand("filters, OIHW; I is C / group", parameter=True)
    bias: Value | None = operand("one number an output channel", optional=True, parameter=True)
    residual: Value | None = operand("added to the result, of its shape", optional=True)
    auto_pad: str = AUTO_PAD
    dilations: Sequence[int] = DILATIONS
    group: int = attr("parts into which the channels are split", AttrKind.INT, default=1)
    kernel_shape: Sequence[int] | None = attr(
        "rows and columns of the kernel; absent: those of the weights", AttrKind.INTS, default=None
    )
    pads: Sequence[int] = PADS
    strides: Sequence[int] = STRIDES
    clamp: Sequence[float] | None = attr(
        "fused activation: smallest and largest real result", AttrKind.FLOATS, default=None
    )
    inner_scale: float | None = attr(
        "scale of the quantised result before the residual is added", AttrKind.FLOAT, default=None
    )
    inner_zp: int | None = attr("its zero point", AttrKind.INT, default=None)
    inner_clamp: Sequence[float] | None = attr(
        "its smallest and largest real value", AttrKind.FLOATS, default=None
    )

    @property
    def window(self) -> Window:
        """Kernel, strides, dilations and the pads that auto_pad comes to."""
        rows, columns = self.weights.tensor.dims[2:]
        return window_of(self, (rows, columns), self.x.tensor.shape[2:])

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
        """Return (N, O, OH, OW)."""
        require_rank("input", self.x.tensor.shape, 4, "N, C, H, W")
        require_rank("weights", self.weights.tensor.shape, 4, "O, C / group, KH, KW")
        self._check_kernel()
        self._check_channels()
        x = self.x.tensor
        window = self.window
        size = window.output(x.shape[2], x.shape[3])
        if any(d is not None and d < 1 for d in size):
            got = f"kernel {text(window.kernel)} with dilations {text(window.dilations)}"
            raise ValueError(f"{got} does not fit input {text(x.shape)} with pads {window.pads}")
        shape = (x.shape[0], self.weights.tensor.dims[0], *size)
        self._check_residual(shape)
        return [TensorType(shape, x.dtype, None, x.layout)]

    def _check_kernel(self) -> None:
        if None in self.weights.tensor.shape:
            raise ValueError("weights have no dynamic dims")
        rows, columns = self.weights.tensor.dims[2:]
        if self.kernel_shape is not None and tuple(self.kernel_shape) != (rows, columns):
            stated = text(tuple(self.kernel_shape))
            raise ValueError(f"kernel_shape is {stated}, weights have {rows}x{columns}")

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
            raise ValueError("conv2d takes an input and weights")
        if is_quantised(self.x):
            return (self._quantised(x, weights, bias, residual, rounding),)
        y = conv_sums(x, weights, self.window, self.group)
        if bias is not None:
            y += bias.astype(np.float64)[:, None, None]
        if residual is not None:
            y = clamp_real(y, self.inner_clamp) + residual
        return (clamp_real(y, self.clamp),)

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
            weights=constant_array(self, self.weights, "weights"),
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
