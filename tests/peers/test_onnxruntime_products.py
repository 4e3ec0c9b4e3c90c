"""Rounding even of products, reductions and norms against ONNX Runtime's QDQ models."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.ops import MatMul
from tests.peers.emulated import activation, codes, parameters
from tests.peers.test_onnxruntime_qdq import agree, store


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((40, 70), (70, 33)),
        ((2, 30, 70), (2, 70, 33)),
        ((2, 3, 19, 40), (2, 3, 40, 21)),
        ((2, 1, 9, 5), (3, 5, 8)),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    quants = [parameters(rng, 0.01, 0.2) for _ in range(2)]
    values = [activation(n, s, q) for n, s, q in zip("ab", (a, b), quants, strict=True)]
    op = MatMul(values)
    spread = quants[0].scale * quants[1].scale * 60 * a[-1] ** 0.5
    store(op, parameters(rng, spread / 4, spread * 4))
    inputs = {v.name: codes(rng, v.tensor.dims) for v in values}
    agree(op, "MatMul", inputs, emulate=seed == 0)
