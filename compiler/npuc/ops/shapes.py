"""Shape rules that several ops share: windows with their padding, axes, broadcasts, reshapes.

Rules are those of the ONNX operator pages, opset 21. A dim of None is dynamic; what depends on it
is None too. Every error is a ValueError whose text is for the user.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from npuabi.geometry import device_axes
from npuc.ir.core import AttrKind, Op, attr
from npuc.window import Window

__all__ = [
    "AUTO_PAD",
    "CEIL_MODE",
    "DILATIONS",
    "LINE_DILATIONS",
    "LINE_PADS",
    "LINE_STRIDES",
    "PADS",
    "STRIDES",
    "Shape",
    "axes_of",
    "broadcast",
    "device_axis",
    "flag",
    "normalise_axis",
    "plane",
    "pool_shape",
    "product",
    "require_rank",
    "reshape",
    "text",
    "whole_numbers",
    "window_of",
]

Shape = tuple[int | None, ...]

AUTO_PAD = attr(
    "NOTSET takes pads; SAME_UPPER, SAME_LOWER, VALID compute them", AttrKind.STRING,
    default="NOTSET",
)  # fmt: skip
CEIL_MODE = attr("1 rounds the result size up, 0 down", AttrKind.INT, default=0)
DILATIONS = attr("rows and columns between taps", AttrKind.INTS, default=(1, 1))
PADS = attr("rows and columns added: top, left, bottom, right", AttrKind.INTS, default=(0, 0, 0, 0))
STRIDES = attr("rows and columns moved a step", AttrKind.INTS, default=(1, 1))
LINE_DILATIONS = attr("elements between taps", AttrKind.INTS, default=(1,))
LINE_PADS = attr("elements added: begin, end", AttrKind.INTS, default=(0, 0))
LINE_STRIDES = attr("elements moved a step", AttrKind.INTS, default=(1,))


def window_of(op: Op, kernel: Sequence[int], size: Sequence[int | None]) -> Window:
    """Return the window of a convolution or pool over *size* = (height, width), or (width,).

    Pads that auto_pad derives from a dynamic dim come out as 0. A line is a plane of one row.
    """
    read, count = op.attributes, len(size)
    window = Window(
        kernel=_pair("kernel_shape", kernel, count),
        strides=_pair("strides", read["strides"], count),
        dilations=_pair("dilations", read["dilations"], count),
        pads=_four(read["pads"], count),
        ceil=flag("ceil_mode", read.get("ceil_mode", 0)),
    )
    size = plane((None, None, *size))
    resolved = replace(window, pads=_resolve(read["auto_pad"], window, size))
    if read["auto_pad"] == "VALID":
        _check_valid_ceil(resolved, size)
    return resolved


def _check_valid_ceil(window: Window, size: Sequence[int | None]) -> None:
    """Refuse the one case that ONNX's text (round down) and ONNX Runtime (up) read differently."""
    floor = replace(window, ceil=False)
    if window.output(*size) != floor.output(*size):
        raise ValueError("auto_pad VALID with ceil_mode 1 is ambiguous here: state pads instead")


def _resolve(
    auto_pad: str, window: Window, size: Sequence[int | None]
) -> tuple[int, int, int, int]:
    if auto_pad == "NOTSET":
        return window.pads
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        known = "NOTSET, SAME_UPPER, SAME_LOWER or VALID"
        raise ValueError(f"auto_pad is {known}, got {auto_pad!r}")
    if any(window.pads):
        raise ValueError(f"auto_pad {auto_pad} computes the pads: remove pads or auto_pad")
    if auto_pad == "VALID":
        return (0, 0, 0, 0)
    (top, bottom), (left, right) = (
        _same(window, axis, size[axis], upper=auto_pad == "SAME_UPPER") for axis in (0, 1)
    )
    return top, left, bottom, right


