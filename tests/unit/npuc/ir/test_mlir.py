"""MLIR's generic form: xdsl-opt, which knows none of our ops, reads it and prints it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, DenseIntOrFPElementsAttr, StringAttr
from xdsl.dialects.func import Func, FuncOp
from xdsl.parser import Parser
from xdsl.xdsl_opt_main import xDSLOptMain

from npuabi.enums import DType
from npuabi.target import load_target
from npuc.frontend.source import load_source
from npuc.frontend.text import parse, parse_text
from npuc.ir.const import Const
from npuc.ir.core import REGISTRY, Array, Graph, Value
from npuc.ir.mlir import print_mlir
from npuc.ir.types import Quant, TensorType
from npuc.passes import passes_by_name
from npuc.passes.context import PassContext
from npuc.passes.manager import PassManager
from npuc.passes.tied import float_activations
from tools.check_models import MOST_MACS, models

SMALL = models(MOST_MACS)
LARGE = [path for path in models() if path not in SMALL]
MOST_CHARACTERS = 100_000
"""Of a text that goes through xdsl twice: it takes seconds for a million."""

STEPS = (
    "bind_shapes,infer_types,explicit_broadcast,freeze_fake_quant,fold_constants,fold_batch_norm,"
    "fuse_activation,lower_batch_norm",
    "calibrate,quantise",
    "fuse_residual,layout,legalise",
    "lower",
    "tile,schedule,place,plan_memory,depend",
)


def through_xdsl(text: str, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what ``xdsl-opt --allow-unregistered-dialect`` makes of *text*."""
    path.write_text(text)
    tool: Any = xDSLOptMain(args=["--allow-unregistered-dialect", str(path)])
    tool.run()
    return capsys.readouterr().out


def function_of(graph: Graph) -> FuncOp:
    """Return the printed *graph* as xdsl has it."""
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    (function,) = Parser(context, print_mlir(graph)).parse_module().body.ops
    assert isinstance(function, FuncOp)
    return function


def given_parameters(graph: Graph) -> None:
    """Give every activation parameters: what they are does not matter here."""
    for value in float_activations(graph):
        value.type = value.tensor.with_quant(DType.F32, Quant.per_tensor(0.05, -3))


def stages_of(model: Path) -> Iterator[str]:
    """Yield a model as it is printed at each level.

    It is tiled once and not planned until it fits, so the SRAM has as many banks as that takes.
    """
    source = load_source(model)
    roomy = replace(load_target("edge"), banks=64)
    graph, context = parse(source), PassContext(folder=source.folder, target=roomy)
    yield print_mlir(graph)
    for names in STEPS:
        if names.startswith("calibrate"):
            given_parameters(graph)
        PassManager(passes_by_name(names)).run(graph, context)
        yield print_mlir(graph, elide=16)


def read_and_printed(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = through_xdsl(text, folder / "in.mlir", capsys)
    assert once.count('"npu') == text.count('"npu') > 0
    if len(once) < MOST_CHARACTERS:
        assert through_xdsl(once, folder / "out.mlir", capsys) == once


@pytest.mark.parametrize("model", SMALL, ids=lambda path: path.stem)
def test_xdsl_reads_and_prints_every_level_of_a_small_model(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in stages_of(model):
        read_and_printed(text, tmp_path, capsys)


@pytest.mark.parametrize("model", LARGE, ids=lambda path: path.stem)
def test_xdsl_reads_and_prints_the_source_of_a_large_model(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_and_printed(next(stages_of(model)), tmp_path, capsys)


@pytest.mark.long
@pytest.mark.parametrize("model", LARGE, ids=lambda path: path.stem)
def test_xdsl_reads_and_prints_every_level_of_a_large_model(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in stages_of(model):
        read_and_printed(text, tmp_path, capsys)


@pytest.mark.parametrize("name", sorted(n for n in REGISTRY if "." not in n))
def test_xdsl_reads_the_examples_of_every_op(name: str) -> None:
    for example in REGISTRY[name].examples():
        graph = Graph("example", list(dict.fromkeys(example.inputs)))
        graph.append(example)
        graph.outputs = list(example.results)
        (read, _return) = function_of(graph).body.block.ops
        assert read.attributes["op_name__"] == StringAttr(f"npuc.{name}")
        assert len(read.operands) == len(example.inputs)


@pytest.mark.parametrize("size", [0, 1, 7, 200])
@pytest.mark.parametrize("dtype", list(DType))
def test_every_number_of_a_constant_arrives_as_it_is(size: int, dtype: DType) -> None:
    octets = np.random.default_rng(size).integers(0, 256, size * dtype.size, np.uint8)
    array: Array = octets.view(dtype.numpy).reshape(1, size)
    if array.dtype.kind == "f":
        array = np.where(np.isfinite(array), array, array.dtype.type(1e-7))
    graph = Graph("g", [Value("x", TensorType((1,)))])
    const = graph.append(Const.of(array, TensorType((1, size), dtype), name="c"))
    graph.outputs = [const.result]
    (read, _return) = function_of(graph).body.block.ops
    value = read.attributes["value"]
    assert isinstance(value, DenseIntOrFPElementsAttr)
    assert np.array_equal(np.array(value.get_values(), array.dtype).reshape(1, size), array)


def test_names_and_strings_that_mlir_cannot_read_become_attributes() -> None:
    text = (
        'graph @"net/1"(%"in:0": tensor<1x4xf32>) attributes {calibration = "a\\"\\\\\u00e9"} {\n'
        '  %"a b" = relu(%"in:0")\n  %a_b = clip(%"a b") {min = -inf, max = 1e-05}\n'
        "  return %a_b\n}\n"
    )
    graph = parse_text(text)
    printed = print_mlir(graph)
    function = function_of(graph)
    assert function.sym_name == StringAttr("net/1")
    assert '{npu.name = "in:0"}' in printed
    assert 'npu.names = ["a b"]' in printed
    assert "%a_b = " in printed
    assert "{min = 0xFFF0000000000000 : f64, max = 1.0e-05 : f64}" in printed
    assert 'npu.calibration = "a\\22\\5C\\C3\\A9"' in printed


def test_a_state_is_an_argument_and_a_result_that_say_so() -> None:
    text = (
        "graph @g(%x: tensor<1x4xf32>) {\n"
        '  %s = state "sum" init = splat(0.5) : tensor<1x4xf32>\n'
        '  %y = add(%x, %s)\n  update "sum", %y\n  return %y\n}\n'
    )
    function = function_of(parse_text(text))
    assert function.arg_attrs is not None
    assert [str(a.data.get("npu.state")) for a in function.arg_attrs] == ["None", '"sum"']
    assert '{npu.name = "y", npu.state = "sum"}' in print_mlir(parse_text(text))
    assert "npu.init = {splat = 0.5 : f64}" in print_mlir(parse_text(text))
