"""What ops refuse, and that the text says what and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from npuabi.enums import DType, Rounding
from npuc.ir.core import Op, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops import (
    Add,
    AvgPool2d,
    BatchNorm,
    Clip,
    Concat,
    Conv2d,
    Dense,
    Dequantize,
    Expand,
    Flatten,
    GlobalAvgPool,
    MatMul,
    MaxPool2d,
    Quantize,
    Relu,
    Reshape,
    Softmax,
    Split,
)

Shapes = Sequence[tuple[int | None, ...]]


def values(shapes: Shapes) -> list[Value]:
    return [Value(f"v{i}", TensorType(s)) for i, s in enumerate(shapes)]


X, W = (1, 4, 5, 5), (6, 4, 3, 3)

REFUSED: list[tuple[type[Op], Shapes, dict[str, Any], str]] = [
    (Conv2d, [(1, 4, 5), W], {}, "input has 4 dims"),
    (Conv2d, [X, (6, 4, 3)], {}, "weights has 4 dims"),
    (Conv2d, [X, (6, 3, 3, 3)], {}, "input has 4 channels, weights of 1 groups expect 3"),
    (Conv2d, [X, W], {"group": 4}, "6 output channels do not split into 4 groups"),
    (Conv2d, [X, W], {"group": 0}, "do not split into 0 groups"),
    (Conv2d, [X, W, (5,)], {}, "bias has one number for each of 6 channels, got 5"),
    (Conv2d, [X, W], {"kernel_shape": (1, 3)}, "kernel_shape is 1x3, weights have 3x3"),
    (Conv2d, [X, (6, 4, 7, 7)], {}, "kernel 7x7 .* does not fit input 1x4x5x5"),
    (Conv2d, [X, W], {"pads": (1, 1)}, "pads is .top, left, bottom, right."),
    (Conv2d, [X, W], {"pads": (0, 0, -1, 0)}, "none negative"),
    (Conv2d, [X, W], {"strides": (0, 1)}, "strides is two numbers of at least 1"),
    (Conv2d, [X, W], {"dilations": (1,)}, "dilations is two numbers"),
    (Conv2d, [X, W], {"auto_pad": "SAME"}, "auto_pad is NOTSET, SAME_UPPER"),
    (Conv2d, [X, W], {"auto_pad": "VALID", "pads": (1, 1, 1, 1)}, "remove pads or auto_pad"),
    (Conv2d, [X, W, (6,), (1, 6, 5, 5)], {}, "residual has the result's shape 1x6x3x3"),
    (Conv2d, [X, (None, 4, 3, 3)], {}, "weights have no dynamic dims"),
    (MaxPool2d, [X], {"kernel_shape": (6, 6)}, "kernel 6x6 does not fit"),
    (MaxPool2d, [X], {"kernel_shape": (2, 2), "storage_order": 1}, "storage_order is 0"),
    (MaxPool2d, [X], {"kernel_shape": (2, 2), "ceil_mode": 2}, "ceil_mode is 0 or 1"),
    (MaxPool2d, [X], {"kernel_shape": (2, 2), "pads": (2, 0, 0, 0)}, "without any input"),
    (
        MaxPool2d,
        [(1, 1, 8, 8)],
        {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1, "auto_pad": "VALID"},
        "VALID with ceil_mode 1 is ambiguous",
    ),
    (AvgPool2d, [(1, 4, 5)], {"kernel_shape": (2, 2)}, "input has 4 dims"),
    (AvgPool2d, [X], {"kernel_shape": (2, 2), "count_include_pad": 3}, "is 0 or 1"),
    (GlobalAvgPool, [(1, 3, 0, 4)], {}, "no rows or columns"),
    (Dense, [(1, 4, 5), (3, 20)], {}, "insert a flatten"),
    (Dense, [(5,), (3, 5)], {}, "input has at least 2 dims"),
    (Dense, [(1, 4), (3, 5)], {}, "input has 4 columns, weights expect 5"),
    (Dense, [(1, 5), (3, 5), (4,)], {}, "bias has one number for each of 3 outputs"),
    (MatMul, [(3,), (3, 4)], {}, "%v0 is 3: reshape it to a matrix"),
    (MatMul, [(2, 3), (4, 5)], {}, "rows of 3 do not meet columns of 4: shapes are 2x3 and 4x5"),
    (MatMul, [(2, 4, 3), (3, 3, 5)], {}, "shapes 2 and 3 do not broadcast"),
    (BatchNorm, [(1, 3, 2, 2), (3,), (3,), (4,), (3,)], {}, "mean has shape 3"),
    (BatchNorm, [X, (4,), (4,), (4,), (4,)], {"training_mode": 1}, "training_mode is 0"),
    (Add, [(2, 3), (2, 4)], {}, "shapes 2x3 and 2x4 do not broadcast"),
    (Concat, [(2, 3), (3, 3)], {"axis": 1}, "2x3 and 3x3 differ beside axis 1"),
    (Concat, [(2, 3)], {"axis": 2}, "axis 2 is outside a tensor of 2 dims"),
    (Split, [(7, 2)], {"split": (3, 3)}, "adds up to 6, the dim is 7"),
    (Split, [(7, 2)], {"split": (8, -1)}, "none negative"),
    (Split, [(7, 2)], {}, "either split .sizes. or num_outputs"),
    (Split, [(5,)], {"num_outputs": 4}, "does not split into 4 parts"),
    (Flatten, [(2, 3)], {"axis": 3}, "axis 3 is outside"),
    (Reshape, [(2, 3)], {"shape": (4, -1)}, "2x3 does not reshape"),
    (Reshape, [(2, 3)], {"shape": (-1, -1)}, "at most one -1"),
    (Reshape, [(2, 3)], {"shape": (2, 2)}, "has 6 elements"),
    (Reshape, [(2, 3)], {"shape": (2, 3, 0)}, "copies dim 2"),
    (Reshape, [(2, 3)], {"shape": (-2, 3)}, "at least -1"),
    (Expand, [(2, 3)], {"shape": (2, 4)}, "do not broadcast"),
    (Expand, [(2, 3)], {"shape": (-1, 3)}, "no negative dims"),
    (Softmax, [(2, 3)], {"axis": -3}, "axis -3 is outside"),
    (Clip, [(2,)], {"min": float("nan")}, "nan"),
    (Quantize, [(2,)], {"zero_point": 3}, "comes with a scale"),
    (Dequantize, [(2,)], {}, "expected codes"),
]


@pytest.mark.parametrize(("cls", "shapes", "attributes", "expected"), REFUSED)
def test_a_mismatch_is_refused(
    cls: type[Op], shapes: Shapes, attributes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        cls(values(shapes), attributes)


def i8(shape: tuple[int, ...], scale: float = 0.1, zero_point: int = 0) -> TensorType:
    return TensorType(shape, DType.I8, Quant.per_tensor(scale, zero_point))


def conv(
    w: TensorType, bias: TensorType | None = None, y: TensorType | None = None, **attributes: Any
) -> Conv2d:
    given = None if bias is None else Value("b", bias)
    operands = [Value("x", i8((1, 4, 5, 5))), Value("w", w), given]
    return Conv2d(operands, attributes, result_types=[y or i8((1, 2, 5, 5))])


WEIGHTS = i8((2, 4, 1, 1))


def per_axis(axis: int, scales: tuple[float, ...], points: tuple[int, ...]) -> TensorType:
    return TensorType((2, 4, 1, 1), DType.I8, Quant(scales, points, axis))


UNSOUND = [
    (lambda: conv(i8((2, 4, 1, 1), zero_point=1)), "weight zero points other than 0"),
    (lambda: conv(per_axis(1, (0.1,) * 4, (0,) * 4)), "along axis 1, expected 0"),
    (lambda: conv(per_axis(0, (0.1,) * 3, (0,) * 3)), "3 scales for 2 channels"),
    (lambda: conv(per_axis(0, (0.1, 0.0), (0, 0))), "scale 0.0, expected a positive"),
    (lambda: conv(TensorType((2, 4, 1, 1))), "expected i8 weights"),
    (lambda: conv(WEIGHTS, TensorType((2,))), "expected an i32 bias"),
    (
        lambda: conv(WEIGHTS, TensorType((2,), DType.I32, Quant.per_tensor(0.1, 0))),
        "input scale . weight scale",
    ),
    (lambda: conv(WEIGHTS, y=i8((1, 2, 4, 5))), "has shape 1x2x4x5, expected 1x2x5x5"),
    (lambda: conv(WEIGHTS, y=TensorType((1, 2, 5, 5))), "is f32, expected i8"),
    (lambda: conv(WEIGHTS, y=TensorType((1, 2, 5, 5), DType.I8)), "no quantisation parameters"),
    (lambda: conv(WEIGHTS, y=i8((1, 2, 5, 5), zero_point=128)), "zero point 128"),
    (lambda: conv(WEIGHTS, inner_scale=0.1), "come with a residual only"),
    (lambda: conv(WEIGHTS, clamp=(1.0, 0.0)), "low <= high"),
    (
        lambda: Relu([Value("x", i8((2,)))], result_types=[i8((2,), scale=float("nan"))]),
        "expected a positive number",
    ),
    (
        lambda: AvgPool2d(
            [Value("x", i8((1, 1, 2, 2)))],
            {"kernel_shape": (2, 2)},
            result_types=[i8((1, 1, 1, 1), 0.2)],
        ),
        "has the parameters of its operand",
    ),
    (
        lambda: Softmax([Value("x", i8((1, 4)))], result_types=[i8((1, 4))]),
        "the result has parameters",
    ),
    (
        lambda: Quantize(
            [Value("x", TensorType((2,)))], {"scale": 0.2}, result_types=[i8((2,), 0.1)]
        ),
        "attributes say",
    ),
]


@pytest.mark.parametrize(("make", "expected"), UNSOUND)
def test_unsound_quantisation_is_refused(make: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        make().verify()


def test_mixed_element_types_are_refused() -> None:
    with pytest.raises(ValueError, match="one element type"):
        Add([Value("a", i8((2,))), Value("b", TensorType((2,)))])


def test_an_integer_residual_needs_inner_parameters() -> None:
    operands = [
        Value("x", i8((1, 4, 5, 5))),
        Value("w", WEIGHTS),
        None,
        Value("r", i8((1, 2, 5, 5))),
    ]
    op = Conv2d(operands, result_types=[i8((1, 2, 5, 5))])
    with pytest.raises(ValueError, match="needs inner_scale and inner_zp"):
        op.verify()


LIMITED: list[tuple[type[Op], Shapes, dict[str, Any], str]] = [
    (Relu, [(1, 1, 1, 1, 1)], {}, "at most 4 dims"),
    (Relu, [(1, 0, 32)], {}, "at least one element"),
    (Dense, [(0, 32), (4, 32)], {}, "at least one element"),
    (Conv2d, [(1, 1, 300, 300), (1, 1, 256, 1)], {}, "at most 255"),
    (Conv2d, [(1, 1, 600, 4), (1, 1, 2, 1)], {"dilations": (256, 1)}, "at most 255"),
    (Conv2d, [(1, 1, 4, 4), (1, 1, 2, 2)], {"pads": (0, 0, 256, 0)}, "at most 255"),
    (MaxPool2d, [(1, 1, 9, 9)], {"kernel_shape": (1, 1), "strides": (256, 1)}, "at most 255"),
    (BatchNorm, [(1, 3), (3,), (3,), (3,), (3,)], {}, "only folded"),
]


@pytest.mark.parametrize(("cls", "shapes", "attributes", "expected"), LIMITED)
def test_a_hardware_limit_is_named_with_its_remedy(
    cls: type[Op], shapes: Shapes, attributes: dict[str, Any], expected: str
) -> None:
    broken = cls(values(shapes), attributes).broken_limits()
    assert [expected in limit.text for limit in broken] == [True]
    assert broken[0].remedy


DYNAMIC: list[tuple[type[Op], Shapes, dict[str, Any], tuple[int | None, ...]]] = [
    (Conv2d, [(None, 4, None, 5), W], {"auto_pad": "SAME_UPPER"}, (None, 6, None, 5)),
    (MaxPool2d, [(None, 4, None, 5)], {"kernel_shape": (2, 2)}, (None, 4, None, 4)),
    (GlobalAvgPool, [(None, 3, None, None)], {}, (None, 3, 1, 1)),
    (Dense, [(None, 5), (3, 5)], {}, (None, 3)),
    (MatMul, [(None, 7, 5), (5, None)], {}, (None, 7, None)),
    (Add, [(None, 3), (1, 3)], {}, (None, 3)),
    (Flatten, [(None, 3, 4)], {}, (None, 12)),
    (Flatten, [(2, None, 4)], {}, (2, None)),
    (Reshape, [(None, 3, 4)], {"shape": (0, -1)}, (None, 12)),
    (Reshape, [(None, 3, 4)], {"shape": (-1, 12)}, (None, 12)),
    (Concat, [(None, 3), (2, 4)], {"axis": 1}, (2, 7)),
    (Concat, [(None, 3), (2, 3)], {"axis": 0}, (None, 3)),
    (Softmax, [(None, 3)], {}, (None, 3)),
]


@pytest.mark.parametrize(("cls", "shapes", "attributes", "expected"), DYNAMIC)
def test_a_dynamic_dim_flows_through(
    cls: type[Op], shapes: Shapes, attributes: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    op = cls(values(shapes), attributes)
    assert op.result.tensor.shape == expected
    op.verify()


@pytest.mark.parametrize("cls", [Relu, Softmax])
def test_c30_an_empty_tensor_gives_an_empty_result(cls: type[Op]) -> None:
    op = cls(values([(1, 0, 32)]), {})
    assert op.reference([np.zeros((1, 0, 32))], Rounding.DOUBLE)[0].shape == (1, 0, 32)
