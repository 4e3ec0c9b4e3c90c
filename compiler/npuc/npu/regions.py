"""Which part of a task's inputs a part of its output needs, and how to look at a part of a buffer.

A Box is a range of logical N, C, H, W. Invariant: the boxes of a task's stripes tile its output,
and an input box with its pads gives every tap of the output box.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from npuabi.enums import Layout
from npuabi.geometry import LANES, Geometry
from npuc.diagnostics import CompileError
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import Buffer, Place
from npuc.npu.box import Box, Reach, whole
from npuc.npu.tables import largest_source, source_of
from npuc.npu.tasks import MatMul, Norm, Reads, Task, View, buffer_type

__all__ = [
    "Box",
    "Reach",
    "clip_broadcast",
    "copies_in_place",
    "geometry",
    "largest_reach",
    "reach_of",
    "residual_box",
    "root_of",
    "slice_buffer",
    "whole",
]

_MOST_PADS = 255
"""What one byte of a descriptor holds."""


def geometry(buffer: Buffer) -> Geometry:
    """Return the buffer's geometry as the ABI has it."""
    tensor = buffer.tensor
    layout = tensor.layout or Layout.NCHW
    return Geometry(tensor.dims, buffer.strides, tensor.dtype, layout, buffer.lane)


def root_of(value: Value) -> tuple[Value, int]:
    """Return the buffer that a value looks into, and the byte offset of the look."""
    if isinstance(value.owner, View):
        return value.owner.source, int(value.owner.offset)
    return value, 0


def slice_buffer(graph: Graph, value: Value, box: Box, *, before: Op | None) -> Value:
    """Return a view of *box* in *value*; the value itself when the box is all of it."""
    if box == whole(value):
        return value
    buffer = buffer_type(value)
    source, base = root_of(value)
    n, c, h, w = box.start
    lane = 0
    if buffer.tensor.layout is Layout.NCHW16C:
        c, lane = divmod(buffer.lane + c, LANES)
    offset = sum(i * s for i, s in zip((n, c, h, w), buffer.strides, strict=True))
    place = buffer_type(source).place
    at = None if place.offset is None else place.offset + base + offset
    tensor = buffer.tensor.with_shape(box.size)
    part = replace(buffer, tensor=tensor, lane=lane, place=Place(place.space, at), bank=None)
    view = View([source], {"offset": base + offset}, result_types=[part])
    return graph.insert(view, before=before).result


def reach_of(task: Task, box: Box) -> Reach:
    """Return what *task* reads of its first input to compute *box* of its output."""
    return _REACH[task.READS](task, box)


def _window(task: Task, box: Box) -> Reach:
    """The rows and columns under the kernel; channels as in the output."""
    rows, columns = _under_kernel(task, box, 0), _under_kernel(task, box, 1)
    return Reach(
        box.along(2, rows.start, rows.size).along(3, columns.start, columns.size),
        (rows.before, columns.before, rows.behind, columns.behind),
        (rows.stride, columns.stride),
    )


@dataclass(frozen=True, slots=True)
class _Taps:
    """The range under the kernel along one axis, the padding beside it, the step."""

    start: int
    size: int
    before: int
    behind: int
    stride: int


def _under_kernel(task: Task, box: Box, axis: int) -> _Taps:
    dim, read = axis + 2, task.attributes
    extent, stride = task.inputs[0].tensor.dims[dim], read["strides"][axis]
    reach = _extent(task, axis)
    first = box.start[dim] * stride - read["pads"][axis]
    last = first + (box.size[dim] - 1) * stride + reach - 1
    start, end = max(first, 0), min(last, extent - 1) + 1
    if start < end:
        behind = min(max(last - extent + 1, 0), read["pads"][axis + 2])
        return _Taps(start, end - start, start - first, behind, stride)
    # All taps are padding, and so all results alike: any row will do, below the windows. A step of
    # 2 keeps one more window from starting there.
    stride = max(stride, 2)
    before = (box.size[dim] - 1) * stride + reach
    if before > _MOST_PADS:
        raise CompileError.at(
            task.location,
            f"{read['kind']} %{read['name']}: {box.size[dim]} results in a row see padding only, "
            f"and the NPU pads by at most {_MOST_PADS}: use smaller pads",
        )
    return _Taps(0, 1, before, 0, stride)


