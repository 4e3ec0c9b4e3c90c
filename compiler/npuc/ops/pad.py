"""pad: ONNX Pad; elements put in front of and behind each dim, or with negative pads taken away.

Invariant: quantised codes are copied as they are; the constant is quantised in their parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from npuabi.enums import Rounding
from npuc.ir.core import Array, AttrKind, Op, Value, attr, op, operand
from npuc.ir.types import Type
from npuc.npu.builder import Builder
from npuc.npu.movement import lower_remap
from npuc.npu.tables import NOWHERE
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
    require_tied,
)
from npuc.ops.shapes import axes_of
from npuc.reference import quantize_codes

__all__ = ["Pad"]

_MODES = ("constant", "edge", "reflect", "wrap")
Pads = dict[int, tuple[int, int]]


@op("pad")
class Pad(Op):
    """Add elements in front of and behind each axis; negative pads take elements away."""

    LIMITS = COMMON
    TIED = True

    x: Value = operand("any shape")
    pads: Sequence[int] = attr("elements in front of each axis, then behind each", AttrKind.INTS)
    axes: Sequence[int] | None = attr("the axes; absent: all", AttrKind.INTS, default=None)
    mode: str = attr(
        "constant; edge repeats the border, reflect mirrors without it, wrap goes round",
        AttrKind.STRING,
        default="constant",
    )
    constant_value: float = attr("the number that mode constant adds", AttrKind.FLOAT, default=0.0)

    @property
    def sides(self) -> Pads:
        """(in front, behind) by axis, those that are both 0 left out."""
        rank, count = self.x.tensor.rank, len(self.pads) // 2
        axes = axes_of(self.axes, rank, count=rank)
        if len(self.pads) != 2 * len(axes):
            got = f"{len(self.pads)} numbers for {len(axes)} axes"
            raise ValueError(f"pads holds two numbers an axis, got {got}")
        pairs = zip(axes, self.pads[:count], self.pads[count:], strict=True)
        return {axis: (a, b) for axis, a, b in pairs if a or b}

    def infer(self) -> Sequence[Type]:
        """Return the shape with the pads added."""
        require_dtypes(self.x)
        if self.mode not in _MODES:
            raise ValueError(f"mode is one of {', '.join(_MODES)}, got {self.mode!r}")
        shape = list(self.x.tensor.shape)
        for axis, pair in self.sides.items():
            dim = shape[axis]
            shape[axis] = None if dim is None else _padded(dim, pair, self.mode)
        return [self.x.tensor.with_shape(tuple(shape))]

    def verify(self) -> None:
        """Check that the parameters are tied, and the constant."""
        check_results(self)
        require_activation(self.x)
        require_tied(self.x, self.result)
        if not abs(self.constant_value) <= float(np.finfo(np.float32).max):
            raise ValueError(f"constant_value is a float32 number, got {self.constant_value}")

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the padded tensor: first cropped, then padded."""
        x = np.asarray(operands[0])
        sides = [self.sides.get(axis, (0, 0)) for axis in range(x.ndim)]
        kept = tuple(
            slice(max(-a, 0), dim - max(-b, 0)) for dim, (a, b) in zip(x.shape, sides, strict=True)
        )
        widths = [(max(a, 0), max(b, 0)) for a, b in sides]
        more: dict[str, Any] = {}
        if self.mode == "constant":
            more["constant_values"] = self._constant(rounding)
        return (np.pad(x[kept], widths, self.mode, **more),)  # type: ignore[call-overload]

    def _constant(self, rounding: Rounding) -> Any:
        """Return the constant as the tensor holds it."""
        if not is_quantised(self.x):
            return self.constant_value
        value = np.array(self.constant_value)
        return quantize_codes(value, quant_of(self.x), self.x.tensor.numpy, rounding)[()]

    def stacks(self) -> bool:
        """Return whether the samples are not padded."""
        return self.x.tensor.rank > 0 and 0 not in self.sides

    def lower(self, builder: Builder) -> None:
        """Append a remap, or share the memory where pads only crop."""
        tables = {
            axis: _positions(self.x.tensor.dims[axis], pair, self.mode)
            for axis, pair in self.sides.items()
        }
        fill = np.asarray(self._constant(builder.rounding))
        lower_remap(builder, self, self.x, self.result, tables, fill=fill)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield each mode, axes, channels, and pads that crop."""
        pads = {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "constant_value": -0.5}
        yield cls([floats("x", 1, 19, 4, 5)], pads)
        yield cls([floats("x", 1, 5, 3, 4)], {"pads": [2, 14], "axes": [1], "mode": "edge"})
        yield cls([floats("x", 2, 3, 5, 6)],
                  {"pads": [2, 1, 3, 4], "axes": [-2, -1], "mode": "reflect"})  # fmt: skip
        yield cls([floats("x", 1, 17, 4, 3)],
                  {"pads": [1, 1, -2, 4], "axes": [2, 3], "mode": "wrap"})  # fmt: skip
        yield cls([floats("x", 2, 20)], {"pads": [1, -3, 0, 5]})


def _padded(dim: int, pair: tuple[int, int], mode: str) -> int:
    size, kept = dim + sum(pair), dim + sum(min(p, 0) for p in pair)
    if kept < 0 or size < 0:
        raise ValueError(f"pads {list(pair)} take more than the {dim} elements of a dim")
    if not kept and size and mode != "constant":
        raise ValueError(f"pads {list(pair)} leave nothing of a dim of {dim} to fill from")
    return size


def _positions(dim: int, pair: tuple[int, int], mode: str) -> list[int]:
    """Return where each element of a padded axis comes from; crop first, then pad."""
    front, behind = pair
    first, past = max(-front, 0), dim - max(-behind, 0)
    places = range(-max(front, 0), past - first + max(behind, 0))
    return [_position(at, past - first, mode, first) for at in places]


def _position(at: int, size: int, mode: str, first: int) -> int:
    if 0 <= at < size:
        return first + at
    if mode == "constant":
        return NOWHERE
    if mode == "edge":
        return first + min(max(at, 0), size - 1)
    if mode == "wrap":
        return first + at % size
    # reflect goes to and fro between the borders, which stand once each.
    period = max(2 * (size - 1), 1)
    turned = at % period
    return first + (turned if turned < size else period - turned)