def _same(window: Window, axis: int, size: int | None, *, upper: bool) -> tuple[int, int]:
    """Return the begin and end padding of ONNX's SAME; an odd row goes to the end for UPPER."""
    if size is None:
        return 0, 0
    step = window.strides[axis]
    total = max((-(-size // step) - 1) * step + window.reach(axis) - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def plane(shape: Sequence[int | None]) -> Shape:
    """Return the rows and columns of (N, C, H, W), or of (N, C, W), which has one row."""
    return (1, shape[2]) if len(shape) == 3 else (shape[2], shape[3])


def _pair(name: str, values: Sequence[int], count: int) -> tuple[int, int]:
    if len(values) != count or min(values) < 1:
        words = "two numbers" if count == 2 else "one number"
        raise ValueError(f"{name} is {words} of at least 1, got {list(values)}")
    return (int(values[0]) if count == 2 else 1), int(values[-1])


def _four(values: Sequence[int], count: int) -> tuple[int, int, int, int]:
    if len(values) != 2 * count or min(values) < 0:
        words = "[top, left, bottom, right]" if count == 2 else "[begin, end]"
        raise ValueError(f"pads is {words}, none negative, got {list(values)}")
    if count == 1:
        return 0, int(values[0]), 0, int(values[1])
    top, left, bottom, right = map(int, values)
    return top, left, bottom, right


def whole_numbers(name: str, values: Sequence[int], count: int, least: int) -> None:
    """Refuse an attribute that is not *count* numbers of at least *least*."""
    if len(values) != count or min(values) < least:
        raise ValueError(f"{name} is {count} numbers of at least {least}, got {list(values)}")


def flag(name: str, value: int) -> bool:
    """Return an attribute that is 0 or 1 as a bool."""
    if value not in (0, 1):
        raise ValueError(f"{name} is 0 or 1, got {value}")
    return bool(value)


def require_rank(name: str, shape: Shape, rank: int, dims: str) -> None:
    """Refuse a *shape* that has not the *rank* dims named by *dims*."""
    if len(shape) != rank:
        raise ValueError(f"{name} has {rank} dims ({dims}), got {len(shape)}: {text(shape)}")


def text(shape: Shape) -> str:
    """Return a shape as graph text writes it: ``1x3x?x8``."""
    return "x".join("?" if d is None else str(d) for d in shape) or "scalar"


def normalise_axis(axis: int, rank: int) -> int:
    """Return *axis* counted from the front; it may be given from the back, as -1 for the last."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside a tensor of {rank} dims")
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int, *, count: int = 0) -> list[int]:
    """Return *axes* counted from the front, each of which is named once.

    None stands for the first *count* of them.
    """
    if axes is None and count > rank:
        raise ValueError(f"{count} axes are named, the tensor has {rank} dims")
    found = [normalise_axis(axis, rank) for axis in (range(count) if axes is None else axes)]
    if len(set(found)) != len(found):
        raise ValueError(f"axes are named once each, got {list(axes or ())}")
    return found


def product(shape: Shape) -> int | None:
    """Return the number of elements; None when a dim is dynamic."""
    known = tuple(d for d in shape if d is not None)
    return math.prod(known) if len(known) == len(shape) else None


def device_axis(axis: int, rank: int) -> int:
    """Return which of the device's four dims N, C, H, W holds *axis* of a tensor of *rank* dims.

    (N, C) is stored as (N, C, 1, 1), (N, C, W) as (N, C, 1, W) and (C) as (1, C, 1, 1).
    """
    return device_axes(rank)[normalise_axis(axis, rank)]


def broadcast(left: Shape, right: Shape) -> Shape:
    """Return the shape that both shapes broadcast to, by numpy's rule."""
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in (left, right)]
    return tuple(_meet(a, b, left, right) for a, b in zip(*padded, strict=True))


def _meet(a: int | None, b: int | None, left: Shape, right: Shape) -> int | None:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if a is None or b is None:
        # The other dim is above 1, so the dynamic one is 1 or equal to it.
        return b if a is None else a
    raise ValueError(f"shapes {text(left)} and {text(right)} do not broadcast")


def reshape(shape: Shape, wanted: Sequence[int], *, allowzero: bool) -> Shape:
    """Return the result shape of ONNX Reshape: 0 copies a dim (unless *allowzero*), -1 infers one.

    An inferred dim is None when the input has a dynamic dim that *wanted* does not copy.
    """
    dims: list[int | None] = []
    copied: set[int] = set()
    for place, dim in enumerate(wanted):
        if dim < -1:
            raise ValueError(f"shape holds dims of at least -1, got {list(wanted)}")
        if dim == 0 and not allowzero:
            copied.add(place)
            dims.append(_copied(shape, place))
        else:
            dims.append(dim)
    _check_inferred(wanted, allowzero)
    return _complete(shape, dims, wanted, copied)


def _copied(shape: Shape, place: int) -> int | None:
    if place >= len(shape):
        raise ValueError(f"shape copies dim {place} of a tensor of {len(shape)} dims")
    return shape[place]


def _check_inferred(wanted: Sequence[int], allowzero: bool) -> None:
    if list(wanted).count(-1) > 1:
        raise ValueError(f"shape has at most one -1, got {list(wanted)}")
    if allowzero and -1 in wanted and 0 in wanted:
        raise ValueError(f"with allowzero, shape holds 0 or -1 but not both: {list(wanted)}")


def _complete(
    shape: Shape, dims: list[int | None], wanted: Sequence[int], copied: set[int]
) -> Shape:
    """Fill in the dim of -1, and check that no element is lost."""
    dynamic_left = any(d is None and i not in copied for i, d in enumerate(shape))
    if dynamic_left:
        return tuple(None if d == -1 else d for d in dims)
    # A dynamic dim that was copied stands on both sides and cancels.
    total = math.prod(d for d in shape if d is not None)
    known = math.prod(d for d in dims if d is not None and d != -1)
    if -1 in dims:
        if known == 0 or total % known:
            raise ValueError(f"{text(shape)} does not reshape to {list(wanted)}")
        return tuple(total // known if d == -1 else d for d in dims)
    if total != known:
        raise ValueError(f"{text(shape)} has {total} elements, shape {list(wanted)} has {known}")
    return tuple(dims)


def pool_shape(shape: Shape, sides: Sequence[str], find: Callable[[], Window]) -> Shape:
    """Return (N, C, OH, OW) of a pool over *shape*, whose dims behind N and C are *sides*.

    *find* gives the window once the rank is known. Refuses a window that does not fit, and one that
    would lie wholly in padding.
    """
    require_rank("input", shape, 2 + len(sides), ", ".join(("N", "C", *sides)))
    window, extents = find(), plane(shape)
    size = window.output(*extents)
    if any(d is not None and d < 1 for d in size):
        raise ValueError(f"kernel {text(window.kernel)} does not fit input {text(shape)}")
    for axis in (0, 1):
        extent = extents[axis]
        if extent is not None and not window.taps(axis, extent, padded=False).all():
            pads = f"pads {list(window.pads)} and kernel {text(window.kernel)}"
            raise ValueError(f"{pads} leave a window without any input: make the pads smaller")
    return (*shape[:2], *size[-len(sides) :])
