"""Numerics that the ops' references share: windows, sums, requantisation, clamps, bounds.

Float arithmetic is float64; integer arithmetic is exact. Integer sums run through float64 BLAS,
which is exact below 2^53: 2^53 / (2^16 * 2^7) products, more than any tensor here holds. The
firmware's kernels are written separately and share only ``npuabi.fixedpoint``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi import fixedpoint
from npuabi.enums import DType, Rounding
from npuabi.fixedpoint import round_half_away
from npuc.ir.core import Array
from npuc.ir.types import Quant
from npuc.window import Window

__all__ = [
    "accumulator_bound",
    "add_codes",
    "add_headroom",
    "average_codes",
    "average_codes_even",
    "clamp_codes",
    "clamp_real",
    "conv_scales",
    "conv_sums",
    "dequantize_codes",
    "fits_int32",
    "global_average_codes",
    "matmul_codes",
    "matmul_needs_wide",
    "matmul_scale",
    "multipliers",
    "needs_wide",
    "quantize_codes",
    "requantise",
    "requantise_real",
    "rescale",
    "rescale_scale",
    "round_half_away",
    "softmax_codes",
    "softmax_table",
    "window_views",
]

_LOW, _HIGH = -128, 127
_LIMITS = {DType.I8: (-128, 127), DType.I16: (-32768, 32767)}
_BLOCK_TAPS = 1 << 20
"""Numbers in the matrix of taps that one product reads, about; at least one image's."""


def window_views(x: Array, window: Window, fill: float) -> Array:
    """Return the taps of every window: (N, C, OH, OW, KH, KW), *fill* outside the input.

    *x* is (N, C, H, W). The result is a view of a padded copy.
    """
    rows, columns = window.output(x.shape[2], x.shape[3])
    if rows is None or columns is None:
        raise ValueError("a window needs a known size")
    padded = _padded(x, window, (rows, columns), fill)
    (sh, sw), (dh, dw) = window.strides, window.dilations
    reach = (window.reach(0), window.reach(1))
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return views[:, :, : (rows - 1) * sh + 1 : sh, : (columns - 1) * sw + 1 : sw, ::dh, ::dw]


def _padded(x: Array, window: Window, output: tuple[int, int], fill: float) -> Array:
    """Pad *x* by the pads, and further where ceil mode lets a window hang over."""
    widths = [(0, 0), (0, 0)]
    for axis in (0, 1):
        begin, end = window.pads[axis], window.pads[axis + 2]
        needed = (output[axis] - 1) * window.strides[axis] + window.reach(axis)
        widths.append((begin, max(end, needed - begin - x.shape[2 + axis])))
    return np.pad(x, widths, constant_values=fill)


