"""Ops that move elements: small values of the ONNX pages and of shared/cases.md, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.frontend.text import parse_text
from npuc.ir.const import Const
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import (
    ConvTranspose2d,
    DepthToSpace,
    Gather,
    Pad,
    Resize,
    Slice,
    SpaceToDepth,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)
from npuc.passes.context import PassContext
from npuc.passes.fold_constants import FoldConstants

QUANT = Quant.per_tensor(0.5, 3)


def run(cls: type[Op], shape: tuple[int, ...], **attributes: Any) -> list[Any]:
    """Return what an op makes of 0, 1, 2, ...; codes and floats give the same."""
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    found: list[Array] = []
    for dtype, quant in ((DType.F32, None), (DType.I8, QUANT), (DType.I16, None)):
        given = Quant.per_tensor(0.5, 0) if dtype is DType.I16 else quant
        op = cls([Value("x", TensorType(shape, dtype, given))], attributes)
        op.verify()
        (y,) = op.reference([x.astype(op.inputs[0].tensor.numpy)], Rounding.DOUBLE)
        assert y.shape == op.result.tensor.dims
        assert op.result.tensor.quant == given
        found.append(y)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    rows: list[Any] = found[0].astype(int).tolist()
    return rows


VALUES: list[tuple[type[Op], tuple[int, ...], dict[str, Any], list[Any]]] = [
    (Slice, (2, 4), {"starts": [1, 0], "ends": [2, 3], "axes": [0, 1], "steps": [1, 2]}, [[4, 6]]),
    (Slice, (2, 4), {"starts": [0, 1], "ends": [-1, 1000]}, [[1, 2, 3]]),
    (Slice, (5,), {"starts": [-1], "ends": [-100], "steps": [-1]}, [4, 3, 2, 1, 0]),
    (Slice, (5,), {"starts": [3], "ends": [0], "steps": [-2]}, [3, 1]),
    (Slice, (5,), {"starts": [100], "ends": [-100], "steps": [-3]}, [4, 1]),
    (Slice, (2, 3), {"starts": [1], "ends": [3], "axes": [-1]}, [[1, 2], [4, 5]]),
    (Pad, (3,), {"pads": [2, 1], "mode": "edge"}, [0, 0, 0, 1, 2, 2]),
    (Pad, (3,), {"pads": [2, 4], "mode": "reflect"}, [2, 1, 0, 1, 2, 1, 0, 1, 2]),
    (Pad, (3,), {"pads": [2, 4], "mode": "wrap"}, [1, 2, 0, 1, 2, 0, 1, 2, 0]),
    (Pad, (1,), {"pads": [1, 2], "mode": "reflect"}, [0, 0, 0, 0]),
    (Pad, (5,), {"pads": [-2, -1]}, [2, 3]),
    (Pad, (5,), {"pads": [-2, 3], "mode": "reflect"}, [2, 3, 4, 3, 2, 3]),
    (Pad, (2, 2), {"pads": [1, 0], "axes": [-1], "mode": "edge"}, [[0, 0, 1], [2, 2, 3]]),
    (Transpose, (2, 3), {}, [[0, 3], [1, 4], [2, 5]]),
    (Transpose, (1, 2, 2), {"perm": [1, 0, 2]}, [[[0, 1]], [[2, 3]]]),
    (Squeeze, (1, 2, 1), {}, [0, 1]),
    (Squeeze, (1, 2, 1), {"axes": [-1]}, [[0, 1]]),
    (Unsqueeze, (2,), {"axes": [-1, 0]}, [[[0], [1]]]),
    (Tile, (1, 2), {"repeats": [2, 2]}, [[0, 1, 0, 1], [0, 1, 0, 1]]),
    (Gather, (3, 2), {"indices": [2, -3, 2]}, [[4, 5], [0, 1], [4, 5]]),
    (Gather, (2, 3), {"indices": [1], "axis": 1, "indices_shape": []}, [1, 4]),
    (Gather, (3,), {"indices": [0, 1, 2, 0], "indices_shape": [2, 2]}, [[0, 1], [2, 0]]),
    (DepthToSpace, (1, 4, 1, 1), {"blocksize": 2}, [[[[0, 1], [2, 3]]]]),
    (DepthToSpace, (1, 8, 1, 1), {"blocksize": 2},
     [[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]]),
    (DepthToSpace, (1, 8, 1, 1), {"blocksize": 2, "mode": "CRD"},
     [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]),
    (SpaceToDepth, (1, 1, 2, 4), {"blocksize": 2}, [[[[0, 2]], [[1, 3]], [[4, 6]], [[5, 7]]]]),
    (Resize, (1, 1, 1, 2), {"scales": [1.0, 1.0, 2.0, 3.0]}, [[[[0, 0, 0, 1, 1, 1]] * 2]]),
    (Resize, (4,), {"sizes": [2], "coordinate_transformation_mode": "asymmetric"}, [0, 2]),
    (Resize, (2, 4), {"sizes": [5, 8], "keep_aspect_ratio_policy": "not_larger"},
     [[0, 0, 1, 1, 2, 2, 3, 3]] * 2 + [[4, 4, 5, 5, 6, 6, 7, 7]] * 2),
]  # fmt: skip


@pytest.mark.parametrize("row", VALUES, ids=lambda row: f"{row[0].NAME}-{row[2]}")
def test_elements_go_where_the_onnx_page_says(row: Any) -> None:
    cls, shape, attributes, expected = row
    assert run(cls, shape, **attributes) == expected


@pytest.mark.parametrize(("rounding", "tie"), [("DOUBLE", 2), ("SINGLE", 2), ("EVEN", 1)])
def test_a_pad_is_quantised_as_the_tensor_that_it_joins(rounding: str, tie: int) -> None:
    x = Value("x", TensorType((2,), DType.I8, Quant.per_tensor(0.5, -3)))
    codes = np.array([7, 8], np.int8)
    for constant, expected in ((0.0, -3), (2.25, tie), (99, 127)):
        op = Pad([x], {"pads": [1, 0], "constant_value": float(constant)})
        (y,) = op.reference([codes], Rounding[rounding])
        assert y.tolist() == [expected, 7, 8]


REFUSED: list[tuple[type[Op], tuple[int | None, ...], dict[str, Any], str]] = [
    (Slice, (4,), {"starts": [0], "ends": [2], "steps": [0]}, "steps are not 0"),
    (Slice, (4,), {"starts": [0], "ends": [2, 3]}, "one number for each axis"),
    (Slice, (4,), {"starts": [0, 0], "ends": [2, 3]}, "2 axes are named, the tensor has 1 dims"),
    (Slice, (4, 4), {"starts": [0, 0], "ends": [2, 3], "axes": [1, -1]}, "named once each"),
    (Slice, (None, 4), {"starts": [0], "ends": [2]}, "bind its shape"),
    (Pad, (4,), {"pads": [1]}, "two numbers an axis"),
    (Pad, (4,), {"pads": [-3, -2]}, "take more than the 4 elements"),
    (Pad, (4,), {"pads": [-4, 1], "mode": "edge"}, "nothing of a dim of 4 to fill from"),
    (Pad, (4,), {"pads": [1, 1], "mode": "mirror"}, "mode is one of constant, edge, reflect, wrap"),
    (Pad, (4,), {"pads": [1, 1], "constant_value": 1e39}, "constant_value is a float32 number"),
    (Transpose, (2, 3), {"perm": [0, 0]}, "each of the dims 0 to 1 once"),
    (Squeeze, (2, 1), {"axes": [0]}, "of 2x1 are not all 1"),
    (Squeeze, (None, 1), {}, "known dims or axes"),
    (Unsqueeze, (2,), {"axes": [0, -3]}, "named once each"),
    (Tile, (2, 3), {"repeats": [2]}, "2 numbers of at least 0"),
    (Gather, (3,), {"indices": [3]}, "index 3 is outside a dim of 3"),
    (Gather, (3,), {"indices": [0, 1], "indices_shape": [3]}, "2 indices do not fill"),
    (DepthToSpace, (1, 6, 2, 2), {"blocksize": 2}, "no multiple of 2 x 2"),
    (DepthToSpace, (1, 4, 2, 2), {"blocksize": 2, "mode": "RCD"}, "mode DCR or CRD"),
    (SpaceToDepth, (1, 4, 3, 2), {"blocksize": 2}, "no blocks of 2"),
    (SpaceToDepth, (1, 4, 3), {"blocksize": 1}, "input has 4 dims"),
    (Resize, (1, 1, 2, 2), {}, "either scales or sizes"),
    (Resize, (2,), {"scales": [2.0], "sizes": [4]}, "either scales or sizes"),
    (Resize, (2, 2), {"scales": [2.0]}, "2 axes take as many positive numbers"),
    (Resize, (2,), {"sizes": [0]}, "positive numbers"),
    (Resize, (2,), {"sizes": [4], "mode": "bilinear"}, "mode is one of nearest, linear, cubic"),
    (Resize, (2,), {"sizes": [4], "nearest_mode": "round"}, "nearest_mode is one of"),
    (Resize, (2,), {"sizes": [4], "coordinate_transformation_mode": "tf_crop_and_resize"},
     "tf_crop_and_resize is not taken"),
    (Resize, (2,), {"sizes": [4], "antialias": 1}, "antialias is 0 only"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[0].NAME}-{row[3]}")
def test_what_cannot_be_is_refused_with_its_reason(row: Any) -> None:
    cls, shape, attributes, message = row
    with pytest.raises(ValueError, match=message):
        cls([Value("x", TensorType(shape))], attributes).verify()


CONV, W = (1, 4, 5, 5), (4, 3, 3, 3)
REFUSED_CONVS: list[tuple[list[tuple[int, ...]], dict[str, Any], str]] = [
    ([(1, 4, 5), W], {}, "input has 4 dims"),
    ([CONV, (5, 3, 3, 3)], {}, "input has 4 channels, the weights 5"),
    ([CONV, W], {"group": 3}, "4 input channels do not split into 3 groups"),
    ([CONV, W, (4,)], {}, "one number for each of 3 channels, got 4"),
    ([CONV, W], {"kernel_shape": [2, 2]}, "kernel_shape is 2x2, weights have 3x3"),
    ([CONV, W], {"pads": [4, 0, 4, 0]}, "leave nothing of the result"),
    ([CONV, W], {"strides": [0, 1]}, "strides is 2 numbers of at least 1"),
    ([CONV, W], {"strides": [2, 2], "output_padding": [2, 0]}, "less than stride or dilation"),
    ([CONV, W], {"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]}, "remove pads or auto_pad"),
    ([CONV, W], {"auto_pad": "SAME_UPPER", "strides": [4, 1]}, "larger than the 19"),
    ([CONV, W], {"output_shape": [9, 7]}, "state pads and output_padding"),
]


@pytest.mark.parametrize("row", REFUSED_CONVS, ids=lambda row: row[2])
def test_a_transposed_convolution_that_cannot_be_is_refused(row: Any) -> None:
    shapes, attributes, message = row
    values = [Value(f"v{i}", TensorType(shape)) for i, shape in enumerate(shapes)]
    with pytest.raises(ValueError, match=message):
        ConvTranspose2d(values, attributes).verify()


def test_a_linear_resize_of_channels_is_beyond_the_npu() -> None:
    x = Value("x", TensorType((1, 4, 5, 5)))
    along_c = Resize([x], {"sizes": [8], "axes": [1], "mode": "linear"})
    assert [limit.text for limit in along_c.broken_limits()] == [
        "linear and cubic resize run along rows and columns"
    ]
    assert not Resize([x], {"sizes": [8], "axes": [1]}).broken_limits()


def test_a_kernel_beyond_a_byte_may_have_phases_within() -> None:
    x, w = Value("x", TensorType((1, 1, 3, 3))), Value("w", TensorType((1, 1, 300, 1)))
    assert ConvTranspose2d([x, w]).broken_limits()
    assert not ConvTranspose2d([x, w], {"strides": [2, 1]}).broken_limits()


@pytest.mark.parametrize("shape", [(1, 0, 32), (0, 3), (2, 0)])
def test_c30_an_empty_tensor_moves_to_an_empty_result(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    rank = len(shape)
    ops: list[tuple[type[Op], dict[str, Any]]] = [
        (Transpose, {}),
        (Slice, {"starts": [0] * rank, "ends": [9] * rank}),
        (Unsqueeze, {"axes": [0]}),
        (Tile, {"repeats": [2] * rank}),
        (Pad, {"pads": [0] * (2 * rank)}),
        (Resize, {"scales": [2.0] * rank}),
        (Gather, {"indices": [], "axis": 0}),
    ]
    for cls, attributes in ops:
        op = cls([Value("x", TensorType(shape))], attributes)
        (y,) = op.reference([x], Rounding.DOUBLE)
        assert y.shape == op.result.tensor.dims
        assert y.size == 0
        assert op.broken_limits()


def test_c30_a_slice_may_give_nothing() -> None:
    assert run(Slice, (4,), starts=[3], ends=[1]) == []
    op = Slice([Value("x", TensorType((4,)))], {"starts": [3], "ends": [1]})
    assert [limit.text for limit in op.broken_limits()] == ["tensors hold at least one element"]


def test_chains_of_moves_on_constants_fold() -> None:
    graph = parse_text("""graph @g(%x: tensor<1x2x4x4xf32>) {
      %k = const dense([[1.0, 2.0], [3.0, 4.0]]) : tensor<2x2xf32>
      %t = transpose(%k)
      %u = unsqueeze(%t) {axes = [0, 1]}
      %r = resize(%u) {scales = [2.0, 2.0], axes = [2, 3], mode = "linear"}
      %p = pad(%r) {pads = [0, 1, 0, 0], axes = [0, 1], mode = "edge"}
      %f = slice(%p) {starts = [-1], ends = [-9], axes = [2], steps = [-1]}
      %y = add(%x, %f)
      return %y
    }""")
    FoldConstants().run(graph, PassContext())
    (constant,) = [op for op in graph.ops if isinstance(op, Const)]
    row = np.array([1.0, 1.5, 2.5, 3.0])
    expected = row + np.array([0, 0.25, 0.75, 1])[:, None]
    assert constant.value()[0, 0].tolist() == expected[::-1].tolist()
