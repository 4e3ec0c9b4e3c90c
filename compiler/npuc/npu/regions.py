"""Which part of a task's inputs a part of its output needs, and how to look at a part of a buffer.

A Box is a range of logical N, C, H, W. Invariant: the boxes of a task's stripes tile its output,
and an input box with its pads gives every tap of the output box.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from npuabi.enums import Layout
from npuabi.geometry import LANES, Geometry
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import Buffer, Place
from npuc.npu.tasks import (
    Add,
    AvgPool,
    Conv,
    Copy,
    Depthwise,
    Dequantize,
    GlobalAvgPool,
    MaxPool,
    Quantize,
    Rescale,
    Softmax,
    Task,
    View,
    buffer_type,
)

__all__ = ["Box", "Reach", "geometry", "reach_of", "root_of", "slice_buffer", "whole"]


@dataclass(frozen=True, slots=True)
class Box:
    """A range in each of the four logical dims."""

    start: tuple[int, int, int, int]
    size: tuple[int, int, int, int]

    @property
    def elements(self) -> int:
        """Number of elements."""
        n, c, h, w = self.size
        return n * c * h * w

    def along(self, dim: int, start: int, size: int) -> Box:
        """Return the box with another range in one dim."""
        starts, sizes = list(self.start), list(self.size)
        starts[dim], sizes[dim] = start, size
        return Box(_four(starts), _four(sizes))


def _four(values: list[int]) -> tuple[int, int, int, int]:
    a, b, c, d = values
    return a, b, c, d


@dataclass(frozen=True, slots=True)
class Reach:
    """What a task reads of its input for one output box, and the padding around it."""

    box: Box
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)


def geometry(buffer: Buffer) -> Geometry:
    """Return the buffer's geometry as the ABI has it."""
    tensor = buffer.tensor
    layout = tensor.layout or Layout.NCHW
    return Geometry(tensor.dims, buffer.strides, tensor.dtype, layout, buffer.lane)


def whole(value: Value) -> Box:
    """Return the box of all of a buffer."""
    return Box((0, 0, 0, 0), _four(list(value.tensor.dims)))


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
    return _REACH[type(task)](task, box)


def _window(task: Task, box: Box) -> Reach:
    """The rows and columns under the kernel; channels as in the output."""
    extents = task.inputs[0].tensor.dims
    pads = task.attributes["pads"]
    starts, sizes, found = list(box.start), list(box.size), [0, 0, 0, 0]
    for i, dim in enumerate((2, 3)):
        stride, dilation = task.attributes["strides"][i], task.attributes["dilations"][i]
        first = box.start[dim] * stride - pads[i]
        last = (box.start[dim] + box.size[dim] - 1) * stride - pads[i]
        last += dilation * (task.attributes["kernel"][i] - 1)
        starts[dim] = max(first, 0)
        sizes[dim] = min(last, extents[dim] - 1) + 1 - starts[dim]
        found[i] = starts[dim] - first
        found[i + 2] = min(max(last - extents[dim] + 1, 0), pads[i + 2])
    return Reach(Box(_four(starts), _four(sizes)), _four(found))


def _window_all_channels(task: Task, box: Box) -> Reach:
    reach = _window(task, box)
    return replace(reach, box=reach.box.along(1, 0, task.inputs[0].tensor.dims[1]))


def _pointwise(task: Task, box: Box) -> Reach:
    return Reach(clip_broadcast(box, task.inputs[0]))


def _plane(task: Task, box: Box) -> Reach:
    _, _, h, w = task.inputs[0].tensor.dims
    return Reach(box.along(2, 0, h).along(3, 0, w))


def _copy(task: Task, box: Box) -> Reach:
    """Pointwise; a flatten reads the channels that its elements come from; a reshape all."""
    source, target = task.inputs[0].tensor.dims, task.output.tensor.dims
    if all(s in (t, 1) for s, t in zip(source, target, strict=True)):
        return _pointwise(task, box)
    if box == whole(task.output):
        return Reach(whole(task.inputs[0]))
    plane = source[2] * source[3]
    first, count = box.start[1] // plane, box.size[1] // plane
    return Reach(Box((box.start[0], first, 0, 0), (box.size[0], count, source[2], source[3])))


def clip_broadcast(box: Box, value: Value) -> Box:
    """Return *box* with range (0, 1) in the dims that *value* broadcasts."""
    for dim, extent in enumerate(value.tensor.dims):
        if extent == 1:
            box = box.along(dim, 0, 1)
    return box


_REACH: dict[type[Task], Callable[[Task, Box], Reach]] = {
    Conv: _window_all_channels,
    Depthwise: _window,
    MaxPool: _window,
    AvgPool: _window,
    GlobalAvgPool: _plane,
    Add: _pointwise,
    Rescale: _pointwise,
    Quantize: _pointwise,
    Dequantize: _pointwise,
    Copy: _copy,
    Softmax: _pointwise,
}
