"""Functions in fp32 and fp16: the emulator is within the stated bound of the real function.

docs/numerics.md states it: 2^-20 of the result or of the operand, whichever is larger (no operand
counts as more than 1), and half a step of the output's element type.
"""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.driver import Options, compile_graph
from npuc.ir.core import REGISTRY, Array, Graph, Value
from npuc.ir.types import TensorType
from npuc.ops.pointwise import Unary
from npufw.boot import boot
from npufw.engine import Engine

CASES = {
    f"{name}_{number}": (cls, dict(variant))
    for name, cls in sorted(REGISTRY.items())
    if issubclass(cls, Unary)
    for number, variant in enumerate(cls.VARIANTS)
}


def samples(kind: DType) -> Array:
    """Return operands of many sizes, and both zeros."""
    rng = np.random.default_rng(1)
    parts = [rng.normal(0, s, 300) for s in (0.01, 1.0, 4.0, 20.0)]
    return np.concatenate([*parts, [0.0, -0.0]]).astype(kind.numpy)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_functions_are_within_the_stated_bound(precision: str) -> None:
    kind = DType.F16 if precision == "fp16" else DType.F32
    x = samples(kind)
    graph = Graph("all", [Value("x", TensorType(x.shape, kind))])
    for name, (cls, attributes) in CASES.items():
        op = graph.append(cls(graph.arguments, attributes, names=[name]))
        graph.outputs.append(op.result)
    with np.errstate(all="ignore"):
        reals = {
            name: op.reference([x], Rounding.DOUBLE)[0]
            for name, op in zip(CASES, graph.ops, strict=True)
        }
    done = compile_graph(graph, Options(precision=precision, level=0))
    found = Engine(boot(done.blob, done.target)).run({"x": x})
    for name, real in reals.items():
        got = found[name].astype(np.float64)
        limits = np.finfo(kind.numpy)
        known = np.isfinite(real) & (np.abs(real) < float(limits.max))
        assert np.array_equal(np.isnan(got), np.isnan(real)), name
        size = np.maximum(np.abs(real), np.minimum(np.abs(x.astype(np.float64)), 1.0))
        half = np.spacing(np.abs(real[known]).astype(kind.numpy)).astype(np.float64) / 2
        bound = size[known] * 2.0**-20 + half
        assert (np.abs(got[known] - real[known]) <= bound).all(), name