def largest_reach(task: Task, size: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return dims that hold what any output box of *size* reads of the first input."""
    if task.READS is Reads.TABLES:
        return _loadable(largest_source(task, size), task.inputs[0]).size
    if task.READS not in (Reads.WINDOW, Reads.WINDOW_ALL_CHANNELS):
        return reach_of(task, Box((0, 0, 0, 0), size)).box.size
    dims, read = task.inputs[0].tensor.dims, task.attributes
    under = [
        min((size[i + 2] - 1) * read["strides"][i] + _extent(task, i), dims[i + 2]) for i in (0, 1)
    ]
    channels = dims[1] if task.READS is Reads.WINDOW_ALL_CHANNELS else size[1]
    return size[0], channels, under[0], under[1]


def _extent(task: Task, axis: int) -> int:
    """Rows or columns from a window's first tap to its last, both counted."""
    read = task.attributes
    return int(read["dilations"][axis] * (read["kernel"][axis] - 1) + 1)


def _window_all_channels(task: Task, box: Box) -> Reach:
    reach = _window(task, box)
    return replace(reach, box=reach.box.along(1, 0, task.inputs[0].tensor.dims[1]))


def _pointwise(task: Task, box: Box) -> Reach:
    return Reach(clip_broadcast(box, task.inputs[0]))


def _rows(task: Task, box: Box) -> Reach:
    """The rows of a product, all of K."""
    read = clip_broadcast(box, task.inputs[0], dims=(0, 2))
    return Reach(read.along(1, 0, task.inputs[0].tensor.dims[1]))


def _reduced(task: Task, box: Box) -> Reach:
    """All of the dims that the output has one element of, the others as in the output."""
    for dim, extent in enumerate(task.inputs[0].tensor.dims):
        if task.output.tensor.dims[dim] == 1:
            box = box.along(dim, 0, extent)
    return Reach(box)


def _plane(task: Task, box: Box) -> Reach:
    _, _, h, w = task.inputs[0].tensor.dims
    return Reach(box.along(2, 0, h).along(3, 0, w))


def _copy(task: Task, box: Box) -> Reach:
    """Pointwise; a flatten reads the channels its elements come from; a reshape whole images."""
    source, target = task.inputs[0].tensor.dims, task.output.tensor.dims
    if copies_in_place(task):
        return _pointwise(task, box)
    if box == whole(task.output):
        return Reach(whole(task.inputs[0]))
    if box.size[1:] == target[1:]:
        return Reach(whole(task.inputs[0]).along(0, box.start[0], box.size[0]))
    plane = source[2] * source[3]
    first, count = box.start[1] // plane, box.size[1] // plane
    return Reach(Box((box.start[0], first, 0, 0), (box.size[0], count, source[2], source[3])))


def _tabled(task: Task, box: Box) -> Reach:
    return Reach(_loadable(source_of(task, box), task.inputs[0]))


def _transposed(task: Task, box: Box) -> Reach:
    """The box with its dims put back; the order goes on in the pads."""
    order, source = task.attributes["pads"], box
    for dim, origin in enumerate(order):
        source = source.along(origin, box.start[dim], box.size[dim])
    return Reach(_loadable(source, task.inputs[0]), pads=order)


def _unfolded(task: Task, box: Box) -> Reach:
    """A block of pixels comes from one pixel's channels: all, or with the channel first a range."""
    rows, columns = task.attributes["kernel"]
    source = box.along(2, box.start[2] // rows, box.size[2] // rows)
    source = source.along(3, box.start[3] // columns, box.size[3] // columns)
    depth = rows * columns
    return Reach(_loadable(source.along(1, box.start[1] * depth, box.size[1] * depth),
                           task.inputs[0]))  # fmt: skip


def _folded(task: Task, box: Box) -> Reach:
    rows, columns = task.attributes["kernel"]
    source = box.along(2, box.start[2] * rows, box.size[2] * rows)
    source = source.along(3, box.start[3] * columns, box.size[3] * columns)
    return Reach(_loadable(source.along(1, 0, task.inputs[0].tensor.dims[1]), task.inputs[0]))


def _loadable(box: Box, value: Value) -> Box:
    """Return *box*, widened until DMA can load it: whole bricks, or rows of a plain layout."""
    buffer = buffer_type(value)
    _, channels, _, columns = buffer.tensor.dims
    if buffer.tensor.layout is Layout.NHWC:
        return box.along(1, 0, channels).along(3, 0, columns)
    if buffer.tensor.layout is not Layout.NCHW16C:
        return box.along(3, 0, columns)
    first, size = box.start[1], box.size[1]
    begin = max((first + buffer.lane) // LANES * LANES - buffer.lane, 0)
    end = -(-(first + size + buffer.lane) // LANES) * LANES - buffer.lane
    return box.along(1, begin, min(end, channels) - begin)


def copies_in_place(task: Task) -> bool:
    """Return whether a copy keeps each element's N, C, H, W, or repeats along dims of 1."""
    pairs = zip(task.inputs[0].tensor.dims, task.output.tensor.dims, strict=True)
    return all(source in (target, 1) for source, target in pairs)


def residual_box(task: Task, value: Value, reach: Reach, box: Box) -> Box:
    """Return what *task* reads of its second operand for *box*; *reach* is that of the first.

    A product reads the columns of the box, for the range of K that the first operand's box has.
    """
    if isinstance(task, Norm):
        return clip_broadcast(box, value, dims=(1, 2, 3)).along(0, 0, value.tensor.dims[0])
    if not isinstance(task, MatMul):
        return clip_broadcast(box, value)
    depth = reach.box.start[1], reach.box.size[1]
    return clip_broadcast(box, value, dims=(0, 2)).along(3, *depth)


def clip_broadcast(box: Box, value: Value, dims: tuple[int, ...] = (0, 1, 2, 3)) -> Box:
    """Return *box* with range (0, 1) in those of *dims* that *value* broadcasts."""
    for dim in dims:
        if value.tensor.dims[dim] == 1:
            box = box.along(dim, 0, 1)
    return box


_REACH: dict[Reads, Callable[[Task, Box], Reach]] = {
    Reads.SAME_PLACES: _pointwise,
    Reads.WINDOW: _window,
    Reads.WINDOW_ALL_CHANNELS: _window_all_channels,
    Reads.PLANE: _plane,
    Reads.COPY: _copy,
    Reads.MATRIX_ROWS: _rows,
    Reads.REDUCED: _reduced,
    Reads.TABLES: _tabled,
    Reads.OTHER_ORDER: _transposed,
    Reads.DEPTH: _unfolded,
    Reads.BLOCKS: _folded,
}
