"""Every op's examples, compiled and emulated: what the firmware gives is what the reference gives.

A new op is under test the moment it is registered: one graph holds all its examples. The blob's
text assembles to the blob.
"""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.driver import Compilation, Options, compile_graph
from npuc.ir.const import Const
from npuc.ir.core import REGISTRY, Array, Graph, Op, Value
from npuc.ir.types import TensorType
from npufw.boot import boot
from npufw.engine import Engine
from tests.compiled import comes_back, off

NAMES = sorted(name for name in REGISTRY if not name.startswith("npu.") and name != "const")
SAMPLES = 3


def graph_of(name: str, rng: np.random.Generator) -> Graph:
    """Return a graph of all examples of an op; activations are inputs, parameters constants."""
    graph = Graph(name)
    for number, example in enumerate(REGISTRY[name].examples()):
        made = {v: operand(graph, example, v, f"{number}_{v.name}", rng) for v in example.inputs}
        operands = [None if v is None else made[v] for v in example.operands]
        types = [v.type for v in example.results]
        names = [f"y{number}_{i}" for i in range(len(types))]
        op = type(example)(operands, example.attributes, result_types=types, names=names)
        graph.outputs += graph.append(op).results
    return graph


def operand(graph: Graph, op: Op, value: Value, name: str, rng: np.random.Generator) -> Value:
    if value in op.activations:
        graph.arguments.append(Value(name, value.type))
        return graph.arguments[-1]
    # Positive, so that it may be a variance too.
    numbers = rng.uniform(0.1, 1.0, value.tensor.dims).astype(np.float32)
    return graph.append(Const.of(numbers, TensorType(numbers.shape), name=name)).result


def inputs_of(graph: Graph, rng: np.random.Generator, copies: int = 1) -> dict[str, Array]:
    """Return arrays for the arguments, *copies* samples behind each other."""
    arrays = {}
    for value in graph.arguments:
        dims = value.tensor.dims
        shape = (copies * dims[0], *dims[1:]) if dims else (copies,) * (copies > 1)
        made = rng.normal(0.0, 2.0, shape) if value.tensor.dtype is DType.F32 else None
        codes = rng.integers(-128, 128, shape)
        arrays[value.name] = np.asarray(codes if made is None else made, value.tensor.numpy)
    return arrays


def compiled(name: str, rounding: Rounding, precision: str) -> tuple[Compilation, dict[str, Array]]:
    rng = np.random.default_rng(0)
    graph = graph_of(name, rng)
    calibrate, inputs = inputs_of(graph, rng, SAMPLES), inputs_of(graph, rng)
    options = Options(
        rounding=rounding.name.lower(), calibrate=calibrate, level=0, precision=precision
    )
    return compile_graph(graph, options), inputs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["int8", "int16", "float"])
def test_the_emulator_gives_what_the_reference_gives(precision: str, name: str) -> None:
    number = NAMES.index(name)
    if precision == "float":
        precision = ("fp16", "fp32")[number % 2]
    rounding = list(Rounding)[(number + (precision == "int16")) % 3]
    done, inputs = compiled(name, rounding, precision)
    assert off(done, inputs, Engine(boot(done.blob, done.target)).run(inputs)) == {}
    comes_back(done.blob)
