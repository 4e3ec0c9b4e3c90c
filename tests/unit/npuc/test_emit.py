"""Records: one descriptor for equal tensors, a source for each TOA, names and places that hold."""

from __future__ import annotations

from typing import Any

import pytest

from npuabi.enums import DType, Space
from npuabi.program import symbol_at
from npuabi.records import NO_TENSOR
from npufw.boot import Image
from tests.compiled import Built, built

_ADDED = {
    "quantize",
    "dequantize",
    "cast",
    "to_layout",
    "clip",
    "expand",
    "conv2d",
    "dense",
    "identity",
}
"""Kinds of ops that passes add at the place of another op."""


@pytest.fixture(scope="module", params=(0, 2, 3, 4, 5, 7), ids="seed-{}".format)
def found(request: pytest.FixtureRequest) -> Built:
    return built(request.param, ops=6, sram_limit_kib=8)


def _program(found: Built) -> Any:
    image: Image = found.image
    return image.program


def test_no_two_tensor_records_are_equal_and_each_is_used(found: Built) -> None:
    program = _program(found)
    assert len(set(program.tensors)) == len(program.tensors)
    used = {i for toa in program.toas for i in toa.tensors if i != NO_TENSOR}
    used |= {entry.tensor for entry in program.interface}
    used |= {index for state in program.states for index in (state.tensor, state.initial)}
    assert used == set(range(len(program.tensors)))


def test_each_source_is_a_line_of_the_text_that_makes_or_becomes_it(found: Built) -> None:
    program = _program(found)
    lines = found.case.text.splitlines()
    assert {toa.op for toa in program.toas} == set(range(len(program.sources)))
    for source in program.sources:
        assert symbol_at(program.symbols, source.file) == "<text>"
        assert 1 <= source.line <= len(lines)
        made = symbol_at(program.symbols, source.kind)
        made = "state " if made == "update" else f"{made}("
        assert made.rstrip("(") in _ADDED or made in lines[source.line - 1]


def test_the_macs_of_the_sources_add_up_to_the_header(found: Built) -> None:
    program = _program(found)
    assert sum(s.macs for s in program.sources) == program.header.macs


def test_interface_names_shapes_and_dtypes_are_those_of_the_graph(found: Built) -> None:
    program, graph = _program(found), found.case.graph()
    values = [*graph.inputs, *graph.returned]
    for value, entry in zip(values, program.interface, strict=True):
        assert symbol_at(program.symbols, entry.symbol) == value.name
        assert entry.shape[: entry.rank] == value.tensor.dims
        assert entry.dtype is value.tensor.dtype
        tensor = program.tensors[entry.tensor]
        assert tensor.space is Space.ARENA
        assert tensor.base % found.compilation.target.dma_alignment == 0


def test_real_tensors_carry_no_quantisation(found: Built) -> None:
    for tensor in _program(found).tensors:
        assert tensor.dtype is DType.I8 or (tensor.scale, tensor.zero_point) == (0.0, 0)
