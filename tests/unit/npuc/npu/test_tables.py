"""A stripe's tables name the same elements as the whole op's; its box holds all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.enums import DType, Layout, Rounding, Space
from npuabi.target import load_target
from npuc.ir.core import Graph, Value
from npuc.ir.types import TensorType
from npuc.npu.box import Box
from npuc.npu.builder import Builder, device_type, op_params
from npuc.npu.pack import HEAD_BYTES
from npuc.npu.regions import largest_reach, reach_of
from npuc.npu.tables import NOWHERE, Table, pack_tables, params_bytes, stripe_params
from npuc.npu.tasks import Remap, Resize, Task

Dims = tuple[int, int, int, int]


def buffer(name: str, dims: Dims, layout: Layout) -> Value:
    tensor = TensorType(dims, DType.I8, layout=layout)
    return Value(name, device_type(tensor, Space.SRAM, row_pitch=16))


def task_of(kind: type[Task], source: Dims, tables: list[Table], layout: Layout) -> Task:
    builder = Builder(Graph("g"), load_target("edge"), Rounding.DOUBLE)
    sizes = {table.dim: table.positions.shape[1] for table in tables}
    n, c, h, w = (sizes.get(dim, extent) for dim, extent in enumerate(source))
    params = builder.params(op_params(), pack_tables(tables))
    operands = [buffer("x", source, layout), buffer("y", (n, c, h, w), layout), params]
    taps = {table.dim: len(table.positions) for table in tables}
    kernel = (taps[2], taps[3]) if kind is Resize else (1, 1)
    return kind(operands, {"kernel": kernel})


def drawn_box(data: st.DataObject, dims: tuple[int, ...]) -> tuple[Box, Dims]:
    """Return one of the boxes of a cut, which starts at a multiple of the cut's sizes, and these.

    Bricks are whole; the last box of a dim may be smaller than the cut's size.
    """
    box, sizes = Box((0, 0, 0, 0), (1, 1, 1, 1)), list[int]()
    for dim, extent in enumerate(dims):
        grain = 16 if dim == 1 else 1
        size = grain * data.draw(st.integers(1, max(1, extent // grain)))
        start = size * data.draw(st.integers(0, (extent - 1) // size))
        box = box.along(dim, start, min(size, extent - start))
        sizes.append(min(size, extent))
    n, c, h, w = sizes
    return box, (n, c, h, w)


def own_tables(task: Task, box: Box, forms: list[tuple[int, int]]) -> list[np.ndarray[Any, Any]]:
    """Return the tables of a stripe's parameters, (taps, extent) each."""
    reach = reach_of(task, box)
    words = stripe_params(task, box, reach.box)[HEAD_BYTES:].view("<i4")
    found, at = [], 0
    for dim, taps in forms:
        count = taps * box.size[dim]
        found.append(words[at : at + count].reshape(taps, -1))
        at += count
    assert at == len(words)
    return found


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_stripe_of_a_remap_takes_the_same_elements(data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from([Layout.NCHW16C, Layout.NCHW]))
    n, c, h, w = (data.draw(st.integers(1, high)) for high in (3, 40, 9, 9))
    source = (n, c, h, w)
    tables = [
        Table(dim, np.array([data.draw(st.lists(st.integers(NOWHERE, extent - 1), min_size=1,
                                                max_size=40 if dim == 1 else 9))], np.int32))
        for dim, extent in enumerate(source)
    ]  # fmt: skip
    task = task_of(Remap, source, tables, layout)
    box, sizes = drawn_box(data, task.output.tensor.dims)
    reach = reach_of(task, box).box
    for dim, own in enumerate(own_tables(task, box, [(d, 1) for d in range(4)])):
        whole = tables[dim].positions[0, box.start[dim] :][: box.size[dim]]
        back = np.where(own[0] == NOWHERE, NOWHERE, own[0] + reach.start[dim])
        assert back.tolist() == whole.tolist()
        assert own.max() < reach.size[dim] <= largest_reach(task, sizes)[dim]
        assert 0 <= reach.start[dim] <= reach.start[dim] + reach.size[dim] <= source[dim]
    assert stripe_params(task, box, reach).size == params_bytes(task, box.size)
    if layout is Layout.NCHW16C:
        assert reach.start[1] % 16 == 0


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_stripe_of_a_resize_weighs_the_same_elements(data: st.DataObject) -> None:
    source = (1, 20, data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tables = []
    for dim in (2, 3):
        shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9)))
        positions = rng.integers(0, source[dim], shape).astype(np.int32)
        tables.append(Table(dim, positions, rng.integers(-99, 99, shape).astype(np.int32)))
    task = task_of(Resize, source, tables, Layout.NCHW16C)
    box, sizes = drawn_box(data, task.output.tensor.dims)
    reach = reach_of(task, box).box
    forms = [(t.dim, len(t.positions)) for t in tables for _ in range(2)]
    found = own_tables(task, box, forms)
    for index, table in enumerate(tables):
        part = slice(box.start[table.dim], box.start[table.dim] + box.size[table.dim])
        back = found[2 * index] + reach.start[table.dim]
        assert (back == table.positions[:, part]).all()
        assert table.weights is not None
        assert (found[2 * index + 1] == table.weights[:, part]).all()
        assert reach.size[table.dim] <= largest_reach(task, sizes)[table.dim]
    assert (reach.start[1], reach.size[1]) == (box.start[1], box.size[1])


def test_tables_of_a_computed_tensor_are_refused() -> None:
    words = buffer("p", (1, 1, 1, 64), Layout.NCHW)
    made = buffer("x", (1, 1, 1, 1), Layout.NCHW16C)
    task = Remap([made, buffer("y", (1, 1, 1, 1), Layout.NCHW16C), words])
    with pytest.raises(TypeError, match="no constant"):
        reach_of(task, Box((0, 0, 0, 0), (1, 1, 1, 1)))
