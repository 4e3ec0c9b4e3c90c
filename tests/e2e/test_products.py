"""Matrix products, from text to the emulator's outputs, cut in every way; and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import Opcode, ToaFlag
from npuc.frontend.text import parse_text
from tests.compiled import compiled, differing
from tests.random_graphs import Case

TARGETS = ("edge", "tiny")
ROUNDINGS = ("double", "single", "even")


def case_of(text: str, seed: int = 0) -> Case:
    """Return a graph with normal inputs."""
    rng = np.random.default_rng(seed)
    arguments = parse_text(text).arguments
    inputs = {v.name: rng.normal(0.1, 1.0, v.tensor.dims).astype(np.float32) for v in arguments}
    return Case(text, inputs, inputs)


def product(a: str, b: str) -> str:
    return f"""graph @g(%a: tensor<{a}xf32>, %b: tensor<{b}xf32>) {{
  %y = matmul(%a, %b)
  return %y
}}"""


CUT = [
    ("2x3x37x50", "2x3x50x40", 8),
    ("3x37x50", "3x50x40", 6),
    ("2x1x37x50", "3x50x40", 8),
    ("100x70", "70x90", 16),
    ("3x900", "900x20", 5),  # cut in K
    ("1x2x3x700", "2x700x4", 5),  # cut in K
]


@pytest.mark.parametrize("index", range(len(CUT)))
def test_products_that_are_cut_keep_their_bits(index: int) -> None:
    a, b, limit_kib = CUT[index]
    found = compiled(
        case_of(product(a, b)),
        rounding=ROUNDINGS[index % 3],
        target=TARGETS[index % 2],
        level=index % 2,
        sram_limit_kib=limit_kib,
    )
    assert differing(found) == {}
    toas = found.compilation.program.toas
    assert sum(toa.opcode is Opcode.MATMUL for toa in toas) > 1
    cut = any(not toa.flags & ToaFlag.CLEAR for toa in toas if toa.opcode is Opcode.MATMUL)
    assert cut == (index >= 4)


def test_k_of_33_026_runs_with_wide_sums() -> None:
    text = product("2x33026", "33026x3").replace("f32>", "f32, q<scale = 0.5, zp = 127>>")
    assert differing(compiled(case_of(text), level=1)) == {}


ATTENTION = """graph @g(%x: tensor<1x64x64xf32>) {
  %wq = const random(seed = 1, mean = 0.0, std = 0.2) : tensor<64x64xf32>
  %wk = const random(seed = 2, mean = 0.0, std = 0.2) : tensor<64x64xf32>
  %bk = const random(seed = 3, mean = 0.0, std = 0.2) : tensor<64xf32>
  %q = matmul(%x, %wq)
  %p = matmul(%x, %wk)
  %k = add(%p, %bk)
  %s = matmul(%q, %k)
  %a = softmax(%s)
  %o = matmul(%a, %k)
  %r = add(%o, %x)
  return %r
}"""


def test_products_of_rows_need_no_copies() -> None:
    found = compiled(case_of(ATTENTION), rounding="double")
    assert differing(found) == {}
    opcodes = [toa.opcode for toa in found.compilation.program.toas]
    assert opcodes.count(Opcode.MATMUL) == 2
    assert opcodes.count(Opcode.CONV) == 2
    assert Opcode.COPY not in opcodes


@pytest.mark.parametrize("precision", ["int8", "int16", "fp32"])
def test_rows_larger_than_the_sram_are_reduced_axis_by_axis(precision: str) -> None:
    text = """graph @g(%x: tensor<1x40x60x61xf32>) {
  %m = reduce_mean(%x)
  %s = reduce_sum(%x) {axes = [2, 3], keepdims = 0}
  %h = reduce_max(%x)
  return %m, %s, %h
}"""
    found = compiled(case_of(text), target="tiny", precision=precision, level=1)
    opcodes = [toa.opcode for toa in found.compilation.program.toas]
    assert opcodes.count(Opcode.REDUCE) > 6
    if precision != "fp32":
        assert differing(found) == {}
        return
    expected = found.compilation.reference(found.case.inputs)
    for name, array in found.run().items():
        assert np.allclose(array, expected[name], rtol=1e-5, atol=1e-5)
