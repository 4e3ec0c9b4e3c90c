"""Known cases typed as graph text and run on the emulated firmware; numbers as in test_cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuabi.target import load_target
from npuc.driver import Compilation, Options, compile_graph
from npuc.frontend.text import parse_text
from npuc.ir.core import Array
from npufw.boot import boot
from npufw.engine import Engine

MODES = ["double", "single", "even"]


def compiled(text: str, **options: Any) -> Compilation:
    return compile_graph(parse_text(text), Options(**options))


def run(made: Compilation, **inputs: Array) -> Array:
    return next(iter(Engine(boot(made.blob, load_target("edge"))).run(inputs).values()))


def test_c04_softmax_without_an_axis_runs_along_the_last() -> None:
    text = """graph @s(%x: tensor<2x3x4xf32>) {
  %y = softmax(%x)
  return %y
}"""
    x = np.zeros((2, 3, 4), np.float32)
    given = run(compiled(text, calibrate={"x": x}), x=x)
    np.testing.assert_allclose(given, 0.25, atol=1 / 256)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_c21_nearest_resize_breaks_ties_as_it_is_told(precision: str) -> None:
    text = """graph @r(%x: tensor<1x1x3x3xf32>, %line: tensor<1x1x1x20xf32>) {
  %y = resize(%x) {mode = "nearest", nearest_mode = "round_prefer_floor", \
scales = [1.0, 1.0, 1.5, 1.5]}
  %z = resize(%line) {mode = "nearest", nearest_mode = "round_prefer_ceil", sizes = [1, 1, 1, 6]}
  return %y, %z
}"""
    inputs = {
        "x": np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3),
        "line": np.arange(20, dtype=np.float32).reshape(1, 1, 1, 20),
    }
    made = compiled(text, calibrate=inputs, precision=precision)
    given = Engine(boot(made.blob, load_target("edge"))).run(inputs)
    wanted = [[0, 0, 1, 2], [0, 0, 1, 2], [3, 3, 4, 5], [6, 6, 7, 8]]
    assert np.rint(given["y"][0, 0]).tolist() == wanted
    assert np.rint(given["z"].ravel()).tolist() == [1, 5, 8, 11, 15, 18]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coordinates", ["align_corners", "half_pixel", "asymmetric"])
@pytest.mark.parametrize(("row", "sizes"), [([0.0, 1.0], 4), ([0.0, 0.4, 1.0], 7)])
def test_c22_linear_resize_on_codes_is_within_one_step_of_the_real_one(
    row: list[float], sizes: int, coordinates: str, mode: str
) -> None:
    text = f"""graph @r(%x: tensor<1x1x1x{len(row)}xf32>) {{
  %y = resize(%x) {{mode = "linear", coordinate_transformation_mode = "{coordinates}", \
sizes = [1, 1, 1, {sizes}]}}
  return %y
}}"""
    x = np.array(row, np.float32).reshape(1, 1, 1, -1)
    exact = run(compiled(text, precision="fp32"), x=x)
    on_codes = run(compiled(text, calibrate={"x": x}, rounding=mode), x=x)
    # One step of the result, and half a step of the quantised input.
    assert np.abs(on_codes - exact).max() <= 1.5 / 255


@pytest.mark.parametrize("mode", MODES)
def test_c25_scales_follow_their_axis_when_weights_are_transposed(mode: str) -> None:
    text = """graph @t(%x: tensor<1x2x1x1xf32>) {
  %q = const dense([[[[100]], [[10]], [[1]]], [[[100]], [[10]], [[1]]]]) \
: tensor<2x3x1x1xi8, q<axis = 0, scale = [0.01, 0.1], zp = [0, 0]>>
  %w = dequantize(%q)
  %t = transpose(%w) {perm = [1, 0, 2, 3]}
  %y = conv2d(%x, %t)
  return %y
}"""
    x = np.array([1.0, 2.0], np.float32).reshape(1, 2, 1, 1)
    wanted = np.array([100, 10, 1]) * (0.01 * 1 + 0.1 * 2)
    given = run(compiled(text, calibrate={"x": x}, rounding=mode), x=x)
    np.testing.assert_allclose(given.ravel(), wanted, atol=wanted.max() / 127)


@pytest.mark.parametrize("mode", MODES)
def test_c42_float16_is_rounded_and_not_cut(mode: str) -> None:
    text = """graph @q(%x: tensor<2xf16>) {
  %y = quantize(%x) {scale = 0.0999756, zero_point = 0}
  return %y
}"""
    x = np.array([0.050018, -0.050018], np.float16)
    assert run(compiled(text, rounding=mode), x=x).tolist() == [1, -1]


@pytest.mark.parametrize("mode", MODES)
def test_c10_relu6_ends_at_the_code_of_six(mode: str) -> None:
    text = """graph @r(%q: tensor<3xi8, q<scale = 0.05, zp = -128>>) {
  %y = relu6(%q) : tensor<3xi8, q<scale = 0.05, zp = -128>>
  return %y
}"""
    q = np.array([-128, -8, 127], np.int8)
    assert run(compiled(text, rounding=mode), q=q).tolist() == [-128, -8, -8]


@pytest.mark.parametrize("precision", ["int8", "int16"])
@pytest.mark.parametrize("alpha", [0.1, 0.1015625, 0.0, 1.0, -1.0, 2.0])
def test_c34_slopes_below_zero_are_kept(alpha: float, precision: str) -> None:
    text = f"""graph @s(%x: tensor<1x3x1x8xf32>) {{
  %s = const splat({alpha}) : tensor<3x1x1xf32>
  %a = leaky_relu(%x) {{alpha = {alpha}}}
  %b = prelu(%x, %s)
  %y = concat(%a, %b) {{axis = 1}}
  return %y
}}"""
    x = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(1, 3, 1, 8)
    below = np.concatenate([x, x], axis=1) < -0.01
    for mode in MODES:
        options = {"calibrate": {"x": x}, "precision": precision, "level": 0}
        made = compiled(text, rounding=mode, **options)
        steps = 255 if precision == "int8" else 65535
        # A step of the input times the slope, and one of the output, whose range is at most 3.
        bound = (2.0 * max(abs(alpha), 1.0) + 3.0) / steps
        given = run(made, x=x)
        assert np.abs(given - alpha * np.concatenate([x, x], axis=1))[below].max() <= bound


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", ["int8", "int16", "fp16", "fp32"])
def test_c43_sub_keeps_its_order_behind_a_folded_batch_norm(precision: str, mode: str) -> None:
    text = """graph @d(%a: tensor<1x2x1x1xf32>, %b: tensor<1x2x1x1xf32>) {
  %one = const splat(1.0) : tensor<2xf32>
  %two = const splat(2.0) : tensor<2xf32>
  %zero = const splat(0.0) : tensor<2xf32>
  %n = batch_norm(%b, %two, %one, %zero, %one) {epsilon = 0.0}
  %y = sub(%a, %n)
  return %y
}"""
    a, b = np.array([[[[5.0]], [[1.0]]]], np.float32), np.array([[[[1.0]], [[2.0]]]], np.float32)
    made = compiled(text, calibrate={"a": a, "b": b}, rounding=mode, precision=precision)
    np.testing.assert_allclose(run(made, a=a, b=b).ravel(), [2.0, -4.0], atol=0.05)
