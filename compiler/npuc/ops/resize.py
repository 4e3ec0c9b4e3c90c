"""resize: ONNX Resize; nearest copies elements, linear and cubic weigh those around a position.

Invariant: nearest copies codes as they are; all modes keep the operand's parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self

import numpy as np

from npuabi.enums import Rounding
from npuabi.geometry import device_axes
from npuc.ir.core import Array, AttrKind, Limit, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.movement import lower_remap, lower_resize
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    CODES,
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
    require_tied,
)
from npuc.ops.shapes import axes_of, flag
from npuc.reference import dequantize_codes, quantize_codes
from npuc.resampling import (
    COORDINATES,
    NEAREST,
    Axis,
    Taps,
    even_taps,
    exact_taps,
    nearest,
    whole_taps,
)

__all__ = ["Resize"]

_MODES = ("nearest", "linear", "cubic")
_POLICIES = ("stretch", "not_larger", "not_smaller")


def _along_the_plane(op: Resize) -> bool:
    rank = op.x.tensor.rank
    if op.mode == "nearest" or rank > 4 or None in op.x.tensor.shape:
        return True
    resized = [axis for axis, found in enumerate(op.along) if not found.kept]
    return all(device_axes(rank)[axis] in (2, 3) for axis in resized)


@op("resize")
class Resize(Op):
    """Scale a tensor along axes, to sizes or by scales."""

    LIMITS = (
        *COMMON,
        Limit("linear and cubic resize run along rows and columns", _along_the_plane,
              "transpose the dims to the end of N, C, H, W"),
    )  # fmt: skip
    TIED = True

    x: Value = operand("any shape; linear and cubic: (N, C, H, W) or (N, C, W)")
    scales: Sequence[float] | None = attr("result size by operand size, an axis",
                                          AttrKind.FLOATS, default=None)  # fmt: skip
    sizes: Sequence[int] | None = attr("result size, an axis", AttrKind.INTS, default=None)
    axes: Sequence[int] | None = attr("the axes; absent: all", AttrKind.INTS, default=None)
    mode: str = attr("nearest, linear or cubic", AttrKind.STRING, default="nearest")
    coordinate_transformation_mode: str = attr(
        "where a result lies in the operand: half_pixel, half_pixel_symmetric, "
        "pytorch_half_pixel, align_corners or asymmetric",
        AttrKind.STRING,
        default="half_pixel",
    )
    nearest_mode: str = attr(
        "which element is nearest: round_prefer_floor, round_prefer_ceil, floor or ceil",
        AttrKind.STRING,
        default="round_prefer_floor",
    )
    cubic_coeff_a: float = attr("the cubic kernel's a", AttrKind.FLOAT, default=-0.75)
    exclude_outside: int = attr("1: cubic taps outside weigh nothing", AttrKind.INT, default=0)
    keep_aspect_ratio_policy: str = attr(
        "stretch takes sizes as they are; not_larger, not_smaller keep the ratio of the axes",
        AttrKind.STRING,
        default="stretch",
    )
    antialias: int = attr("0 only", AttrKind.INT, default=0)
    extrapolation_value: float = attr("used by tf_crop_and_resize only", AttrKind.FLOAT,
                                      default=0.0)  # fmt: skip
    litert_scale: int = attr("1: LiteRT's 10-bit scale also where it is off by more than a step",
                             AttrKind.INT, default=0)  # fmt: skip

    @property
    def along(self) -> list[Axis]:
        """How each axis is resized."""
        made = self._targets()
        return [
            self._axis(axis, *made.get(axis, (None, None))) for axis in range(self.x.tensor.rank)
        ]

    def _axis(self, axis: int, result: int | None, scale: Fraction | None) -> Axis:
        extent = self.x.tensor.dims[axis]
        return Axis(
            extent=extent,
            result=extent if result is None else result,
            scale=Fraction(1) if scale is None else scale,
            coordinates=self.coordinate_transformation_mode,
            mode=self.mode,
            cubic_a=self.cubic_coeff_a,
            exclude_outside=bool(self.exclude_outside),
            litert=bool(self.litert_scale),
        )

    def _targets(self) -> dict[int, tuple[int | None, Fraction | None]]:
        """Return (result, scale) of each axis that is named; None where a dim is dynamic."""
        shape = self.x.tensor.shape
        axes = axes_of(self.axes, len(shape), count=len(shape))
        given = self.sizes if self.scales is None else self.scales
        if given is None or (self.sizes is not None and self.scales is not None):
            raise ValueError("resize takes either scales or sizes")
        if len(given) != len(axes) or any(number <= 0 for number in given):
            raise ValueError(f"{len(axes)} axes take as many positive numbers, got {list(given)}")
        dims = [shape[axis] for axis in axes]
        if self.sizes is not None:
            pairs = _sized(dims, self.sizes, self.keep_aspect_ratio_policy)
            return dict(zip(axes, pairs, strict=True))
        return {a: _scaled(d, s) for a, d, s in zip(axes, dims, given, strict=True)}

    def infer(self) -> Sequence[Type]:
        """Return the shape with the named axes resized."""
        require_dtypes(self.x)
        self._check_words()
        shape = list(self.x.tensor.shape)
        for axis, (result, _) in self._targets().items():
            shape[axis] = result
        return [self.x.tensor.with_shape(tuple(shape))]

    def _check_words(self) -> None:
        place = self.coordinate_transformation_mode
        if place == "tf_crop_and_resize":
            raise ValueError("coordinate mode tf_crop_and_resize is not taken: slice, then resize")
        known = (
            ("mode", self.mode, _MODES),
            ("coordinate_transformation_mode", place, tuple(COORDINATES)),
            ("nearest_mode", self.nearest_mode, tuple(NEAREST)),
            ("keep_aspect_ratio_policy", self.keep_aspect_ratio_policy, _POLICIES),
        )
        for name, word, words in known:
            if word not in words:
                raise ValueError(f"{name} is one of {', '.join(words)}, got {word!r}")
        flag("exclude_outside", self.exclude_outside)
        flag("litert_scale", self.litert_scale)
        if self.antialias:
            raise ValueError("antialias is 0 only: average with avg_pool2d before shrinking")

    def verify(self) -> None:
        """Check that the parameters are tied."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the resized tensor: float64, exact integers, or float32 for codes with EVEN."""
        x = np.asarray(operands[0])
        moved = [(axis, found) for axis, found in enumerate(self.along) if not found.kept]
        if moved and self.mode != "nearest" and is_quantised(self.x):
            return (self._quantised(x, rounding),)
        for axis, found in moved:
            if self.mode == "nearest":
                x = x.take(nearest(found, self.nearest_mode), axis=axis)
            else:
                matrix = exact_taps(found).matrix(found.extent)
                x = np.moveaxis(np.tensordot(matrix, x.astype(np.float64), (1, axis)), 0, axis)
        return (x,)

    def _quantised(self, x: Array, rounding: Rounding) -> Array:
        rows, columns = self._taps(rounding)
        shape, quant, dtype = x.shape, quant_of(self.x), self.x.tensor.numpy
        planes = x.reshape(-1, shape[2] if len(shape) > 3 else 1, shape[-1])
        if rounding is not Rounding.EVEN:
            made = _whole_sums(planes, rows, columns, dtype)
        else:
            real = dequantize_codes(planes, quant)
            sums = _even_sums(real, rows, columns, by_row=self.mode == "cubic")
            made = quantize_codes(sums, quant, dtype, rounding)
        return made.reshape(*shape[:2], *made.shape[5 - len(shape) :])

    def _taps(self, rounding: Rounding) -> tuple[Taps, Taps]:
        """Return the taps along the device's rows and columns."""
        along, dtype = self.along, self.x.tensor.dtype
        columns = along[-1] if len(along) > 2 else self._axis(-1, None, None)
        alone = replace(columns, extent=1, result=1, scale=Fraction(1))
        rows = along[2] if len(along) > 3 else alone
        if dtype not in CODES:
            return exact_taps(rows), exact_taps(columns)
        if rounding is Rounding.EVEN:
            return even_taps(rows), even_taps(columns)
        return whole_taps(rows, columns, 1 << (8 * dtype.size))

    def stacks(self) -> bool:
        """Return whether the samples are not resized."""
        return self.x.tensor.rank > 0 and self.along[0].kept

    def lower(self, builder: Builder) -> None:
        """Append a remap (nearest) or a resize; share the memory where nothing is resized."""
        along = self.along
        if self.mode == "nearest" or all(found.kept for found in along):
            tables = {
                axis: nearest(found, self.nearest_mode)
                for axis, found in enumerate(along)
                if not found.kept
            }
            return lower_remap(builder, self, self.x, self.result, tables)
        rows, columns = self._taps(builder.rounding)
        return lower_resize(builder, self, rows, columns, by_row=self.mode == "cubic")

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield each mode, up and down, each coordinate mode, sizes and scales."""
        for shape, attributes in _EXAMPLES:
            yield cls([floats("x", *shape)], attributes)


_EXAMPLES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 19, 3, 5), {"scales": [1.0, 1.0, 2.0, 2.0]}),
    ((1, 5, 6), {"sizes": [9, 4], "axes": [1, 2], "nearest_mode": "ceil"}),
    ((1, 17, 3, 5), {"scales": [2.0, 2.0], "axes": [2, 3], "mode": "linear"}),
    ((2, 3, 7, 9), {"sizes": [2, 3, 17, 4], "mode": "linear",
                    "coordinate_transformation_mode": "align_corners"}),
    ((1, 4, 7), {"scales": [2.5], "axes": [-1], "mode": "linear",
                 "coordinate_transformation_mode": "half_pixel_symmetric"}),
    ((1, 18, 5, 4), {"sizes": [13, 11], "axes": [2, 3], "mode": "cubic", "cubic_coeff_a": -0.5,
                     "exclude_outside": 1, "coordinate_transformation_mode": "asymmetric"}),
)  # fmt: skip


def _scaled(dim: int | None, scale: float) -> tuple[int | None, Fraction]:
    """Return the floor of dim * scale, in float32 as ONNX Runtime has it, and the scale.

    A scale that is float32(result / dim) is taken for that ratio: 0.3 is 6 / 20. Raises ValueError
    where float32 has the scale as 0 or the product as infinite.
    """
    with np.errstate(over="ignore", under="ignore"):
        near = np.float32(scale)
        product = near * np.float32(dim or 1)
    if not (near and np.isfinite(product)):
        raise ValueError(f"float32 holds no size of {dim or 1} * {scale}: give another scale")
    exact = Fraction(float(near))
    if dim is None:
        return None, exact
    result = int(product) if dim else 0
    if dim and np.float32(result / dim) == near:
        return result, Fraction(result, dim)
    return result, exact


def _sized(
    dims: Sequence[int | None], sizes: Sequence[int], policy: str
) -> list[tuple[int | None, Fraction | None]]:
    """Return the stated sizes, or those that one scale for all axes makes of the dims."""
    pairs = list(zip(dims, sizes, strict=True))
    scales = [Fraction(size, dim) if dim else None for dim, size in pairs]
    if policy == "stretch":
        return list(zip(sizes, scales, strict=True))
    known = [scale for scale in scales if scale is not None]
    if len(known) < len(scales):
        return [(None, None) for _ in dims]
    common = min(known) if policy == "not_larger" else max(known)
    return [((2 * dim * common + 1) // 2 if dim else dim, common) for dim in dims]


def _whole_sums(planes: Array, rows: Taps, columns: Taps, dtype: np.dtype[Any]) -> Array:
    """Return the exact weighted sums over 2^bits, half away from zero, saturated."""
    down = rows.matrix(planes.shape[1]).astype(np.int64)
    across = columns.matrix(planes.shape[2]).astype(np.int64)
    total = down @ planes.astype(np.int64) @ across.T
    one = 1 << (rows.bits + columns.bits)
    magnitude = (2 * np.abs(total) + one) // (2 * one)
    limits = np.iinfo(dtype)
    made: Array = np.clip(np.sign(total) * magnitude, limits.min, limits.max).astype(dtype)
    return made


def _even_sums(planes: Array, rows: Taps, columns: Taps, *, by_row: bool) -> Array:
    """Return float32 sums in ONNX Runtime's order.

    Linear: taps row by row, each times the product of its weights. Cubic (*by_row*): the sum of
    each row's taps, times the row's weight.
    """
    total: Array | None = None
    for at, weight in zip(rows.positions, rows.weights, strict=True):
        parts = [planes[:, at][:, :, to] for to in columns.positions]
        if by_row:
            row = parts[0] * columns.weights[0]
            for part, across in zip(parts[1:], columns.weights[1:], strict=True):
                row = row + part * across
            terms = [row * weight[:, None]]
        else:
            pairs = zip(parts, columns.weights, strict=True)
            terms = [part * (weight[:, None] * across) for part, across in pairs]
        for term in terms:
            total = term if total is None else total + term
    return np.asarray(total, np.float32)
