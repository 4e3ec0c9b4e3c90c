"""Runs quantised ops through the compiler and the emulated firmware, for comparison with peers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.driver import Options, compile_graph
from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.interpreter import evaluate
from npuc.ir.types import Quant, TensorType
from npufw.boot import boot
from npufw.engine import Engine

__all__ = ["activation", "bias_of", "both", "codes", "constant", "parameters"]


def parameters(rng: np.random.Generator, low: float, high: float) -> Quant:
    """Return a float32 scale, log-uniform in [low, high], and a zero point, often an extreme."""
    scale = np.float32(np.exp(rng.uniform(np.log(low), np.log(high))))
    zero_point = int(rng.choice([-128, 127, 0, *rng.integers(-128, 128, 5)]))
    return Quant.per_tensor(float(scale), zero_point)


def codes(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Return int8 codes, one in eight of them an extreme."""
    made = rng.integers(-128, 128, tuple(shape))
    extreme = rng.integers(0, 8, tuple(shape)) == 0
    return np.where(extreme, rng.choice([-128, 127], tuple(shape)), made).astype(np.int8)


def activation(name: str, shape: Sequence[int], quant: Quant) -> Value:
    """Return an int8 input of that name."""
    return Value(name, TensorType(tuple(shape), DType.I8, quant))


def constant(name: str, values: Array, quant: Quant) -> Value:
    """Return int8 weights with their numbers."""
    return Const.of(values, TensorType(values.shape, DType.I8, quant), name=name).result


def bias_of(values: Array) -> Value:
    """Return an int32 bias with its numbers."""
    return Const.of(values, TensorType(values.shape, DType.I32), name="b").result


def both(
    op: Op, inputs: dict[str, Array], rounding: Rounding, *before: Op, emulate: bool = True
) -> list[Array]:
    """Return what the integer reference and the emulated firmware make of *inputs*.

    *op* is the last of the graph; *before* are the ops that it reads, besides constants. Without
    *emulate* the reference alone: compiling takes most of a small case's time.
    """
    graph = Graph("peer")
    for each in (*before, op):
        each.verify()
        for value in each.inputs:
            if isinstance(value.owner, Const) and value.owner.graph is None:
                graph.append(value.owner)
            elif value.owner is None and value not in graph.arguments:
                graph.arguments.append(value)
        graph.append(each)
    graph.outputs = [op.result]
    (reference,) = evaluate(graph, inputs, rounding).values()
    if not emulate:
        return [reference]
    done = compile_graph(graph, Options(rounding=rounding.name.lower()))
    (found,) = Engine(boot(done.blob, done.target)).run(inputs).values()
    return [reference, found]
