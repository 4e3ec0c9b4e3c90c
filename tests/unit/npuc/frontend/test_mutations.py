"""Damaged graph text at every level: a clear error or a graph, never another exception."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from npuc.diagnostics import CompileError
from npuc.frontend.text import parse_text
from npuc.ir.core import Graph
from npuc.ir.printer import print_graph
from npuc.ir.verifier import verify
from npuc.passes import PIPELINE
from npuc.passes.context import PassContext

TEXT = """graph @conv_bn_relu(%image: tensor<1x3x16x16xf32>) {
  %w     = const random(seed = 3, std = 0.5) : tensor<16x3x3x3xf32>
  %gamma = const random(seed = 7, mean = 1.0, std = 0.05) : tensor<16xf32>
  %beta  = const splat(0.1) : tensor<16xf32>
  %c = conv2d(%image, %w) {strides = [1, 1], pads = [1, 1, 1, 1]} : tensor<1x16x16x16xf32>
  %n = batch_norm(%c, %gamma, %beta, %beta, %gamma) {epsilon = 1e-05}
  %y = relu(%n)
  %p, %q = split(%y) {axis = 1, split = [8, 8]}
  %w2 = const random(seed = 4, std = 0.5) : tensor<8x8x3x3xf32>
  %r = conv2d(%p, %w2) {pads = [1, 1, 1, 1]}
  %s = add(%r, %q)
  return %s
}
"""
PIECES = (
    *('%"(){}[]<>,=:x?q\\\n\r\té\0', "-1", "0", "99999999999", "1e99", "inf", "none", "const"),
    *("return", "graph", "//", "tensor", "i8", "npu.buffer()", "dense(", 'hex("', "relu", ""),
)


def levels() -> Iterator[tuple[str, Graph]]:
    """Yield the graph after each pass of a compilation."""
    graph = parse_text(TEXT)
    noise = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    context = PassContext(calibration={"image": noise})
    for step in PIPELINE:
        step().run(graph, context)
        yield step.NAME, graph


def mutated(text: str, seed: int) -> str:
    """Return *text* with up to four pieces put in, some over what stood there."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(text))
        end = start + draw.choice([0, 0, 1, 2, draw.randrange(30)])
        text = text[:start] + draw.choice(PIECES) + text[end:]
    return text


def test_the_graph_after_every_pass_verifies_and_prints_a_fixed_point() -> None:
    for name, graph in levels():
        verify(graph)
        printed = print_graph(graph)
        assert print_graph(parse_text(printed)) == printed, name


@pytest.fixture(scope="module")
def texts() -> list[str]:
    *_, (_, last) = levels()
    return [TEXT, print_graph(last, elide=16)]


@pytest.mark.parametrize("batch", range(8))
def test_damaged_text_is_refused_or_read_and_never_a_traceback(
    texts: list[str], batch: int
) -> None:
    for seed in range(batch * 60, batch * 60 + 60):
        try:
            graph = parse_text(mutated(texts[seed % 2], seed))
        except CompileError:
            continue
        printed = print_graph(graph, elide=16)
        assert print_graph(parse_text(printed), elide=16) == printed, seed
