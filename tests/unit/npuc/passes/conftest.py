"""What the pass tests share: graphs from text, passes on them, and runs of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import Rounding
from npuc.frontend.text import parse_text
from npuc.ir.core import Graph, Op
from npuc.ir.interpreter import evaluate
from npuc.ir.verifier import verify
from npuc.passes.calibrate import Calibrate
from npuc.passes.context import PassContext
from npuc.passes.explicit_broadcast import ExplicitBroadcast
from npuc.passes.fold_batch_norm import FoldBatchNorm
from npuc.passes.fold_constants import FoldConstants
from npuc.passes.freeze_fake_quant import FreezeFakeQuant
from npuc.passes.fuse_activation import FuseActivation
from npuc.passes.fuse_residual import FuseResidual
from npuc.passes.layout import ChooseLayout
from npuc.passes.legalise import Legalise
from npuc.passes.lower_batch_norm import LowerBatchNorm
from npuc.passes.quantise import Quantise

Array = NDArray[Any]

PASSES = (
    ExplicitBroadcast(),
    FreezeFakeQuant(),
    FoldConstants(),
    FoldBatchNorm(),
    FuseActivation(),
    LowerBatchNorm(),
    Calibrate(),
    Quantise(),
    FuseResidual(),
    ChooseLayout(),
    Legalise(),
)


class Bench:
    """Runs passes on graph text; *context* is what they are given."""

    def __init__(self) -> None:
        self.context = PassContext()

    def passed(self, text: str, *names: str) -> Graph:
        """Return the graph after the named passes, or after all of them."""
        graph = parse_text(text)
        for step in PASSES:
            if not names or step.NAME in names:
                step.run(graph, self.context)
                verify(graph)
        return graph

    def calibrate(self, *, percentile: float = 100.0, **data: Array) -> None:
        """Set the calibration data of the following passes."""
        self.context = PassContext(calibration=data, percentile=percentile)

    @staticmethod
    def run(graph: Graph, rounding: Rounding = Rounding.DOUBLE, **inputs: Array) -> list[Array]:
        """Return the graph's outputs, in order."""
        found = evaluate(graph, inputs, rounding)
        return [np.asarray(found[v.name]) for v in graph.outputs]

    @staticmethod
    def ops(graph: Graph) -> list[str]:
        """Return the op names in order, constants left out."""
        return [op.NAME for op in graph.ops if op.NAME != "const"]

    @staticmethod
    def op(graph: Graph, name: str) -> Op:
        """Return the only op of that name."""
        (found,) = (op for op in graph.ops if name == op.NAME)
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def noise() -> Callable[..., Array]:
    """Seeded float32 noise of any shape, another one at each call."""
    generator = np.random.default_rng(2024)

    def draw(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(np.float32)

    return draw


@pytest.fixture(scope="session")
def bench_once() -> Bench:
    """A bench for hypothesis, whose examples share one fixture."""
    return Bench()
