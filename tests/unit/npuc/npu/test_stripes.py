"""Cuts: their boxes tile the output, their slots hold every piece, their choice fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from npuabi.enums import Space
from npuabi.target import load_target
from npuc.driver import compile_graph
from npuc.ir.core import Graph
from npuc.npu.allocate import lower_bound
from npuc.npu.regions import geometry
from npuc.npu.stripes import Cut, Cutter, aligned, boxes
from npuc.npu.tasks import BufferOp, DmaIn, DmaOut, Task, View, buffer_type
from npuc.passes.context import PassContext
from npuc.passes.lower import lowered
from npuc.passes.manager import Pass
from npuc.passes.place import live_ranges
from tests.compiled import compiled
from tests.random_graphs import random_case

TINY = load_target("tiny")


def _each_tiled(seed: int, check: Callable[[Graph, int], None], *, limit: int = 3) -> None:
    """Call *check* with each graph that tile leaves, over all budgets tried, and the SRAM bytes."""
    case = random_case(Random(seed), ops=5)
    found = compiled(case, target="tiny", sram_limit_kib=limit, level=seed % 4)
    allowed = (found.options.sram_limit_kib or 0) << 10

    def after(step: Pass, graph: Graph) -> None:
        if step.NAME == "tile":
            check(graph, allowed)

    compile_graph(case.graph(), found.options, after=after)


def _tasks(graph: Graph) -> list[Task]:
    return [op for op in graph.ops if isinstance(op, Task)]


def _untiled(seed: int) -> list[Task]:
    made = compiled(random_case(Random(seed), ops=4), target="tiny").compilation
    return _tasks(lowered(made.graph, PassContext(target=TINY, rounding=made.rounding)))


@pytest.mark.parametrize("seed", range(10), ids="seed-{}".format)
def test_a_chosen_cut_fits_and_its_boxes_tile_the_output(seed: int) -> None:
    cutter = Cutter(TINY, copies=1 + seed % 2)
    for task in _untiled(seed):
        least = cutter.least(task)
        assert cutter.choose(task, least - 1) is None
        for free in (least, 2 * least, TINY.sram_bytes):
            cut = cutter.choose(task, free)
            assert cut is not None
            assert cutter.need(task, cut) <= free
            _check_tiling(task, cut)


def _check_tiling(task: Task, cut: Cut) -> None:
    covered = np.zeros(task.output.tensor.dims, np.int8)
    for box in boxes(task, cut):
        assert min(box.size) >= 1
        covered[tuple(slice(a, a + b) for a, b in zip(box.start, box.size, strict=True))] += 1
    assert (covered == 1).all()


@pytest.mark.parametrize("seed", range(12), ids="seed-{}".format)
def test_every_piece_lies_inside_its_slot(seed: int) -> None:
    _each_tiled(seed, _check_slots)


def _check_slots(graph: Graph, _: int) -> None:
    for view in (op for op in graph.ops if isinstance(op, View)):
        slot = view.source.owner
        if isinstance(slot, BufferOp) and slot.role == "slot":
            end = view.offset + geometry(buffer_type(view.result)).extent
            assert end <= geometry(buffer_type(view.source)).extent


@pytest.mark.parametrize("seed", range(12), ids="seed-{}".format)
def test_what_is_resident_and_the_slots_of_a_task_fit_the_budget(seed: int) -> None:
    _each_tiled(seed, _check_budget)


def _check_budget(graph: Graph, allowed: int) -> None:
    requests = live_ranges(_tasks(graph), Space.SRAM)[1]
    assert 0 < lower_bound([replace(r, size=aligned(r.size)) for r in requests]) <= allowed


@pytest.mark.parametrize("seed", range(6), ids="seed-{}".format)
def test_after_tiling_only_dma_leaves_the_sram(seed: int) -> None:
    _each_tiled(seed, _check_spaces, limit=4)


def _check_spaces(graph: Graph, _: int) -> None:
    for task in _tasks(graph):
        if not isinstance(task, DmaIn | DmaOut):
            assert {buffer_type(v).place.space for v in task.inputs} == {Space.SRAM}
