"""Resize against LiteRT's RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, and ONNX Runtime's Resize.

Each peer computes coordinates in its own precision; docs/numerics.md says where that shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.ops import Resize
from tests.peers.emulated import activation, both, codes, parameters
from tests.peers.test_litert import CODE, one_op, tensor
from tests.peers.test_onnxruntime_qdq import Model, quant_of, quantized
from tests.peers.tflite_models import Node, Tensor, options

SIZES = [((5, 7), (10, 14)), ((3, 4), (12, 4)), ((8, 6), (4, 3)), ((9, 5), (17, 9))]
ODD_SIZES = [((5, 7), (13, 11)), ((20, 3), (6, 19)), ((7, 1), (3, 5)), ((1, 17), (1, 29))]
LITERT = {
    # ours: (align_corners, half_pixel_centers)
    "asymmetric": (False, False),
    "align_corners": (True, False),
    "half_pixel": (False, True),
    "pytorch_half_pixel": (False, True),
}


def litert_resize(mode: str, place: str, size: Any, result: Any, seed: int, **more: Any) -> None:
    rng = np.random.default_rng(seed)
    x = activation("x", (2, 19, *size), parameters(rng, 0.01, 0.2))
    attributes = {"sizes": result, "axes": [2, 3], "mode": mode}
    op = Resize([x], {**attributes, "coordinate_transformation_mode": place, **more})
    kind = {"linear": "ResizeBilinearOptions", "nearest": "ResizeNearestNeighborOptions"}[mode]
    align, half = LITERT[place]
    table = options(kind, alignCorners=align, halfPixelCenters=half)
    wanted = Tensor(shape=(2,), dtype=np.int32, data=np.array(result, np.int32))
    code = CODE.RESIZE_BILINEAR if mode == "linear" else CODE.RESIZE_NEAREST_NEIGHBOR
    node = Node(code=code, inputs=[0, 1], outputs=[2], options=table)
    one_op(op, node, {"x": codes(rng, x.tensor.dims)}, [tensor(x), wanted, tensor(op.result)])


def exact(place: str, size: int, result: int) -> bool:
    """Return whether LiteRT's 10-bit scale is the ratio."""
    less = int(place == "align_corners" and result > 1)
    return 1024 * (size - less) % (result - less) == 0


@pytest.mark.parametrize("place", LITERT)
@pytest.mark.parametrize("case", list(enumerate([*SIZES, *ODD_SIZES])), ids=str)
def test_linear_resize_has_litert_bits(case: Any, place: str) -> None:
    seed, (size, result) = case
    known = all(exact(place, *pair) for pair in zip(size, result, strict=True))
    litert_resize("linear", place, size, result, seed, litert_scale=int(not known))


@pytest.mark.parametrize("place", ["asymmetric", "align_corners", "half_pixel"])
@pytest.mark.parametrize(("size", "result"), [*SIZES, *ODD_SIZES])
def test_nearest_resize_copies_what_litert_copies(size: Any, result: Any, place: str) -> None:
    how = "floor" if place == "asymmetric" else "round_prefer_ceil"
    litert_resize("nearest", place, size, result, seed=3, nearest_mode=how)


COORDINATES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
]
KINDS: list[tuple[dict[str, Any], int]] = [
    # attributes, codes that may differ
    ({"mode": "linear"}, 0),
    ({"mode": "cubic"}, 0),
    # Each row's sum is multiplied by its weight and then divided by all rows'; ours are one number.
    ({"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}, 4),
]


@pytest.mark.parametrize("place", COORDINATES)
@pytest.mark.parametrize("kind", KINDS, ids=["linear", "cubic", "cubic-inside"])
def test_rounding_even_has_onnx_runtimes_bits(kind: tuple[dict[str, Any], int], place: str) -> None:
    wrong = 0
    words = {**kind[0], "coordinate_transformation_mode": place}
    for seed, (size, result) in enumerate([*SIZES, *ODD_SIZES]):
        rng = np.random.default_rng(seed)
        x = activation("x", (1, 19, *size), parameters(rng, 0.01, 0.2))
        op = Resize([x], {"sizes": [1, 19, *result], **words})
        inputs = {"x": codes(rng, x.tensor.dims)}
        model = Model()
        real = model.dequantized("x", quant_of(x))
        sizes = model.constant("sizes", np.array([1, 19, *result], np.int64))
        made = model.node("Resize", [real, "", "", sizes], "made", **words)
        theirs = model.run(inputs, quantized(model, made, quant_of(op.result)))
        for ours in both(op, inputs, Rounding.EVEN, emulate=seed == 3):
            wrong += int(np.count_nonzero(ours != theirs))
    assert wrong <= kind[1]