def conv_sums(x: Array, weights: Array, window: Window, group: int) -> Array:
    """Return sum(x * weights) of a grouped 2-D convolution: (N, O, OH, OW) in float64.

    *x* is (N, C, H, W) with the zero point subtracted, so that padding is 0; *weights* are
    (O, C / group, KH, KW). Whole numbers in give whole numbers out, exactly.
    """
    outputs = weights.shape[0]
    filters = weights.astype(np.float64).reshape(group, outputs // group, -1)
    rows, columns = window.output(x.shape[2], x.shape[3])
    sums = np.empty((len(x), outputs, rows or 0, columns or 0))
    step = max(1, _BLOCK_TAPS // max(1, sums[:1, 0].size * filters.shape[2] * group))
    for first in range(0, len(x), step):
        images = x[first : first + step].astype(np.float64)
        sums[first : first + step] = _image_sums(images, filters, window).swapaxes(0, 1)
    return sums


def _image_sums(images: Array, filters: Array, window: Window) -> Array:
    """All pixels of some images as one matrix product a group: (G, O/G, K) @ (G, K, pixels)."""
    views = window_views(images, window, 0.0)
    group, outputs, depth = filters.shape
    taps = views.transpose(1, 4, 5, 0, 2, 3).reshape(group, depth, -1)
    result: Array = (filters @ taps).reshape(group * outputs, len(images), *views.shape[2:4])
    return result


def conv_scales(x: float, weights: Sequence[float], y: float, rounding: Rounding) -> list[float]:
    """Return x * w / y a channel: what a sum is multiplied by to become an output code.

    float64 as LiteRT's per-channel kernels have it, float32 for EVEN as ONNX Runtime has it.
    """
    if rounding is not Rounding.EVEN:
        return [x * w / y for w in weights]
    scales = np.float32(x) * np.asarray(weights, np.float32) / np.float32(y)
    return [float(s) for s in scales]


def multipliers(reals: Sequence[float], rounding: Rounding) -> tuple[Array, Array]:
    """Return the int64 multipliers and shifts that stand for *reals* in a blob."""
    pairs = [fixedpoint.multiplier_of(real, rounding) for real in reals]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def requantise(
    sums: Array,
    reals: Sequence[float],
    zero_point: int,
    clamp: tuple[int, int],
    rounding: Rounding,
    *,
    wide: bool = False,
    dtype: DType = DType.I8,
) -> Array:
    """Return codes of integer *sums*, scaled by *reals* along axis 1 (or by the only one).

    *wide* says that the sums may leave int32, see :func:`fits_int32`. Sums of i16 have a rule of
    their own, see :func:`npuabi.fixedpoint.requantise_narrow`.
    """
    multiplier, shift = multipliers(reals, rounding)
    along = (1, -1) + (1,) * (sums.ndim - 2)
    if len(reals) == 1:
        along = (1,) * sums.ndim
    factors = multiplier.reshape(along), shift.reshape(along)
    if dtype is DType.I16:
        scaled = fixedpoint.requantise_narrow(sums, *factors, rounding)
    else:
        scaled = fixedpoint.apply(sums, *factors, rounding, wide=wide)
    return _saturate(scaled + zero_point, clamp, dtype)


def requantise_real(
    sums: Array,
    reals: Sequence[float],
    zero_point: int,
    clamp: tuple[int, int],
    dtype: DType = DType.I8,
) -> Array:
    """Return codes of (N, O) *sums*, scaled in float64 and rounded half away from zero.

    *reals* are one or O scales. LiteRT's reference FULLY_CONNECTED.
    """
    return _saturate(fixedpoint.requantise_real(sums, reals) + zero_point, clamp, dtype)


def _saturate(values: Array, clamp: tuple[int, int], dtype: DType = DType.I8) -> Array:
    return np.clip(values, *clamp).astype(dtype.numpy)


def rescale(
    codes: Array,
    source: Quant,
    target: Quant,
    clamp: tuple[int, int],
    rounding: Rounding,
    *,
    float32: bool = False,
    dtype: DType = DType.I8,
) -> Array:
    """Return the codes in *target*'s parameters, as *dtype*, of values given in *source*'s.

    EVEN dequantises and quantises again, in float32, as ONNX Runtime does for Relu, Clip and
    QLinearConcat. *float32*: see :func:`rescale_scale`.
    """
    if rounding is Rounding.EVEN:
        real = dequantize_codes(codes, source)
        found = quantize_codes(real, target, np.dtype(dtype.numpy), rounding)
        return _saturate(found, clamp, dtype)
    centred = codes.astype(np.int64) - source.zero_point
    scale = rescale_scale(source, target, rounding, float32=float32)
    scaled = fixedpoint.requantise(centred, *fixedpoint.quantize_multiplier(scale), rounding)
    return _saturate(scaled + target.zero_point, clamp, dtype)


def rescale_scale(source: Quant, target: Quant, rounding: Rounding, *, float32: bool) -> float:
    """Return source scale / target scale.

    LiteRT's QUANTIZE divides in float64, its RELU family in float32 (*float32*); EVEN in float32.
    """
    if float32 or rounding is Rounding.EVEN:
        return float(np.float32(source.scale) / np.float32(target.scale))
    return source.scale / target.scale


def add_codes(
    operands: Sequence[tuple[Array, Quant]],
    target: Quant,
    clamp: tuple[int, int],
    rounding: Rounding,
    dtype: DType = DType.I8,
) -> Array:
    """Return the codes of the sum of two operands, each (codes, parameters).

    LiteRT's ADD of *dtype* for DOUBLE and SINGLE. EVEN is ONNX Runtime's QLinearAdd, where the
    order of the operands matters: see :func:`_added_even`.
    """
    (_, qa), (_, qb) = operands
    headroom = add_headroom(dtype)
    found = fixedpoint.add_parameters(qa.scale, qb.scale, target.scale, rounding, headroom=headroom)
    parts = [x.astype(np.int64) - q.zero_point for x, q in operands]
    factors = (
        (found.input_multiplier, found.input_shift),
        (found.residual_multiplier, found.residual_shift),
    )
    if rounding is Rounding.EVEN:
        return _saturate(_added_even(operands, target, _LIMITS[dtype]), clamp, dtype)
    left, right = (
        fixedpoint.apply(x << found.left_shift, *factor, rounding)
        for x, factor in zip(parts, factors, strict=True)
    )
    total = fixedpoint.apply(left + right, found.output_multiplier, found.output_shift, rounding)
    return _saturate(total + target.zero_point, clamp, dtype)


def add_headroom(dtype: DType) -> int:
    """Return the bits by which an ADD shifts its operands left."""
    return fixedpoint.ADD_LEFT_SHIFT if dtype is DType.I8 else fixedpoint.ADD_LEFT_SHIFT_16


def _added_even(
    operands: Sequence[tuple[Array, Quant]], target: Quant, limits: tuple[int, int]
) -> Array:
    """Return rint(fma(a, ra, fma(b, rb, rest))), rest = zo - fma(za, ra, zb * rb), in float32.

    ra = sa / so, rb = sb / so (MLAS qladd_avx2.cpp).
    """
    (a, qa), (b, qb) = operands
    ra, rb = (np.float32(q.scale) / np.float32(target.scale) for q in (qa, qb))
    fma = fixedpoint.fused_multiply_add
    rest = np.float32(target.zero_point) - fma(qa.zero_point, ra, np.float32(qb.zero_point) * rb)
    with np.errstate(over="ignore", invalid="ignore"):
        real = np.rint(fma(a, ra, fma(b, rb, rest)))
    return np.fmin(np.fmax(real, limits[0]), limits[1])


def clamp_real(values: Array, clamp: Sequence[float] | None) -> Array:
    """Return real *values* limited to [low, high]; low above high gives high, as ONNX Clip does."""
    if clamp is None:
        return values
    low, high = clamp
    return np.minimum(np.maximum(values, low), high)


def clamp_codes(
    quant: Quant, clamp: Sequence[float] | None, rounding: Rounding, dtype: DType = DType.I8
) -> tuple[int, int]:
    """Return the smallest and largest code of *dtype* that a real range [low, high] allows.

    A bound is quantised as quantize does it: divided in float32, halves away from zero (to even
    for EVEN). None, or an infinite bound, is no limit; low above high gives (high, high).
    """
    limits = _LIMITS[dtype]
    if clamp is None:
        return limits
    low, high = (_code(quant, bound, rounding, limits) for bound in clamp)
    return min(low, high), high


def _code(quant: Quant, bound: float, rounding: Rounding, limits: tuple[int, int]) -> int:
    smallest, largest = limits
    if math.isinf(bound):
        return smallest if bound < 0 else largest
    # A bound beyond float32 is beyond every code: it saturates below.
    with np.errstate(over="ignore"):
        steps = np.float32(bound) / np.float32(quant.scale)
    if not np.isfinite(steps):
        return smallest if steps < 0 else largest
    even = rounding is Rounding.EVEN
    whole = int(np.rint(steps)) if even else round_half_away(float(steps))
    return min(max(whole + quant.zero_point, smallest), largest)


def average_codes(totals: Array, counts: Array, dtype: DType = DType.I8) -> Array:
    """Return the codes of means, given the exact *totals* of raw codes over *counts* taps.

    LiteRT's average pool: the raw codes' mean, half away from zero.
    """
    total, count = totals.astype(np.int64), counts.astype(np.int64)
    away = np.sign(total) * ((np.abs(total) + count // 2) // count)
    return _saturate(away, _LIMITS[dtype], dtype)


def average_codes_even(taps: Array, counts: Array, quant: Quant, dtype: DType = DType.I8) -> Array:
    """Return the codes of the means of float32 *taps* (..., KH, KW), padding 0.

    ONNX Runtime's QLinearAveragePool, all in float32: the taps added one by one, row by row, then
    rint(sum / count / scale + zero point).
    """
    rows, columns = taps.shape[-2:]
    total = np.zeros(taps.shape[:-2], np.float32)
    for row in range(rows):
        for column in range(columns):
            total = total + taps[..., row, column]
    steps = total / counts.astype(np.float32) / np.float32(quant.scale)
    return _saturate(np.rint(steps + np.float32(quant.zero_point)), _LIMITS[dtype], dtype)


def global_average_codes(
    x: Array, quant: Quant, rounding: Rounding, dtype: DType = DType.I8
) -> Array:
    """Return the codes of each channel's mean over rows and columns, (N, C, 1, 1).

    EVEN is ONNX Runtime's QLinearGlobalAveragePool: the centred total times scale / (scale *
    count), in float32, rounded, then the zero point.
    """
    totals = x.astype(np.int64).sum(axis=(2, 3), keepdims=True)
    count = x.shape[2] * x.shape[3]
    if rounding is not Rounding.EVEN:
        return average_codes(totals, np.array(count), dtype)
    scale = np.float32(quant.scale)
    mean = (totals - quant.zero_point * count).astype(np.float32) * (
        scale / (scale * np.float32(count))
    )
    return _saturate(np.rint(mean).astype(np.int64) + quant.zero_point, _LIMITS[dtype], dtype)


def matmul_scale(a: Quant, b: Quant, y: Quant, rounding: Rounding) -> float:
    """Return a * b / y: what a matrix product's sum is multiplied by to become an output code.

    The scales are multiplied in float32, as LiteRT's BATCH_MATMUL has it, and divided in float64;
    EVEN divides in float32 too, as ONNX Runtime has it.
    """
    both = np.float32(a.scale) * np.float32(b.scale)
    if rounding is Rounding.EVEN:
        return float(both / np.float32(y.scale))
    return float(both) / y.scale


def matmul_codes(
    operands: Sequence[tuple[Array, Quant]], target: Quant, rounding: Rounding, dtype: DType
) -> Array:
    """Return the codes of the matrix product of two operands, each (codes, parameters)."""
    left, right = (x.astype(np.float64) - q.zero_point for x, q in operands)
    sums = np.matmul(left, right).astype(np.int64)
    qa, qb = (q for _, q in operands)
    wide = matmul_needs_wide(left.shape[-1], qa, qb, dtype)
    scale, limits = matmul_scale(qa, qb, target, rounding), _LIMITS[dtype]
    return requantise(sums, [scale], target.zero_point, limits, rounding, wide=wide, dtype=dtype)


def matmul_needs_wide(depth: int, a: Quant, b: Quant, dtype: DType = DType.I8) -> bool:
    """Return whether sums of *depth* products of *dtype* codes take 64 bits."""
    low, high = _LIMITS[dtype]
    reach = [max(high - q.zero_point, q.zero_point - low) for q in (a, b)]
    return dtype is DType.I16 or depth * reach[0] * reach[1] > np.iinfo(np.int32).max


def softmax_table(scale: float) -> NDArray[np.float32]:
    """Return exp(-d * scale) for code differences d = 0..255 as float32 multiples of 2^-30.

    For rounding EVEN: the compiler puts the table in the parameters tensor, so the device needs no
    libm. Decimal arithmetic makes it the same on every machine. Float64 sums of up to 2^23
    entries are exact, in any order.
    """
    context = Context(prec=28)
    powers = [context.exp(context.multiply(Decimal(-d), Decimal(scale))) for d in range(256)]
    whole = [int((context.multiply(p, Decimal(1 << 30))).to_integral_value()) for p in powers]
    return np.array(whole, np.float64).astype(np.float32) * np.float32(2.0**-30)


def softmax_codes(x: Array, scale: float, axis: int, rounding: Rounding) -> Array:
    """Return int8 softmax codes, scale 1/256 and zero point -128, of codes *x* along *axis*.

    DOUBLE and SINGLE: LiteRT's reference kernel in gemmlowp fixed point. EVEN: e = table[max - q]
    (:func:`softmax_table`); total = their float64 sum; y = rint(float64(e) / total * 256) - 128,
    clamped.
    """
    codes = x.astype(np.int64)
    below = codes.max(axis=axis, keepdims=True, initial=_LOW) - codes
    if rounding is Rounding.EVEN:
        return _softmax_even(below, scale, axis)
    return _softmax_fixed(-below, scale, axis, rounding)


def _softmax_even(below: Array, scale: float, axis: int) -> Array:
    parts = softmax_table(scale)[below].astype(np.float64)
    total = parts.sum(axis=axis, keepdims=True)
    return _saturate(np.rint(parts / total * 256) - 128, (_LOW, _HIGH))


def _softmax_fixed(differences: Array, scale: float, axis: int, rounding: Rounding) -> Array:
    found = fixedpoint.softmax_parameters(scale, rounding)
    counted = differences >= found.diff_min
    kept = np.where(counted, differences, 0)
    scaled = fixedpoint.apply(kept, found.input_multiplier, found.input_shift, rounding)
    powers = fixedpoint.exp_on_negative_values(scaled)
    parts = np.where(counted, fixedpoint.rescale_to_q12(powers), 0)
    reciprocal, over_unit = fixedpoint.get_reciprocal(parts.sum(axis=axis, keepdims=True))
    product = fixedpoint.srdhm(reciprocal, powers)
    y = fixedpoint.rounding_divide_by_pot(product, over_unit + 31 - 8) - 128
    return _saturate(np.where(counted, y, _LOW), (_LOW, _HIGH))


def quantize_codes(x: Array, quant: Quant, dtype: np.dtype[Any], rounding: Rounding) -> Array:
    """Return the codes of real *x*: float32 division, half away from zero (to even for EVEN).

    Infinities saturate, what is no number becomes 0.
    """
    real = x.astype(np.float32)
    real = np.where(np.isnan(real), np.float32(0), real)
    scales, points = _along(quant, x.ndim)
    with np.errstate(over="ignore"):
        steps = real / scales.astype(np.float32)
    limits = np.iinfo(dtype)
    even = rounding is Rounding.EVEN
    # Far beyond every code, and finite: rounding an infinity has no meaning.
    bounded = np.clip(steps.astype(np.float64), -(2.0**40), 2.0**40)
    whole = np.rint(bounded) if even else round_half_away(bounded)
    codes = np.asarray(np.clip(whole + points, limits.min, limits.max), dtype)
    return codes


def dequantize_codes(x: Array, quant: Quant) -> Array:
    """Return float32(q - zero_point) * float32(scale)."""
    scales, points = _along(quant, x.ndim)
    centred = x.astype(np.int64) - points.astype(np.int64)
    result: Array = centred.astype(np.float32) * scales.astype(np.float32)
    return result


def _along(quant: Quant, rank: int) -> tuple[Array, Array]:
    """Return scales and zero points shaped to broadcast along the quantised axis."""
    shape = [1] * rank
    if quant.axis is not None:
        shape[quant.axis] = -1
    return np.reshape(quant.scales, shape), np.reshape(quant.zero_points, shape)


def accumulator_bound(
    weights: Array, bias: Array | None, x_range: tuple[int, int]
) -> tuple[Array, Array]:
    """Return what every partial sum of each output channel lies between, as int64 (low, high).

    *weights* are (O, ...), *bias* is (O,) or None; *x_range* is the smallest and largest input
    with its zero point subtracted. Sums start from the bias and may run in any order.
    """
    rows = weights.reshape(weights.shape[0], -1)
    up = np.maximum(rows, 0).sum(axis=1, dtype=np.int64)
    down = np.minimum(rows, 0).sum(axis=1, dtype=np.int64)
    start = np.zeros(weights.shape[0], np.int64) if bias is None else bias.astype(np.int64)
    # A product that pulls the other way may be missing from a partial sum: it counts as 0.
    smallest, largest = min(x_range[0], 0), max(x_range[1], 0)
    low: Array = start + smallest * up + largest * down
    high: Array = start + largest * up + smallest * down
    return low, high


def needs_wide(
    weights: Array, bias: Array | None, zero_point: int, dtype: DType = DType.I8
) -> bool:
    """Return whether sums of *dtype* codes take 64 bits: those of i16 always do."""
    if dtype is DType.I16:
        return True
    reach = (_LOW - zero_point, _HIGH - zero_point)
    return not fits_int32(weights, bias, reach)


def fits_int32(weights: Array, bias: Array | None, x_range: tuple[int, int]) -> bool:
    """Return whether no sum of :func:`accumulator_bound` can leave int32 (C24)."""
    low, high = accumulator_bound(weights, bias, x_range)
    limits = np.iinfo(np.int32)
    return bool(np.all(low >= limits.min) and np.all(high <= limits.max))
