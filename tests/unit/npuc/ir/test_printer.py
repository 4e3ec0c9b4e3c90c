"""The printer: what it prints parses back to the same, and prints the same again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuabi.enums import DType
from npuabi.text import UNPRINTABLE
from npuc.frontend.text import parse_text
from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Value
from npuc.ir.printer import print_graph
from npuc.ir.types import TensorType
from npuc.ops.relu import Relu

HEAD = "graph @g(%x: tensor<1x4xf32>) {\n"
TAIL = "\n  return %y\n}\n"


def fixed(text: str) -> str:
    """Return the print of *text*, proven a fixed point."""
    printed = print_graph(parse_text(text))
    assert print_graph(parse_text(printed)) == printed
    return printed


def of_constant(array: Array, dtype: DType) -> Graph:
    graph = Graph("g", [Value("x", TensorType((1,)))])
    tensor = TensorType(array.shape, dtype)
    graph.outputs = [graph.append(Const.of(array, tensor, name="c")).result]
    return graph


def reread(graph: Graph) -> Array:
    (op,) = parse_text(print_graph(graph)).ops
    assert isinstance(op, Const)
    return op.value()


@pytest.mark.parametrize(
    "line",
    [
        "%y = relu(%x) : tensor<1x4xf32>",
        "%y = clip(%x) {min = -inf, max = 6.0} : tensor<1x4xf32>",
        "%y = clip(%x) {max = 1e-05} : tensor<1x4xf32>",
        "%y = quantize(%x) : tensor<1x4xi8, q<scale = 0.05, zp = -3>>",
        '%y = relu(%x) : tensor<1x4xf32>\n  %"a b" = relu(%y) : tensor<1x4xf32>',
        "%y = const random(seed = 7, mean = 1.0, std = 0.05) : tensor<16xf32>",
        "%y = const splat(0.1) : tensor<16xf32>",
        "%y = const dense([[1.0, 0.1], [-0.0, 1e-40]]) : tensor<2x2xf32>",
        "%y = const dense(5) : tensor<i8>",
        '%y = const hex("") : tensor<0x3xf32>',
        '%y = const elided("crc32:89abcdef") : tensor<9xf32>',
    ],
)
def test_a_printed_line_is_printed_as_it_stands(line: str) -> None:
    text = f"{HEAD}  {line}{TAIL}"
    assert fixed(text) == text


def test_defaults_are_left_out_and_types_filled_in() -> None:
    printed = fixed(f"{HEAD}%y = flatten(%x) {{axis = 1}}{TAIL}")
    assert "  %y = flatten(%x) : tensor<1x4xf32>\n" in printed


def test_an_operand_left_out_in_the_middle_is_printed_as_none() -> None:
    text = (
        "graph @g(%x: tensor<1x1x4x4xi8, q<scale = 0.5, zp = 0>>) {\n"
        "  %w = const splat(1) : tensor<1x1x1x1xi8, q<axis = 0, scale = [0.5], zp = [0]>>\n"
        "  %y = conv2d(%x, %w, none, %x) {inner_scale = 0.5, inner_zp = 0}"
        " : tensor<1x1x4x4xi8, q<scale = 0.5, zp = 0>>\n"
        "  return %y\n}\n"
    )
    assert "conv2d(%x, %w, none, %x)" in fixed(text)


def test_unnamed_values_are_numbered_and_equal_names_told_apart() -> None:
    graph = Graph("g", [Value("x", TensorType((1,)))])
    value = graph.arguments[0]
    for name in ("", "0", "", "a", "a", "a_1", "a"):
        value = graph.append(Relu([value], names=[name])).result
    graph.outputs = [value]
    names = [line.split()[0] for line in print_graph(graph).splitlines()[1:-2]]
    assert names == ["%1", "%0", "%2", "%a", "%a_2", "%a_1", "%a_3"]
    assert [v.name for op in graph.ops for v in op.results] == ["", "0", "", "a", "a", "a_1", "a"]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float32_is_read_back_bit_for_bit(values: list[float]) -> None:
    array = np.array(values, np.float32)
    assert reread(of_constant(array, DType.F32)).tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.F16])
@pytest.mark.parametrize("count", [1, 64, 65, 1000])
def test_constants_of_each_type_and_size_are_read_back(dtype: DType, count: int) -> None:
    array = np.arange(-(count // 2), count - count // 2).astype(dtype.numpy)
    found = reread(of_constant(array, dtype))
    assert (found.dtype, found.tobytes()) == (array.dtype, array.tobytes())


def test_a_large_constant_is_elided_on_demand_only() -> None:
    graph = of_constant(np.arange(100, dtype=np.float32), DType.F32)
    assert 'const hex("' in print_graph(graph)
    assert 'const elided("crc32:' in print_graph(graph, elide=99)
    assert 'const hex("' in print_graph(graph, elide=100)


@given(
    st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda s: not UNPRINTABLE.search(s))
)
def test_any_name_is_read_back(name: str) -> None:
    graph = Graph(name, [Value(name, TensorType((1,)))])
    graph.outputs = list(graph.arguments)
    found = parse_text(print_graph(graph))
    assert (found.name, found.outputs[0].name) == (name, name)
