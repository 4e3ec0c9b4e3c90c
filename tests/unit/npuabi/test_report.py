"""The cost report: cycles that sum, and SRAM bytes that are really in use."""

from __future__ import annotations

import io
from dataclasses import replace

from npuabi.cycles import works_of
from npuabi.report import BOUNDS, live_sram_bytes, summarise
from npuabi.report_text import print_costs
from npuabi.simulate import simulate
from tests.builders import EDGE
from tests.unit.npufw.programs import SHAPE, rescaler


def test_the_cycles_of_the_layers_sum_to_those_of_the_program() -> None:
    program = rescaler().builder.build()
    timeline = simulate(works_of(program.tensors, program.toas, EDGE), EDGE)
    cost = summarise(program, timeline, EDGE)
    assert cost.cycles == timeline.cycles == sum(layer.cycles for layer in cost.layers)
    assert cost.descriptors == len(program.tensors) + len(program.toas)
    assert {layer.bound for layer in cost.layers} <= set(BOUNDS)
    assert cost.layers[0].dataflow == "vector"
    assert cost.time_ms == cost.cycles / 1e6
    assert set(cost.as_dict()["stalls"]) == set(timeline.stalls)


def test_live_bytes_are_those_read_later_or_touched_now() -> None:
    # plain (210 bytes, rows of 7) -> bricks -> half (672 bytes: 42 bricks of 16) -> done, with 64
    # bytes of parameters live until RESCALE, where two brick tensors and the parameters meet.
    program = rescaler().builder.build()
    bricks = SHAPE[0] * SHAPE[2] * SHAPE[3] * 16
    assert live_sram_bytes(program.toas, program.tensors, EDGE) == 2 * bricks + 64


def test_a_very_long_table_ends_with_the_number_of_rows_left_out() -> None:
    program = rescaler().builder.build()
    timeline = simulate(works_of(program.tensors, program.toas, EDGE), EDGE)
    cost = summarise(program, timeline, EDGE)
    shown = io.StringIO()
    print_costs(replace(cost, layers=cost.layers[:1] * 1_200), shown)
    assert "and 700 more ops: --json lists all\n" in shown.getvalue()
    assert len(shown.getvalue().splitlines()) < 520


def test_a_program_without_sram_tensors_uses_none() -> None:
    assert live_sram_bytes([], [], EDGE) == 0
