"""Odd but legal graphs work bit for bit, and what cannot fit is refused with who holds what."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from npuabi.target import load_target
from npuc.diagnostics import CompileError
from npuc.driver import Options, compile_graph
from npuc.frontend.text import parse_text
from tests.compiled import compiled, differing
from tests.random_graphs import Case

_KERNEL = "%w = const random(seed = 1, std = 0.3)"

ODD = {
    "rows of windows wholly in padding": f"""
graph @g(%x: tensor<1x20x6x5xf32>) {{
  {_KERNEL} : tensor<18x20x1x1xf32>
  %y = conv2d(%x, %w) {{pads = [7, 0, 9, 6]}}
  return %y
}}""",
    "windows wholly in padding, step 2, dilated": f"""
graph @g(%x: tensor<2x17x3x3xf32>) {{
  {_KERNEL} : tensor<5x17x2x2xf32>
  %y = conv2d(%x, %w) {{pads = [9, 7, 7, 9], strides = [2, 3], dilations = [3, 2]}}
  return %y
}}""",
    "depthwise windows wholly in padding": f"""
graph @g(%x: tensor<1x40x3x3xf32>) {{
  {_KERNEL} : tensor<40x1x2x2xf32>
  %y = conv2d(%x, %w) {{pads = [9, 9, 9, 9], group = 40}}
  return %y
}}""",
    "one window that sees padding only": f"""
graph @g(%x: tensor<1x3x5x5xf32>) {{
  {_KERNEL} : tensor<4x3x1x1xf32>
  %y = conv2d(%x, %w) {{pads = [4, 4, 0, 0], strides = [100, 100]}}
  return %y
}}""",
    "a kernel larger than the image": f"""
graph @g(%x: tensor<1x17x3x2xf32>) {{
  {_KERNEL} : tensor<16x17x7x5xf32>
  %y = conv2d(%x, %w) {{pads = [3, 2, 3, 2]}}
  %m = max_pool2d(%y) {{kernel_shape = [5, 4], pads = [4, 3, 4, 3]}}
  return %y, %m
}}""",
    "steps larger than the kernel": f"""
graph @g(%x: tensor<1x16x20x20xf32>) {{
  {_KERNEL} : tensor<16x16x2x2xf32>
  %y = conv2d(%x, %w) {{strides = [5, 7]}}
  %p = avg_pool2d(%x) {{kernel_shape = [1, 2], strides = [4, 6], ceil_mode = 1}}
  return %y, %p
}}""",
    "padded rows that are cut into others": """
graph @g(%x: tensor<3x1x17x16xf32>) {
  %y = reshape(%x) {shape = [3, 1, 16, 17]}
  %m = matmul(%x, %y)
  return %m, %y
}""",
    "half the channels of two images, reshaped": """
graph @g(%x: tensor<2x32x4x6xf32>) {
  %r = relu(%x)
  %a, %b = split(%r) {axis = 1, split = [16, 16]}
  %y = reshape(%b) {shape = [2, 16, 6, 4]}
  %z = max_pool2d(%y) {kernel_shape = [2, 2]}
  return %z, %a
}""",
    "three images that are flattened": f"""
graph @g(%x: tensor<3x19x4x5xf32>) {{
  {_KERNEL} : tensor<7x380xf32>
  %f = flatten(%x)
  %y = dense(%f, %w)
  %z = flatten(%x) {{axis = 0}}
  %t = flatten(%x) {{axis = 2}}
  return %y, %z, %t
}}""",
    "images that change places with channels": """
graph @g(%x: tensor<3x4x5x6xf32>) {
  %a = reshape(%x) {shape = [4, 3, 6, 5]}
  %b = reshape(%x) {shape = [360]}
  %c = reshape(%a) {shape = [1, 360, 1]}
  return %a, %b, %c
}""",
    "an output that is an input, and one in the middle": """
graph @g(%x: tensor<2x5x3x3xf32>) {
  %a = relu(%x)
  %b = add(%a, %x)
  return %x, %a, %b
}""",
    "a softmax along each axis": """
graph @g(%x: tensor<2x33x7x18xf32>) {
  %a = softmax(%x) {axis = 1}
  %b = softmax(%x) {axis = 2}
  %c = softmax(%x) {axis = 3}
  return %a, %b, %c
}""",
    "a softmax that is stored with other parameters": """
graph @g(%x: tensor<1x33xf32>) {
  %s = softmax(%x)
  %q = quantize(%s) {scale = 0.5, zero_point = 83}
  %d = dequantize(%q)
  %y = relu(%d)
  return %y
}""",
    "two expands of one value that gain a dim": """
