"""How random graphs draw the ops that move elements: each kind adds one op on a value that exists.

What does not fit together is refused by the op, and then not added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from npuc.ir.core import Value
from npuc.resampling import COORDINATES, NEAREST

__all__ = ["MOVES", "Maker", "expand"]


class Maker(Protocol):
    """What a kind needs of the generator of graphs."""

    values: list[Value]

    def pick(self, *choices: Any) -> Any:
        """Return one of *choices*."""

    def between(self, low: int, high: int) -> int:
        """Return an integer, both ends included."""

    def value(self, *ranks: int) -> Value | None:
        """Return an existing float value of one of these ranks."""

    def constant(self, *shape: int, mean: float = 0.0, std: float = 0.5) -> Value:
        """Add a constant of generated numbers."""

    def append(self, name: str, operands: Sequence[Value | None], **attributes: Any) -> bool:
        """Add an op; False when it is refused."""


def _transpose(maker: Maker, x: Value) -> None:
    order = list(range(x.tensor.rank))
    for place in range(len(order)):
        other = maker.between(place, len(order) - 1)
        order[place], order[other] = order[other], order[place]
    maker.append("transpose", [x], perm=tuple(order))


def _slice(maker: Maker, x: Value) -> None:
    axes = [a for a in range(x.tensor.rank) if maker.between(0, 1)] or [0]
    sizes = [x.tensor.dims[a] for a in axes]
    steps = [maker.pick(1, 1, 1, 2, 3, -1, -2) for _ in axes]
    starts = [maker.between(0, n - 1) for n in sizes]
    ends = [
        maker.between(s + 1, n + 2) if step > 0 else maker.between(-n - 2, s) - (n if s else 0)
        for s, n, step in zip(starts, sizes, steps, strict=True)
    ]
    maker.append("slice", [x], starts=starts, ends=ends, axes=axes, steps=steps)


def _pad(maker: Maker, x: Value) -> None:
    axes = [a for a in range(x.tensor.rank) if maker.between(0, 1)] or [0]
    pads = [maker.pick(0, 1, 2, 3, 5, -1) for _ in range(2 * len(axes))]
    mode = maker.pick("constant", "constant", "edge", "reflect", "wrap")
    value = maker.pick(0.0, 0.5, -3.0)
    maker.append("pad", [x], pads=pads, axes=axes, mode=mode, constant_value=value)


def _squeeze(maker: Maker, x: Value) -> None:
    ones = [axis for axis, dim in enumerate(x.tensor.dims) if dim == 1]
    if ones and len(ones) < x.tensor.rank:
        maker.append("squeeze", [x], axes=[maker.pick(*ones)] if maker.between(0, 1) else None)


def _unsqueeze(maker: Maker, x: Value) -> None:
    maker.append("unsqueeze", [x], axes=[maker.between(0, x.tensor.rank)])


def _tile(maker: Maker, x: Value) -> None:
    maker.append("tile", [x], repeats=[maker.pick(1, 1, 2, 3) for _ in x.tensor.dims])


def _gather(maker: Maker, x: Value) -> None:
    axis = maker.between(0, x.tensor.rank - 1)
    extent = x.tensor.dims[axis]
    count = maker.between(1, 7)
    indices = [maker.between(-extent, extent - 1) for _ in range(count)]
    shape = maker.pick(None, None, [1, count]) if count > 1 else []
    maker.append("gather", [x], indices=indices, axis=axis, indices_shape=shape)


def _unfold(maker: Maker, x: Value) -> None:
    maker.append(
        "depth_to_space", [x], blocksize=maker.pick(1, 2, 3), mode=maker.pick("DCR", "CRD")
    )


def _fold(maker: Maker, x: Value) -> None:
    both = [b for b in (1, 2, 3) if not any(d % b for d in x.tensor.dims[2:])]
    maker.append("space_to_depth", [x], blocksize=maker.pick(*both))


def _resize(maker: Maker, x: Value) -> None:
    rank, mode = x.tensor.rank, maker.pick("nearest", "nearest", "linear", "linear", "cubic")
    able = range(rank) if mode == "nearest" else range(2, rank)
    axes = [axis for axis in able if maker.between(0, 2)]
    if not axes:
        return
    attributes: dict[str, Any] = {"axes": axes, "mode": mode}
    if maker.between(0, 1):
        attributes["sizes"] = [maker.between(1, 2 * x.tensor.dims[axis]) for axis in axes]
    else:
        attributes["scales"] = [maker.pick(0.5, 0.7, 1.0, 1.3, 2.0, 2.0, 3.0) for _ in axes]
    attributes["coordinate_transformation_mode"] = maker.pick(*COORDINATES)
    attributes["nearest_mode"] = maker.pick(*NEAREST)
    attributes["exclude_outside"] = maker.between(0, 1)
    maker.append("resize", [x], **attributes)


def _conv_transpose(maker: Maker, x: Value) -> None:
    channels = x.tensor.dims[1]
    group = maker.pick(1, 1, 1, channels, maker.pick(*_divisors(channels)))
    outputs = maker.pick(1, 2, 3) if group > 1 else maker.pick(1, 3, 8, 16, 19)
    kernel = (maker.pick(1, 2, 2, 3, 4), maker.pick(1, 2, 2, 3, 4))
    shape = (channels, outputs, *kernel)
    if math.prod(shape) > 6000 or outputs * group > 40:
        return
    operands: list[Value | None] = [x, maker.constant(*shape, std=1 / math.sqrt(channels))]
    if maker.between(0, 1):
        operands.append(maker.constant(outputs * group))
    strides = (maker.pick(1, 2, 2, 3), maker.pick(1, 2, 2, 3))
    attributes: dict[str, Any] = {"group": group, "strides": strides}
    attributes["dilations"] = (maker.pick(1, 1, 2, 3), maker.pick(1, 1, 2, 3))
    how = maker.between(0, 2)
    if how == 0:
        attributes["auto_pad"] = maker.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    elif how == 1:
        attributes["pads"] = tuple(maker.pick(0, 0, 1, 2) for _ in range(4))
        attributes["output_padding"] = tuple(maker.between(0, s - 1) for s in strides)
    if maker.append("conv_transpose2d", operands, **attributes) and maker.between(0, 2) == 2:
        maker.append("relu", [maker.values[-1]])


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def expand(maker: Maker) -> None:
    """Repeat dims of 1, sometimes with a new one in front."""
    x = maker.value()
    if x is None:
        return
    shape = [d if d > 1 else maker.between(1, 6) for d in x.tensor.dims]
    if len(shape) < 4 and maker.between(0, 2) == 2:
        shape.insert(0, maker.between(1, 3))
    maker.append("expand", [x], shape=tuple(shape))


def _of(kind: Callable[[Maker, Value], None], *ranks: int) -> Callable[[Maker], None]:
    """Return a kind that picks its operand."""

    def draw(maker: Maker) -> None:
        x = maker.value(*ranks)
        if x is not None and x.tensor.rank:
            kind(maker, x)

    return draw


MOVES: tuple[Callable[[Maker], None], ...] = (
    _of(_transpose),
    _of(_slice),
    _of(_pad),
    _of(_squeeze),
    _of(_unsqueeze),
    _of(_tile),
    _of(_gather),
    _of(_unfold, 4),
    _of(_fold, 4),
    _of(_resize, 3, 4),
    _of(_resize, 4),
    _of(_conv_transpose, 4),
)
"""Each adds at most one op."""
