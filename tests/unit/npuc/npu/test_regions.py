"""What a stripe reads, against taps counted one by one; views against element addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npuabi.enums import DType, Layout, Space
from npuc.diagnostics import CompileError
from npuc.ir.core import Graph, Value
from npuc.ir.types import TensorType
from npuc.npu.builder import device_type
from npuc.npu.regions import Box, largest_reach, reach_of, root_of, slice_buffer
from npuc.npu.tasks import Conv, Copy, Task, View, buffer_type
from npuc.window import Window

_PIXELS = st.integers(1, 12)
_PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))
_PADS = st.tuples(*[st.integers(0, 6)] * 4)


def _buffer(name: str, *dims: int, layout: Layout = Layout.NCHW16C) -> Value:
    tensor = TensorType(dims, DType.I8, layout=layout)
    return Value(name, device_type(tensor, Space.SRAM, row_pitch=16))


def _conv(window: Window, height: int, width: int) -> Task:
    rows, columns = window.output(height, width)
    attributes: dict[str, Any] = {
        "kernel": window.kernel,
        "strides": window.strides,
        "dilations": window.dilations,
        "pads": window.pads,
    }
    x, y = _buffer("x", 1, 16, height, width), _buffer("y", 1, 16, rows or 1, columns or 1)
    return Conv([x, y], attributes)


def _taps(first: int, count: int, stride: int, dilation: int, kernel: int) -> list[list[int]]:
    return [[first + i * stride + k * dilation for k in range(kernel)] for i in range(count)]


@settings(deadline=None, max_examples=400)
@given(_PIXELS, _PIXELS, _PAIR, _PAIR, _PAIR, _PADS, st.data())
def test_a_stripe_sees_the_same_taps_as_the_whole_op(
    height: int,
    width: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
    data: st.DataObject,
) -> None:
    window = Window(kernel=kernel, strides=strides, dilations=dilations, pads=pads)
    assume(min(window.output(height, width), key=lambda n: n or 0) in range(1, 100))
    task = _conv(window, height, width)
    box = Box((0, 0, 0, 0), (1, 16, 1, 1))
    for dim in (2, 3):
        extent = task.output.tensor.dims[dim]
        start = data.draw(st.integers(0, extent - 1))
        box = box.along(dim, start, data.draw(st.integers(1, extent - start)))
    reach = reach_of(task, box)
    for axis, extent in enumerate((height, width)):
        dim, step, gap = axis + 2, strides[axis], dilations[axis]
        first = box.start[dim] * step - pads[axis]
        wanted = _taps(first, box.size[dim], step, gap, kernel[axis])
        start, size = reach.box.start[dim], reach.box.size[dim]
        assert 1 <= size <= largest_reach(task, box.size)[dim] <= extent
        assert 0 <= start <= start + size <= extent
        before, behind = reach.pads[axis], reach.pads[axis + 2]
        count = (size + before + behind - gap * (kernel[axis] - 1) - 1) // reach.strides[axis] + 1
        assert count == box.size[dim]
        seen = _taps(start - before, count, reach.strides[axis], gap, kernel[axis])
        inside = [[t if 0 <= t < extent else None for t in row] for row in wanted]
        own = [[t if start <= t < start + size else None for t in row] for row in seen]
        assert own == inside


def test_more_results_in_padding_than_a_descriptor_can_pad_are_refused() -> None:
    task = _conv(Window(kernel=(1, 1), pads=(250, 0, 0, 0)), 2, 2)
    assert reach_of(task, Box((0, 0, 0, 0), (1, 16, 128, 2))).pads == (255, 0, 0, 0)
    with pytest.raises(CompileError, match="129 results in a row see padding only"):
        reach_of(task, Box((0, 0, 0, 0), (1, 16, 129, 2)))


@settings(deadline=None)
@given(st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 4), st.integers(1, 4)))
def test_a_flatten_reads_the_channels_that_its_elements_come_from(
    dims: tuple[int, int, int, int],
) -> None:
    n, c, h, w = dims
    task = Copy([_buffer("x", *dims), _buffer("y", n, c * h * w, 1, 1)])
    step = 16 * h * w
    source = np.arange(n * c * h * w).reshape(dims)
    for image in range(n):
        for start in range(0, c * h * w, step):
            size = min(step, c * h * w - start)
            box = reach_of(task, Box((image, start, 0, 0), (1, size, 1, 1))).box
            read = source[tuple(slice(a, a + b) for a, b in zip(box.start, box.size, strict=True))]
            assert read.ravel().tolist() == source.reshape(n, -1)[image, start:][:size].tolist()


@settings(deadline=None)
@given(
    st.sampled_from([Layout.NCHW16C, Layout.NHWC, Layout.NCHW]),
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 4), st.integers(1, 4)),
    st.data(),
)
def test_a_view_begins_where_its_first_element_lies(
    layout: Layout, dims: tuple[int, int, int, int], data: st.DataObject
) -> None:
    value = _buffer("x", *dims, layout=layout)
    box = Box((0, 0, 0, 0), dims)
    for dim, extent in enumerate(dims):
        start = data.draw(st.integers(0, extent - 1))
        box = box.along(dim, start, data.draw(st.integers(1, extent - start)))
    graph = Graph("g")
    part = slice_buffer(graph, value, box, before=None)
    inner = slice_buffer(graph, part, Box((0, 0, 0, 0), (1, 1, 1, 1)), before=None)
    strides = buffer_type(value).strides
    n, c, h, w = box.start
    bricks = layout is Layout.NCHW16C
    byte = (
        n * strides[0] + (c // 16 if bricks else c) * strides[1] + h * strides[2] + w * strides[3]
    )
    for view in (part, inner):
        assert root_of(view) == (value, byte if isinstance(view.owner, View) else 0)
        assert buffer_type(view).lane == (c % 16 if bricks else 0)