graph @g(%x: tensor<4x3xf32>, %z: tensor<2x4x3xf32>) {
  %a = add(%x, %z)
  %b = expand(%x) {shape = [2, 4, 3]}
  return %a, %b
}""",
}


def _case(text: str) -> Case:
    numbers = np.random.default_rng(1)
    dims = {a.name: a.tensor.dims for a in parse_text(text).arguments}
    made = {n: numbers.normal(0, 1, d).astype(np.float32) for n, d in dims.items()}
    return Case(text.strip(), made, made)


@pytest.mark.parametrize(("limit", "rounding"), [(None, "even"), (3, "double"), (6, "single")])
@pytest.mark.parametrize("text", ODD.values(), ids=list(ODD))
def test_odd_graphs_are_bit_exact(text: str, limit: int | None, rounding: str) -> None:
    found = compiled(_case(text), target="tiny", rounding=rounding, sram_limit_kib=limit)
    assert differing(found) == {}


def _refusal(text: str, **changes: object) -> str:
    case = _case(text)
    options = Options(calibrate=case.calibrate, **changes)  # type: ignore[arg-type]
    with pytest.raises(CompileError) as caught:
        compile_graph(case.graph(), options)
    return str(caught.value)


@pytest.mark.parametrize("level", [0, 3])
def test_a_graph_that_cannot_fit_names_who_holds_what_and_what_would_help(level: int) -> None:
    text = _refusal(
        """
graph @g(%x: tensor<1x33x9x9xf32>) {
  %a, %b = split(%x) {axis = 1, split = [5, 28]}
  %c = concat(%b, %a) {axis = 1}
  return %c
}""",
        target="edge",
        sram_limit_kib=2,
        level=level,
    )
    found = re.search(r"^<text>:(\d+):\d+: error: (\w+) %\w+ needs at least (\d+) bytes", text)
    assert found
    assert int(found[3]) > 0
    assert re.search(r"beside %\w+ \d+ bytes; the limit is 2048 bytes: use a target with", text)


@pytest.mark.parametrize(
    ("op", "shape", "row", "pieces"),
    [
        ("layer_norm(%x, %g, %g) {axis = 1}", "2x40000", 40000, "gamma and beta 320000"),
        ("instance_norm(%x, %c, %c)", "1x4x200x200", 40000, "input 640000, gamma and beta 128"),
        ("group_norm(%x, %c, %c) {num_groups = 2}", "1x4x200x200", 80000, "output 640000"),
        ("argmax(%x) {axis = 1}", "1x200000", 200000, "input 200000, output"),
    ],
)
def test_a_row_beyond_the_sram_is_named_with_its_pieces_and_what_helps(
    op: str, shape: str, row: int, pieces: str
) -> None:
    text = _refusal(
        f"""
graph @g(%x: tensor<{shape}xf32>) {{
  %g = const splat(1.0) : tensor<40000xf32>
  %c = const splat(1.0) : tensor<4xf32>
  %y = {op}
  return %y
}}""",
        target="tiny",
    )
    kind = op.partition("(")[0]
    assert re.match(rf"<text>:4:\d+: error: {kind} %\w+ needs at least \d+ bytes of SRAM", text)
    assert f"as its rows of {row:,} elements are never cut (" in text
    assert pieces in text
    assert "the limit is 131072 bytes: use a target with more SRAM" in text
    assert text.splitlines()[0].endswith("a higher --sram-limit, smaller rows")


@pytest.mark.parametrize("text", ODD.values(), ids=list(ODD))
def test_a_limit_of_one_kib_works_or_is_refused_with_a_place(text: str) -> None:
    case = _case(text)
    options = Options(calibrate=case.calibrate, target="tiny", sram_limit_kib=1)
    assert re.match(r"<text>:\d+:\d+: error: .* bytes of SRAM|works$", _outcome(case, options))


def _outcome(case: Case, options: Options) -> str:
    try:
        compile_graph(case.graph(), options)
    except CompileError as error:
        return str(error)
    return "works"


def test_ddr_that_is_too_small_is_refused_with_both_sizes() -> None:
    text = _refusal(
        """
graph @g(%x: tensor<1x1x512x400xf32>) {
  %y = relu(%x)
  return %y
}""",
        target=replace(load_target("tiny"), ddr_mib=1),
    )
    assert re.search(
        r"needs \d+ bytes of arena and \d+ of constants; target tiny has 1048576 bytes", text
    )


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("norm", ["layer_norm", "instance_norm"])
def test_a_row_that_holds_no_number_is_none_after_a_norm(norm: str, precision: str) -> None:
    case = _case(f"""
graph @g(%x: tensor<2x3x5xf32>) {{
  %g = const splat(1.5) : tensor<{5 if norm == "layer_norm" else 3}xf32>
  %r = sqrt(%x)
  %y = {norm}(%r, %g, %g)
  return %y
}}""")
    case.inputs["x"][:] = np.abs(case.inputs["x"])
    case.inputs["x"][0, 1, 2] = -1.0
    found = compiled(case, precision=precision)
    assert differing(found) == {}
    bad = np.isnan(found.run()["y"])
    assert bad[0, 1].all()
    assert bad.sum() == 5
