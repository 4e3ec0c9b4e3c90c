"""Elementwise ops in rounding even against ONNX Runtime's QDQ models, every code or pair of codes.

Sigmoid, LeakyRelu and Mul run in its quantised kernels; the others between DequantizeLinear and
QuantizeLinear, in float32. The firmware is compared on the first case of each op.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import REGISTRY, Array, Value
from npuc.ir.types import Quant, TensorType
from tests.peers.emulated import both, parameters
from tests.peers.test_onnxruntime_qdq import EVERY_CODE, EVERY_PAIR, Model, quantized

SEEDS = range(6)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One op of ours and ONNX's; ``more`` are theirs' constant operands behind the activations."""

    name: str
    kind: str
    operands: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    more: tuple[float, ...] = ()

    def __str__(self) -> str:
        return "-".join([self.name, *map(str, (*self.attributes.values(), *self.more))])


PEERS = [
    Peer(name="sigmoid", kind="Sigmoid"),
    Peer(name="tanh", kind="Tanh"),
    Peer(name="leaky_relu", kind="LeakyRelu", attributes={"alpha": 0.1}),
    Peer(name="leaky_relu", kind="LeakyRelu", attributes={"alpha": -1.5}),
    Peer(name="relu6", kind="Clip", more=(0.0, 6.0)),
    Peer(name="abs", kind="Abs"),
    Peer(name="neg", kind="Neg"),
    Peer(name="exp", kind="Exp"),
    Peer(name="log", kind="Log"),
    Peer(name="sqrt", kind="Sqrt"),
    Peer(name="elu", kind="Elu"),
    Peer(name="hard_sigmoid", kind="HardSigmoid"),
    Peer(name="hard_swish", kind="HardSwish"),
    Peer(name="softplus", kind="Softplus"),
    Peer(name="mish", kind="Mish"),
    Peer(name="gelu", kind="Gelu"),
    Peer(name="gelu", kind="Gelu", attributes={"approximate": "tanh"}),
    Peer(name="reciprocal", kind="Reciprocal"),
    Peer(name="pow", kind="Pow", more=(3.0,)),
    Peer(name="pow", kind="Pow", more=(2.5,)),
    Peer(name="mul", kind="Mul", operands=2),
    Peer(name="sub", kind="Sub", operands=2),
    Peer(name="div", kind="Div", operands=2),
    Peer(name="min", kind="Min", operands=2),
    Peer(name="max", kind="Max", operands=2),
]


def theirs(peer: Peer, inputs: dict[str, Array], given: list[Quant], target: Quant) -> Array:
    model = Model()
    real = [model.dequantized(name, quant) for name, quant in zip(inputs, given, strict=True)]
    real += [model.constant(f"c{n}", np.float32(number)) for n, number in enumerate(peer.more)]
    made = model.node(peer.kind, real, "made", **peer.attributes)
    return model.run(inputs, quantized(model, made, target))


def has_a_number(peer: Peer, inputs: dict[str, Array], given: list[Quant]) -> Array:
    """Return where the real function is a number: ONNX Runtime gives NaN the lowest code."""
    values = list(inputs.values())
    centred = [v.astype(int) - q.zero_point for v, q in zip(values, given, strict=True)]
    if peer.name == "div":
        return np.asarray((centred[0] != 0) | (centred[1] != 0))
    broken = peer.name == "sqrt" or peer.more == (2.5,)
    return np.asarray(centred[0] >= 0) if broken else np.ones(values[0].shape, bool)


@pytest.mark.parametrize("peer", PEERS, ids=str)
def test_codes_equal_onnx_runtimes(peer: Peer) -> None:
    attributes = {"exponent": peer.more[0]} if peer.name == "pow" else peer.attributes
    for seed in SEEDS if peer.operands == 1 else SEEDS[:2]:
        rng = np.random.default_rng(seed)
        given = [parameters(rng, 0.005, 0.2) for _ in range(peer.operands)]
        target = parameters(rng, 0.005, 0.2)
        if peer.name in ("min", "max"):
            given = [target, target]
        target = REGISTRY[peer.name].FIXED.get(DType.I8, target)
        codes = [EVERY_CODE] if peer.operands == 1 else EVERY_PAIR
        inputs = dict(zip("ab", codes, strict=False))
        shape = codes[0].shape
        op = REGISTRY[peer.name](
            [
                Value(name, TensorType(shape, DType.I8, quant))
                for name, quant in zip(inputs, given, strict=True)
            ],
            attributes,
            result_types=[TensorType(shape, DType.I8, target)],
        )
        compared = has_a_number(peer, inputs, given)
        expected = theirs(peer, inputs, given, target)[compared]
        for ours in both(op, inputs, Rounding.EVEN, emulate=seed == 0):
            assert np.count_nonzero(ours[compared] != expected) == 0
