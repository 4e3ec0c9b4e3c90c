"""Moves that are cut to fit, shuffles of more than four dims, and moves that cost nothing."""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import Opcode, Unit
from npuc.diagnostics import CompileError
from npuc.driver import Options, compile_graph
from npuc.frontend.text import parse_text
from tests.compiled import Built, compiled, differing
from tests.random_graphs import Case

ROUNDINGS, PRECISIONS = ("double", "single", "even"), ("int8", "int16")


def built(text: str, **changes: object) -> Built:
    """Return a compiled graph of one input, with data from a fixed seed."""
    graph = parse_text(text)
    rng = np.random.default_rng(1)
    arrays = {v.name: rng.normal(0.2, 1.5, v.tensor.dims).astype("f4") for v in graph.arguments}
    return compiled(Case(text=text, calibrate=arrays, inputs=arrays), **changes)


def one(shape: str, op: str) -> str:
    constants = ""
    if "%w" in op:
        weights = op.split(" @ ")[1]
        op = op.split(" @ ")[0]
        constants = f"  %w = const random(seed = 3, std = 0.2) : tensor<{weights}xf32>\n"
    return f"graph @g(%x: tensor<{shape}xf32>) {{\n{constants}  %y = {op}\n  return %y\n}}"


CUT = [
    # input, op, SRAM KiB; each is many times as large as the SRAM
    ("1x40x70x30", "transpose(%x) {perm = [0, 2, 3, 1]}", 16),
    ("300x200", "transpose(%x)", 16),
    ("1x48x40x40", "slice(%x) {starts = [-1, -2], ends = [-99, -99], axes = [2, 3], "
     "steps = [-1, -2]}", 8),
    ("1x20x30x30", "pad(%x) {pads = [20, 3, 2, 20], axes = [2, 3], mode = \"reflect\"}", 8),
    ("1x90x30x20", "gather(%x) {indices = [88, 3, -1, 3, 50, 17, 16, 15], axis = 1}", 24),
    ("1x36x30x22", "depth_to_space(%x) {blocksize = 2, mode = \"CRD\"}", 12),
    ("1x64x20x20", "depth_to_space(%x) {blocksize = 2}", 12),
    ("1x19x30x33", "space_to_depth(%x) {blocksize = 3}", 12),
    ("1x18x20x30", "resize(%x) {sizes = [39, 50], axes = [2, 3]}", 4),
    ("1x18x20x30", "resize(%x) {sizes = [39, 50], axes = [2, 3], mode = \"linear\"}", 6),
    ("1x18x20x40", "resize(%x) {scales = [3.0, 0.7], axes = [2, 3], mode = \"cubic\"}", 16),
    ("1x20x15x20", "conv_transpose2d(%x, %w) {strides = [2, 2], pads = [1, 1, 1, 1]} @ 20x17x4x4",
     32),
    ("1x24x16x20", "conv_transpose2d(%x, %w) {strides = [2, 3], group = 24} @ 24x1x3x3", 8),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CUT)))
def test_moves_that_are_cut_keep_their_bits(index: int) -> None:
    shape, op, limit = CUT[index]
    found = built(
        one(shape, op),
        rounding=ROUNDINGS[index % 3],
        precision=PRECISIONS[index % 2],
        target=("edge", "tiny")[index % 2],
        level=1,
        sram_limit_kib=limit,
    )
    assert differing(found) == {}
    kind = op.split("(")[0]
    cut = [t for t in found.image.steps if t.toa.unit in (Unit.VECTOR, Unit.MAC)]
    assert len(cut) > 4, kind


@pytest.mark.parametrize("precision", ["int8", "int16", "fp16"])
def test_a_transpose_of_rows_is_cut_where_whole_rows_go(precision: str) -> None:
    """What a product reads as rows lies plainly; DMA loads whole rows of that."""
    text = """graph @g(%x: tensor<1x12x10x8xf32>) {
      %r = reshape(%x) {shape = [1, 12, 8, 10]}
      %t = transpose(%x) {perm = [0, 1, 3, 2]}
      %u = transpose(%x) {perm = [0, 3, 2, 1]}
      %m = matmul(%r, %x)
      return %t, %u, %m
    }"""
    for limit in (6, 7, 8, 12):
        found = built(text, precision=precision, target="tiny", level=1, sram_limit_kib=limit)
        assert differing(found) == {}


