"""What the ops' ``lower`` methods share: products, pools, rescaling, relayout.

The numbers that go into parameters come from the same functions as the integer reference's; the
arithmetic does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuabi.enums import DType, Layout
from npuabi.fixedpoint import add_parameters, real_words
from npuabi.geometry import LANES, device_dims
from npuabi.records import FloatParams, OpParams
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Buffer, Quant
from npuc.npu.builder import Builder, code_range, float_params, op_params
from npuc.npu.pack import (
    bias_words,
    pack_blocks,
    pack_bricks,
    pack_depthwise,
    pack_floats,
    pack_taps,
)
from npuc.npu.regions import Box, whole
from npuc.npu.reshaped import reshaped
from npuc.npu.tasks import Conv, Copy, Depthwise, Rescale, Task, buffer_type
from npuc.reference import (
    add_headroom,
    clamp_codes,
    conv_scales,
    multipliers,
    needs_wide,
    rescale_scale,
)
from npuc.window import Window

__all__ = [
    "Product",
    "add_params",
    "constant_array",
    "lower_clamp",
    "lower_copy",
    "lower_expand",
    "lower_pool",
    "lower_product",
    "lower_rescale",
    "lower_reshape",
    "lower_shape",
    "lower_slice",
    "quant_at",
]


def quant_at(value: Value) -> Quant:
    """Return the parameters of a quantised L2 value."""
    if value.tensor.quant is None:
        raise ValueError(f"%{value.name} has no quantisation parameters")
    return value.tensor.quant


def constant_array(op: Op, value: Value, role: str) -> Array:
    """Return the numbers of a constant operand; refuse computed weights."""
    found = getattr(value.owner, "value", None)
    if found is None:
        raise op.error(f"{role} %{value.name} is computed at run time; the NPU takes constants")
    array: Array = found()
    return array


@dataclass(frozen=True, kw_only=True)
class Product:
    """A convolution or dense layer, ready to be packed.

    ``weights`` are OIHW with I = C / group, as they are stored; ``inner`` and ``inner_clamp``
    describe the result before a residual is added. ``real`` says that scales stay float64.
    ``source`` and ``target`` are buffers to use in place of the values' own.
    """

    op: Op
    x: Value
    result: Value
    weights: Array
    weight_quant: Quant | None
    bias: Array | None
    window: Window
    group: int = 1
    clamp: Sequence[float] | None = None
    residual: Value | None = None
    inner: Quant | None = None
    inner_clamp: Sequence[float] | None = None
    real: bool = False
    source: Value | None = None
    target: Value | None = None

    def read(self, builder: Builder) -> Value:
        """Return the input's buffer: the stated one, or that of the value."""
        return builder.read(self.x) if self.source is None else self.source

    def written(self, builder: Builder) -> Value:
        """Return the result's buffer."""
        return builder.result_of(self.result) if self.target is None else self.target


def lower_product(builder: Builder, product: Product) -> None:
    """Append the tasks of a product: depthwise, or one conv a run of output channels."""
    channels = product.weights.shape[0]
    if product.group == product.read(builder).tensor.dims[1] == channels and product.group > 1:
        return _depthwise(builder, product)
    for outputs, inputs in _segments(product):
        _segment(builder, product, outputs, inputs)
    return None


Span = tuple[int, int]


