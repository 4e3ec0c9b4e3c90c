"""Layouts against addresses worked out element by element from the table in geometry.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.enums import DType, Layout
from npuabi.geometry import Geometry, dense_strides

Index = tuple[int, ...]


def address(g: Geometry, element: Index) -> tuple[int, Index]:
    """Return the byte offset of a logical element and its index in the view."""
    a, b, h, w = element
    size = g.dtype.size
    rest: Index = ()
    if g.layout is Layout.NCHW16C:
        brick, lane = divmod(g.lane + b, 16)
        steps, inner, rest = (a, brick, h, w), lane, (lane,)
    elif g.layout is Layout.OIHW16I16O:
        steps, inner, rest = (a // 16, b // 16, h, w), b % 16 * 16 + a % 16, (b % 16, a % 16)
    elif g.layout is Layout.OIHW16O:
        steps, inner, rest = (a // 16, b, h, w), a % 16, (a % 16,)
    else:
        steps, inner = (a, b, h, w), 0
    where = sum(n * s for n, s in zip(steps, g.strides, strict=True)) + inner * size
    return where, steps + rest


def made(layout: Layout, dims: Index, dtype: DType = DType.I8, lane: int = 0) -> Geometry:
    lanes = (dims[0], dims[1] + lane, *dims[2:])
    return Geometry(dims, dense_strides(lanes, dtype, layout, row_pitch=16), dtype, layout, lane)


layouts = st.sampled_from(list(Layout))
dims4 = st.tuples(st.integers(1, 20), st.integers(1, 35), st.integers(1, 4), st.integers(1, 5))


@settings(max_examples=60, deadline=None)
@given(layouts, dims4, st.sampled_from([DType.I8, DType.I16, DType.F32]), st.integers(0, 15))
def test_the_view_shows_each_element_at_its_address(
    layout: Layout, dims: Index, dtype: DType, lane: int
) -> None:
    g = made(layout, dims, dtype, lane if layout is Layout.NCHW16C else 0)
    base = 32
    memory = np.random.default_rng(1).integers(0, 255, base + g.extent, dtype=np.uint8)
    view = g.view(memory, base).view(f"<u{dtype.size}")
    for element in itertools.product(*map(range, dims)):
        where, index = address(g, element)
        start = base + where
        stored = int.from_bytes(memory[start : start + dtype.size].tobytes(), "little")
        assert int(view[index]) == stored


@settings(max_examples=100, deadline=None)
@given(layouts, dims4, st.sampled_from([1, 16, 64]))
def test_runs_cover_exactly_the_bytes_of_the_blocks(
    layout: Layout, dims: Index, pitch: int
) -> None:
    g = Geometry(dims, dense_strides(dims, DType.I8, layout, row_pitch=pitch), DType.I8, layout)
    counts = itertools.product(*map(range, g.counts))
    blocks = [sum(n * s for n, s in zip(at, g.strides, strict=True)) for at in counts]
    expected = sorted(b + i for b in blocks for i in range(g.inner_bytes))
    offsets, length = g.runs()
    assert sorted((offsets[:, None] + np.arange(length)).ravel().tolist()) == expected
    assert g.extent == expected[-1] + 1


def test_elements_never_share_an_address() -> None:
    for layout in Layout:
        g = made(layout, (18, 19, 2, 3))
        elements = itertools.product(*map(range, g.dims))
        addresses = [address(g, element)[0] for element in elements]
        assert len(set(addresses)) == len(addresses)
        assert max(addresses) < g.extent


def test_a_dense_tensor_is_one_run_and_padded_rows_are_many() -> None:
    dims = (1, 3, 4, 5)
    dense = Geometry(dims, dense_strides(dims, DType.I8, Layout.NCHW), DType.I8, Layout.NCHW)
    assert (dense.runs()[0].tolist(), dense.runs()[1]) == ([0], 60)
    padded = made(Layout.NCHW, dims)
    assert (padded.runs()[0].tolist(), padded.runs()[1]) == ([16 * i for i in range(12)], 5)


def test_writing_through_the_view_changes_memory() -> None:
    memory = np.zeros(64, np.uint8)
    g = made(Layout.NCHW16C, (1, 16, 1, 2))
    g.view(memory, 16)[0, 0, 0, 1, 3] = -1
    assert np.flatnonzero(memory).tolist() == [16 + 16 + 3]


@pytest.mark.parametrize(
    ("layout", "dims", "strides"),
    [
        (Layout.NCHW, (2, 3, 4, 5), (192, 64, 16, 1)),
        (Layout.NHWC, (2, 3, 4, 5), (64, 1, 16, 3)),
        (Layout.NCHW16C, (2, 17, 4, 5), (640, 320, 80, 16)),
        (Layout.OIHW16I16O, (17, 17, 1, 1), (512, 256, 256, 256)),
        (Layout.OIHW16O, (17, 3, 2, 2), (192, 16, 96, 48)),
    ],
)
def test_dense_strides_are_these(layout: Layout, dims: Index, strides: Index) -> None:
    assert dense_strides(dims, DType.I8, layout, row_pitch=16) == strides
