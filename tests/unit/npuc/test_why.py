"""npuc why: what became of an op, by name or line, also when the graph is refused."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from npuc.cli import main
from npuc.driver import Options
from npuc.frontend.source import Source
from npuc.why import Explanation, explain

DIGITS = str(Path(__file__).parents[3] / "models" / "digits.txt")

FUSING = """\
graph @g(%x: tensor<1x4x6x6xf32>) {
  %w = const random(seed = 1) : tensor<4x4x1x1xf32>
  %d = const random(seed = 2) : tensor<4x1x3x3xf32>
  %a = conv2d(%x, %w)
  %shared = relu(%a)
  %p = max_pool2d(%shared) {kernel_shape = [1, 1]}
  %q = relu(%p)
  %c = conv2d(%q, %w)
  %r = relu(%c)
  %dw = conv2d(%q, %d) {group = 4, pads = [1, 1, 1, 1]}
  %s = add(%dw, %x)
  %t = add(%c, %shared)
  %k = relu(%w)
  %u = conv2d(%s, %k)
  return %r, %t, %u
}
"""


def why(text: str, *wanted: str) -> list[Explanation]:
    options = Options(calibrate="random", level=0)
    return explain(Source("g.txt", text, Path()), wanted, options)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["why", *arguments])


FUSED = (
    ("a", "conv2d %shared", "relu is the clamp of conv2d %a"),
    ("shared", "conv2d %shared", "relu is the clamp of conv2d %a"),
    ("q", "relu %q", "not fused into the op before it: max_pool2d has no clamp"),
    ("r", "relu %r_q", "not fused into the op before it: %c has more than one reader"),
    ("s", "add %s", "not fused into a conv2d before it: conv2d %dw has groups"),
    ("t", "add %t_q", "not fused into a conv2d before it: %c has more than one reader"),
    ("k", None, "computed while compiling, from constants"),
    ("w", None, "a constant, read by conv2d %a, conv2d %c, relu %k"),
)


def test_fusion_is_explained_by_the_old_name() -> None:
    found = why(FUSING, *(name for name, _, _ in FUSED))
    for one, (name, into, reason) in zip(found, FUSED, strict=True):
        assert (one.name, one.into) == (name, into)
        assert any(text.startswith(reason) for text in one.decisions), one.decisions


def test_an_output_is_not_fused_away_and_a_single_reader_is_fused() -> None:
    changed = FUSING.replace("return %r,", "return %a, %r,")
    shared, added = why(changed.replace("%r = relu(%c)", "%r = relu(%x)"), "shared", "t")
    assert "%a is a graph output" in shared.decisions[0]
    assert added.into == "conv2d %t_q"


def test_a_line_is_as_good_as_a_name_and_json_says_the_same() -> None:
    op, by_name = json.loads(command(DIGITS, "28", "%n3", "--json").stdout)["ops"]
    assert op == by_name
    assert (op["into"], op["device"]["opcodes"]) == ("conv2d %joined", ["conv"])
    assert op["device"]["cost"]["cycles"] > 0
    residual = next(t for t in op["tensors"] if t["role"] == "residual")
    assert residual["origin"].startswith("calibrated, the values went from 0 to ")


def test_the_text_names_stripes_banks_cycles_and_bound() -> None:
    printed = command(DIGITS, "r4", "--sram-limit", "8").stdout
    for word in ("conv2d %r4", "stripes ", "banks ", "DMA ", "bound by", "stalls ", "nchw16c"):
        assert word in printed
    assert "the result is its operand's memory" in command(DIGITS, "features").stdout


def test_a_refused_op_gets_its_limit_and_others_are_told_so() -> None:
    text = (
        "graph @g(%x: tensor<1x4x6x600xf32>) {\n  %a = relu(%x)\n"
        "  %p = max_pool2d(%a) {kernel_shape = [1, 300]}\n  return %p\n}\n"
    )
    refused, other = why(text, "p", "a")
    assert refused.into is None
    assert "kernel, strides, dilations and pads are at most 255" in refused.refusals[0]
    assert "use a smaller kernel" in refused.refusals[0]
    assert (other.refusals, other.elsewhere) == ((), (f"line 3: {refused.refusals[0]}",))


def test_an_unknown_op_gets_the_closest_names() -> None:
    result = command(DIGITS, "joinde")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no op gives %joinde, did you mean %joined" in result.stderr
    assert "no op gives %image, it is an input of the graph" in command(DIGITS, "image").stderr
    assert "no op on line 1: the nearest are on lines" in command(DIGITS, "1").stderr