SHUFFLES = [
    # a shuffle of channels; windows of a picture; dims of 1 in the way
    """graph @g(%x: tensor<2x12x4x5xf32>) {
      %r = reshape(%x) {shape = [0, 4, 3, 4, 5]}
      %t = transpose(%r) {perm = [0, 2, 1, 3, 4]}
      %y = reshape(%t) {shape = [0, -1, 4, 5]}
      return %y
    }""",
    """graph @g(%x: tensor<1x8x8x6xf32>) {
      %r = reshape(%x) {shape = [1, 2, 4, 2, 4, 6]}
      %t = transpose(%r) {perm = [0, 1, 3, 2, 4, 5]}
      %y = reshape(%t) {shape = [4, 16, 6]}
      return %y
    }""",
    """graph @g(%x: tensor<2x3x4x5xf32>) {
      %u = unsqueeze(%x) {axes = [1, 5]}
      %t = transpose(%u) {perm = [5, 0, 3, 1, 2, 4]}
      %y = squeeze(%t) {axes = [0, 3]}
      return %y
    }""",
]


@pytest.mark.parametrize("text", SHUFFLES, ids=["channels", "windows", "ones"])
def test_shuffles_of_more_than_four_dims_are_transposes_of_fewer(text: str) -> None:
    found = built(text)
    assert differing(found) == {}
    opcodes = [step.toa.opcode for step in found.image.steps]
    assert opcodes.count(Opcode.TRANSPOSE) == 1


def test_five_dims_that_all_move_are_refused_by_the_limit() -> None:
    text = """graph @g(%x: tensor<2x2x3x4x5xf32>) {
      %y = transpose(%x)
      return %y
    }"""
    with pytest.raises(CompileError, match="at most 4 dims"):
        compile_graph(parse_text(text), Options(calibrate="random"))


FREE = """graph @g(%x: tensor<1x48x6x5xf32>) {
  %a = relu(%x)
  %s = slice(%a) {starts = [16, 1], ends = [48, 4], axes = [1, 2]}
  %p = pad(%s) {pads = [-16, 0], axes = [1]}
  %q = unsqueeze(%p) {axes = [0]}
  %r = squeeze(%q) {axes = [1]}
  %t = gather(%r) {indices = [1], axis = 2, indices_shape = []}
  %y = relu(%t)
  return %y
}"""


def test_ranges_of_whole_bricks_and_dims_of_1_are_looked_at_in_place() -> None:
    found = built(FREE)
    assert differing(found) == {}
    moves = {Opcode.COPY, Opcode.REMAP, Opcode.TRANSPOSE}
    assert not moves & {step.toa.opcode for step in found.image.steps}


def test_a_move_of_whole_bricks_costs_words_and_others_elements() -> None:
    def cycles(op: str) -> int:
        image = built(one("1x64x16x16", op), level=0).image
        kinds = (Opcode.REMAP, Opcode.TRANSPOSE, Opcode.DEPTH_TO_SPACE, Opcode.SPACE_TO_DEPTH)
        return sum(step.toa.cycles for step in image.steps if step.toa.opcode in kinds)

    words, elements = 64 * 16 * 16 // 16, 64 * 16 * 16
    assert cycles("slice(%x) {starts = [-1], ends = [-99], axes = [3], steps = [-1]}") < 3 * words
    assert cycles("slice(%x) {starts = [-1], ends = [-99], axes = [1], steps = [-1]}") >= elements
    assert cycles("transpose(%x) {perm = [0, 1, 3, 2]}") < 3 * words
    assert cycles("transpose(%x) {perm = [0, 2, 1, 3]}") >= elements
    assert cycles("depth_to_space(%x) {blocksize = 2}") < 3 * words
    assert cycles('depth_to_space(%x) {blocksize = 2, mode = "CRD"}') >= elements
    assert cycles("space_to_depth(%x) {blocksize = 2}") < 3 * words


def test_batch_norm_and_relu_go_into_a_transposed_convolution() -> None:
    text = """graph @g(%x: tensor<1x6x4x4xf32>) {
      %w = const random(seed = 3, std = 0.3) : tensor<6x2x3x3xf32>
      %g = const random(seed = 4, mean = 1.0, std = 0.2) : tensor<4xf32>
      %b = const random(seed = 5, std = 0.2) : tensor<4xf32>
      %v = const splat(0.5) : tensor<4xf32>
      %c = conv_transpose2d(%x, %w) {strides = [2, 2], group = 2}
      %n = batch_norm(%c, %g, %b, %b, %v)
      %y = relu(%n)
      return %y
    }"""
    found, apart = built(text), built(text, fuse=False)
    assert differing(found) == {}
    kinds = {step.toa.opcode for step in found.image.steps if step.toa.unit is not Unit.DMA_IN}
    assert kinds == {Opcode.QUANTIZE, Opcode.CONV, Opcode.DEQUANTIZE, Opcode.DMA_OUT}
    step = found.compilation.graph.returned[0].owner
    assert step is not None
    scale = step.inputs[0].tensor.quant
    assert scale is not None
    error = np.abs(found.run()["y"] - apart.run()["y"])
    assert error.max() <= 4 * scale.scale
