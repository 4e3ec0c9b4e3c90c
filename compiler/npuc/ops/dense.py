"""dense: a fully connected layer, y = x @ weights.T + bias, with a fused activation.

Quantised as a convolution of one tap, a row a pixel: the same sums and clamps. Rounding double
keeps the scale in float64, as LiteRT's reference kernel does; the other modes scale as conv2d does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import TensorType, Type
from npuc.npu.builder import Builder
from npuc.npu.lowering import Product, constant_array, lower_product
from npuc.npu.matrices import read_rows, rows_target
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_clamp,
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_bias,
    require_float,
    require_float_layer,
    require_weights,
)
from npuc.ops.shapes import require_rank, text
from npuc.reference import (
    clamp_codes,
    clamp_real,
    conv_scales,
    needs_wide,
    requantise,
    requantise_real,
)
from npuc.window import Window

__all__ = ["Dense"]


@op("dense")
class Dense(Op):
    """Multiply rows (..., K) by weights (O, K)."""

    LIMITS = COMMON
    STACKS = True
    WEIGHT_AXIS = 0

    x: Value = operand("input, (..., K)")
    weights: Value = operand("weights, (O, K)", parameter=True)
    bias: Value | None = operand("one number an output, (O)", optional=True, parameter=True)
    clamp: Sequence[float] | None = attr(
        "fused activation: smallest and largest real result", AttrKind.FLOATS, default=None
    )

    def infer(self) -> Sequence[Type]:
        """Return (..., O)."""
        x, weights = self.x.tensor, self.weights.tensor
        if x.rank < 2:
            raise ValueError(f"input has at least 2 dims (..., K), got {text(x.shape)}")
        require_rank("weights", weights.shape, 2, "O, K")
        if None in weights.shape:
            raise ValueError("weights have no dynamic dims")
        outputs, depth = weights.dims
        if x.shape[-1] is not None and x.shape[-1] != depth:
            hint = ": insert a flatten" if x.rank > 2 else ""
            raise ValueError(f"input has {x.shape[-1]} columns, weights expect {depth}{hint}")
        if self.bias is not None and self.bias.tensor.shape != (outputs,):
            got = text(self.bias.tensor.shape)
            raise ValueError(f"bias has one number for each of {outputs} outputs, got {got}")
        return [TensorType((*x.shape[:-1], outputs), x.dtype, None, x.layout)]

    def verify(self) -> None:
        """Check element types, parameters and the fused activation."""
        check_results(self)
        check_clamp("clamp", self.clamp)
        if not is_quantised(self.x):
            require_float(self)
            return require_float_layer(self.x, self.weights, self.bias)
        require_activation(self.x, self.result)
        require_weights(self.weights)
        return require_bias(self.x, self.weights, self.bias)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the products; exact."""
        x, weights, bias = (*operands, None)[:3]
        if x is None or weights is None:
            raise ValueError("dense takes an input and weights")
        if is_quantised(self.x):
            return (self._quantised(x, weights, bias, rounding),)
        y = x.astype(np.float64) @ weights.astype(np.float64).T
        return (clamp_real(y if bias is None else y + bias, self.clamp),)

    def _quantised(self, x: Array, weights: Array, bias: Array | None, rounding: Rounding) -> Array:
        source, target, dtype = quant_of(self.x), quant_of(self.result), self.x.tensor.dtype
        centred = x.astype(np.float64).reshape(-1, x.shape[-1]) - source.zero_point
        sums = (centred @ weights.astype(np.float64).T).astype(np.int64)
        if bias is not None:
            sums += bias.astype(np.int64)
        scales = conv_scales(source.scale, quant_of(self.weights).scales, target.scale, rounding)
        limits = clamp_codes(target, self.clamp, rounding, dtype)
        shape = (*x.shape[:-1], len(weights))
        if rounding is Rounding.DOUBLE:
            return requantise_real(sums, scales, target.zero_point, limits, dtype).reshape(shape)
        wide = needs_wide(weights, bias, source.zero_point, dtype)
        point = target.zero_point
        codes = requantise(sums, scales, point, limits, rounding, wide=wide, dtype=dtype)
        return codes.reshape(shape)

    def wants_rows(self) -> bool:
        """Return whether rows and pixels are not the same already, as they are of rank 2."""
        return self.x.tensor.rank > 2

    def lower(self, builder: Builder) -> None:
        """Append a 1x1 conv task on rows."""
        weights = constant_array(self, self.weights, "weights")
        wide = self.x.tensor.rank > 2
        into = rows_target(builder, self.result) if wide else None
        product = Product(
            op=self,
            source=read_rows(builder, self, self.x) if wide else None,
            target=None if into is None else into.matrix,
            x=self.x,
            result=self.result,
            weights=weights[:, :, None, None],
            weight_quant=self.weights.tensor.quant,
            bias=None if self.bias is None else constant_array(self, self.bias, "bias"),
            window=Window(kernel=(1, 1)),
            clamp=self.clamp,
            real=builder.rounding is Rounding.DOUBLE and is_quantised(self.x),
        )
        lower_product(builder, product)
        if into is not None:
            into.finish(builder, self)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield with and without bias and activation."""
        yield cls([floats("x", 1, 1), floats("w", 1, 1)])
        yield cls([floats("x", 3, 33), floats("w", 17, 33), floats("b", 17)])
        yield cls([floats("x", 2, 5), floats("w", 4, 5), floats("b", 4)], {"clamp": [0.0, 6.0]})
        yield cls([floats("x", 2, 7, 33), floats("w", 19, 33), floats("b", 19)])
        yield cls([floats("x", 1, 2, 3, 5), floats("w", 4, 5)])