def _segments(product: Product) -> Iterator[tuple[Span, Span]]:
    """Yield (output channels, input channels) in whole bricks, neighbours with equal input merged.

    A grouped convolution becomes one with block-diagonal weights for each run of output bricks.
    """
    outputs, depth = product.weights.shape[:2]
    per_group = outputs // product.group
    runs: list[tuple[Span, Span]] = []
    for first in range(0, outputs, LANES):
        last = min(first + LANES, outputs)
        low = first // per_group * depth // LANES * LANES
        high = min(-(-((last - 1) // per_group + 1) * depth // LANES) * LANES,
                   depth * product.group)  # fmt: skip
        if runs and runs[-1][1] == (low, high):
            runs[-1] = ((runs[-1][0][0], last), (low, high))
        else:
            runs.append(((first, last), (low, high)))
    yield from runs


def _segment(builder: Builder, product: Product, outputs: Span, inputs: Span) -> None:
    source, target = product.read(builder), product.written(builder)
    dense = _block_diagonal(product, outputs, inputs)
    packed = pack_taps if buffer_type(source).tensor.layout is Layout.NHWC else pack_bricks
    layout = Layout.OIHW16O if packed is pack_taps else Layout.OIHW16I16O
    operands = [
        builder.slice(source, whole(source).along(1, inputs[0], inputs[1] - inputs[0])),
        builder.slice(target, whole(target).along(1, outputs[0], outputs[1] - outputs[0])),
        _params(builder, product, outputs),
        builder.weights(packed(dense), dense.shape, layout, _stored(dense)),
    ]
    if product.residual is not None:
        added = builder.read(product.residual)
        box = whole(added).along(1, outputs[0], outputs[1] - outputs[0])
        operands.append(builder.slice(added, box))
    builder.task(Conv, product.op, operands, **_micro_ops(builder, product))


def _block_diagonal(product: Product, outputs: Span, inputs: Span) -> Array:
    """Return OIHW weights over *inputs*, zero where a group does not read."""
    _, depth, kh, kw = product.weights.shape
    per_group = product.weights.shape[0] // product.group
    shape = (outputs[1] - outputs[0], inputs[1] - inputs[0], kh, kw)
    dense = np.zeros(shape, product.weights.dtype)
    for row, channel in enumerate(range(*outputs)):
        first = channel // per_group * depth - inputs[0]
        dense[row, first : first + depth] = product.weights[channel]
    return dense


def _stored(weights: Array) -> DType:
    """Return the element type of weights as numpy holds them."""
    return next(d for d in (DType.I8, DType.F16, DType.F32) if weights.dtype == d.numpy)


def _depthwise(builder: Builder, product: Product) -> None:
    channels = product.weights.shape[0]
    shape = (1, channels, *product.weights.shape[2:])
    operands = [
        product.read(builder),
        product.written(builder),
        _params(builder, product, (0, channels)),
        builder.weights(
            pack_depthwise(product.weights), shape, Layout.NCHW16C, _stored(product.weights)
        ),
    ]
    if product.residual is not None:
        operands.append(builder.read(product.residual))
    attributes = {**_micro_ops(builder, product), "groups": channels}
    builder.task(Depthwise, product.op, operands, **attributes)


def _micro_ops(builder: Builder, product: Product) -> dict[str, Any]:
    window, stored = product.window, product.x.tensor
    found: dict[str, Any] = {
        "kernel": window.kernel,
        "strides": window.strides,
        "dilations": window.dilations,
        "pads": window.pads,
        "real": product.real,
    }
    if product.x.tensor.coded:
        target, dtype = quant_at(product.result), stored.dtype
        point = quant_at(product.x).zero_point
        found["clamp"] = clamp_codes(target, product.clamp, builder.rounding, dtype)
        found["wide"] = needs_wide(product.weights, product.bias, point, dtype)
    return found


def _params(builder: Builder, product: Product, outputs: Span) -> Value:
    """Pack the head and the blocks of output channels."""
    channels = product.weights.shape[0]
    bias = np.zeros(channels, np.int64) if product.bias is None else product.bias
    if not product.x.tensor.coded:
        head = float_params(product.clamp, product.inner_clamp)
        return builder.params(head, pack_floats(bias[slice(*outputs)]))
    return _code_params(builder, product, bias, outputs)


def _code_params(builder: Builder, product: Product, bias: Array, outputs: Span) -> Value:
    """Pack the OpParams and the blocks of output channels: bias, multiplier, shift."""
    source, final = quant_at(product.x), quant_at(product.result)
    inner = final if product.inner is None else product.inner
    scales = [] if product.weight_quant is None else list(product.weight_quant.scales)
    if len(scales) == 1:
        scales *= len(bias)
    reals = conv_scales(source.scale, scales, inner.scale, builder.rounding)
    multiplier, shift = _scale_words(builder, product, reals)
    chosen = slice(*outputs)
    rows = [bias[chosen], multiplier[chosen], shift[chosen]]
    if product.x.tensor.dtype is DType.I16:
        rows[:1] = bias_words(bias[chosen])
    blocks = pack_blocks(*rows)
    fields: dict[str, Any] = {
        "input_zero_point": source.zero_point,
        "output_zero_point": final.zero_point,
        "input_scale": source.scale,
        "output_scale": final.scale,
    }
    if product.residual is not None:
        fields |= _residual_fields(builder, product, inner, final)
    return builder.params(op_params(**fields), blocks)


def _scale_words(builder: Builder, product: Product, reals: list[float]) -> tuple[Array, Array]:
    if not product.real:
        return multipliers(reals, builder.rounding)
    words = np.array([real_words(real) for real in reals], np.int64)
    return words[:, 0], words[:, 1]


def _residual_fields(
    builder: Builder, product: Product, inner: Quant, final: Quant
) -> dict[str, Any]:
    if product.residual is None:
        return {}
    added, dtype = quant_at(product.residual), product.residual.tensor.dtype
    low, high = clamp_codes(inner, product.inner_clamp, builder.rounding, dtype)
    return {
        **_add_fields(builder, (inner, added, final), dtype),
        "inner_zero_point": inner.zero_point,
        "residual_zero_point": added.zero_point,
        "inner_low": low,
        "inner_high": high,
    }


def add_params(
    builder: Builder, a: Value, b: Value, result: Value, clamp: Sequence[float] | None
) -> tuple[OpParams | FloatParams, tuple[int, int]]:
    """Return the parameters of an ADD task of L2 values, and its clamp of codes."""
    if not result.tensor.coded:
        return float_params(clamp), code_range(result.tensor.dtype)
    one, other, target = quant_at(a), quant_at(b), quant_at(result)
    params = op_params(
        **_add_fields(builder, (one, other, target), result.tensor.dtype),
        input_zero_point=one.zero_point,
        residual_zero_point=other.zero_point,
        output_zero_point=target.zero_point,
    )
    return params, clamp_codes(target, clamp, builder.rounding, result.tensor.dtype)


def _add_fields(
    builder: Builder, quants: tuple[Quant, Quant, Quant], dtype: DType
) -> dict[str, int]:
    """Return the multipliers of an ADD of two operands, named as OpParams names them."""
    a, b, result = (quant.scale for quant in quants)
    found = add_parameters(a, b, result, builder.rounding, headroom=add_headroom(dtype))
    return {name: getattr(found, name) for name in type(found).__slots__}


def lower_clamp(
    builder: Builder, op: Op, x: Value, result: Value, bounds: tuple[float, float]
) -> None:
    """Append a RESCALE that holds *x* within real *bounds*, into the parameters of *result*."""
    target = builder.result_of(result)
    if x.tensor.coded:
        quant, dtype = quant_at(result), result.tensor.dtype
        clamp = clamp_codes(quant, bounds, builder.rounding, dtype)
        return lower_rescale(builder, op, x, target, quant, clamp, float32=True)
    params = builder.params(float_params(bounds))
    builder.task(Rescale, op, [builder.read(x), target, params])
    return None


def lower_rescale(
    builder: Builder,
    op: Op,
    x: Value,
    target: Value,
    result: Quant,
    clamp: tuple[int, int],
    *,
    float32: bool = False,
) -> None:
    """Append a RESCALE of L2 value *x* into the buffer *target*, whose parameters are *result*.

    *float32* divides the scales in float32, as :func:`npuc.reference.rescale_scale` says.
    """
    source = quant_at(x)
    real = rescale_scale(source, result, builder.rounding, float32=float32)
    multiplier, shift = multipliers([real], builder.rounding)
    params = op_params(
        input_zero_point=source.zero_point,
        output_zero_point=result.zero_point,
        input_multiplier=int(multiplier[0]),
        input_shift=int(shift[0]),
        input_scale=source.scale,
        output_scale=result.scale,
    )
    operands = [builder.read(x), target, builder.params(params)]
    builder.task(Rescale, op, operands, clamp=clamp)


def lower_pool(
    builder: Builder, kind: type[Task], op: Op, x: Value, result: Value, window: Window, **more: Any
) -> None:
    """Append a pool; average pools get parameters, of codes with the zero point."""
    operands = [builder.read(x), builder.result_of(result)]
    if any(spec.name == "params" for spec in kind.OPERANDS):
        operands.append(builder.params(_pool_params(x)))
    attributes = {
        "kernel": window.kernel,
        "strides": window.strides,
        "dilations": window.dilations,
        "pads": window.pads,
        **more,
    }
    builder.task(kind, op, operands, **attributes)


def _pool_params(x: Value) -> OpParams | FloatParams:
    if not x.tensor.coded:
        return float_params()
    quant = quant_at(x)
    return op_params(
        input_zero_point=quant.zero_point,
        output_zero_point=quant.zero_point,
        input_scale=quant.scale,
        output_scale=quant.scale,
    )


def lower_copy(builder: Builder, op: Op, x: Value, target: Value) -> None:
    """Append a COPY of buffer *x* into the buffer *target*."""
    builder.task(Copy, op, [x, target])


def lower_reshape(builder: Builder, op: Op, x: Value, result: Value) -> None:
    """Let the result be the operand's memory where its elements already lie right, else copy."""
    lower_shape(builder, op, builder.read(x), result)


def lower_shape(builder: Builder, op: Op, source: Value, result: Value) -> None:
    """Let the L2 value *result* be the elements of buffer *source*, in place or copied."""
    seen = None
    if not builder.is_bound(result):
        seen = _as_it_is(source, builder.type_of(result))
    if seen is None:
        return lower_copy(builder, op, source, builder.result_of(result))
    builder.alias(result, seen)
    return None


def _as_it_is(source: Value, wanted: Buffer) -> Value | None:
    """Return *source* as *wanted*, the same buffer where dims and layout are equal."""
    old = buffer_type(source).tensor
    if (old.dims, old.layout) == (wanted.tensor.dims, wanted.tensor.layout):
        return source
    return reshaped(source, wanted)


def lower_slice(builder: Builder, op: Op, source: Value, box: Box, result: Value) -> None:
    """Let *result* be the part *box* of buffer *source*, or a copy where a brick is cut."""
    part = builder.slice(source, box)
    if builder.is_bound(result) or buffer_type(part).lane:
        lower_copy(builder, op, part, builder.result_of(result))
    else:
        builder.alias(result, part)


def lower_expand(builder: Builder, op: Op, x: Value, result: Value) -> None:
    """Append a broadcasting copy, after a copy that lines the dims up when the rank grows."""
    source, shape = builder.read(x), x.tensor.dims
    padded = (1,) * (result.tensor.rank - len(shape)) + shape
    if device_dims(padded) != device_dims(shape):
        lined = builder.temporary(x.tensor.with_shape(padded), x.name)
        lower_copy(builder, op, source, lined)
        source = lined
    lower_copy(builder, op, source, builder.result_of(result))
