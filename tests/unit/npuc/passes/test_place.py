"""Placement beyond what filecheck shows: slots whose turns meet in time, not in ring order."""

from __future__ import annotations

from pathlib import Path

from npuabi.target import load_target
from npuc.frontend.text import parse_file
from npuc.npu.regions import geometry
from npuc.npu.tasks import BufferOp, buffer_type
from npuc.passes.context import PassContext
from npuc.passes.manager import PassManager
from npuc.passes.place import Place
from npuc.passes.schedule import Schedule
from npuc.passes.tile import Tile

TILED = Path(__file__).parents[3] / "filecheck" / "passes" / "tile.npu"


def test_a_slot_is_not_laid_over_one_that_is_still_being_stored() -> None:
    graph = parse_file(TILED)
    context = PassContext(target=load_target("tiny"))
    PassManager([Tile(), Schedule(), Place()]).run(graph, context)
    slots = [op.result for op in graph.ops if isinstance(op, BufferOp) and op.role == "slot"]
    places = {v.name: buffer_type(v) for v in slots}
    first, second = places["y.out"], places["y.out_2"]
    starts = [b.place.offset or 0 for b in (first, second)]
    assert abs(starts[0] - starts[1]) >= geometry(first).extent
