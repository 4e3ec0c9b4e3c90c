"""Float references against values of shared/cases.md and of the ONNX operator pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuabi.enums import Rounding
from npuc.ir.core import Array, Op, Value
from npuc.ir.types import TensorType
from npuc.ops import (
    Add,
    AvgPool2d,
    BatchNorm,
    Clip,
    Concat,
    Conv2d,
    Dense,
    Expand,
    Flatten,
    GlobalAvgPool,
    MaxPool2d,
    Relu,
    Reshape,
    Softmax,
    Split,
)


def run(cls: type[Op], *arrays: Any, **attributes: Any) -> Array:
    """Return the only result of an op on float arrays."""
    given = [np.asarray(a, np.float64) for a in arrays]
    op = cls([Value("v", TensorType(a.shape)) for a in given], attributes)
    op.verify()
    (result,) = op.reference(given, Rounding.DOUBLE)
    assert result.shape == op.result.tensor.dims
    return result


def plane(rows: Any) -> Array:
    """Return a (1, 1, H, W) tensor."""
    return np.asarray(rows, np.float64)[None, None]


ONES_3X3 = np.ones((1, 1, 3, 3))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"auto_pad": "SAME_UPPER"}, [[9, 6], [6, 4]]),
        ({"auto_pad": "SAME_LOWER"}, [[4, 6], [6, 9]]),
        ({"pads": (1, 1, 1, 1)}, [[4, 6], [6, 9]]),
    ],
)
def test_c01_stride_2_same_pads_on_the_right_side(attributes: Any, expected: Any) -> None:
    y = run(Conv2d, np.ones((1, 1, 4, 4)), ONES_3X3, strides=(2, 2), **attributes)
    assert y[0, 0].tolist() == expected


def test_c03_average_pool_divides_by_the_right_count() -> None:
    ones = plane(np.ones((2, 2)))
    pads: dict[str, Any] = {"kernel_shape": (2, 2), "pads": (0, 0, 1, 1)}
    assert run(AvgPool2d, ones, count_include_pad=1, **pads)[0, 0].tolist() == [
        [1, 0.5],
        [0.5, 0.25],
    ]
    assert run(AvgPool2d, ones, **pads)[0, 0].tolist() == [[1, 1], [1, 1]]


def test_c03_what_ceil_mode_adds_beyond_the_pads_is_not_counted() -> None:
    y = run(
        AvgPool2d,
        plane([[1, 2, 3, 4, 5]]),
        kernel_shape=(1, 2),
        strides=(1, 2),
        ceil_mode=1,
        count_include_pad=1,
    )
    assert y[0, 0].tolist() == [[1.5, 3.5, 5.0]]


def test_c04_softmax_of_opset_13_normalises_the_last_axis() -> None:
    assert run(Softmax, np.zeros((2, 3, 4))).tolist() == np.full((2, 3, 4), 0.25).tolist()


def test_c04_softmax_of_opset_11_is_a_softmax_between_reshapes() -> None:
    flat = run(Flatten, np.zeros((2, 3, 4)))
    shares = run(Reshape, run(Softmax, flat), shape=(2, 3, 4))
    assert shares.tolist() == np.full((2, 3, 4), 1 / 12).tolist()


def test_c08_dilation_counts_in_same_padding() -> None:
    y = run(
        Conv2d,
        np.ones((1, 1, 1, 8)),
        np.ones((1, 1, 1, 3)),
        dilations=(1, 2),
        auto_pad="SAME_UPPER",
    )
    assert y[0, 0].tolist() == [[2, 2, 3, 3, 3, 3, 2, 2]]


def test_c08_dilation_counts_in_shape_inference() -> None:
    x, w = Value("x", TensorType((1, 10, 1, 100))), Value("w", TensorType((32, 10, 1, 3)))
    conv = Conv2d([x, w], {"dilations": (1, 2), "auto_pad": "VALID"})
    assert conv.result.tensor.shape == (1, 32, 1, 96)
    assert Flatten([conv.result]).result.tensor.shape == (1, 3072)


def test_c09_depthwise_output_channel_is_input_channel_times_multiplier_plus_index() -> None:
    x, w = np.array([1, 10]).reshape(1, 2, 1, 1), np.arange(1, 5).reshape(4, 1, 1, 1)
    assert run(Conv2d, x, w, group=2).ravel().tolist() == [1, 2, 30, 40]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"max": 6.0}, [-9, 3, 6]),
        ({"min": 0.0, "max": 6.0}, [0, 3, 6]),
        ({"min": -1.0}, [-1, 3, 9]),
        ({}, [-9, 3, 9]),
        ({"min": 6.0, "max": 0.0}, [0, 0, 0]),
    ],
)
def test_c10_clip_takes_absent_bounds_and_lets_max_win(bounds: Any, expected: Any) -> None:
    assert run(Clip, [-9, 3, 9], **bounds).tolist() == expected


@pytest.mark.parametrize("cls", [MaxPool2d, AvgPool2d])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "expected"),
    [((8, 10), 3, 4, (2, 3)), ((5, 6), 1, 2, (3, 3))],
)
def test_c23_a_window_that_starts_in_the_end_padding_is_dropped(
    cls: type[Op], size: tuple[int, int], kernel: int, stride: int, expected: tuple[int, int]
) -> None:
    y = run(
        cls,
        np.zeros((1, 1, *size)),
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        ceil_mode=1,
    )
    assert y.shape[2:] == expected


def test_c28_softmax_over_channels_sums_to_one_at_each_pixel() -> None:
    x = np.arange(12.0).reshape(1, 3, 2, 2)
    y = run(Softmax, x, axis=1)
    assert np.allclose(y.sum(axis=1), 1.0)
    assert not np.allclose(y.sum(axis=3), 1.0)


def test_c32_same_upper_pads_the_end() -> None:
    x, kernel = np.ones((1, 1, 7, 5)), np.ones((1, 1, 2, 2))
    y = run(Conv2d, x, kernel, strides=(2, 2), auto_pad="SAME_UPPER")
    assert y.shape == (1, 1, 4, 3)
    assert (y[0, 0, 0, 0], y[0, 0, -1, -1]) == (4, 1)


def test_c43_concat_keeps_the_order_of_its_pieces() -> None:
    assert run(Concat, [[3.0]], [[1.0, 2.0]], [[0.0]], axis=1).tolist() == [[3, 1, 2, 0]]


def test_batch_norm_is_the_textbook_affine() -> None:
    y = run(BatchNorm, [[5.0, 1.0]], [2.0, 1.0], [0.5, 0.0], [1.0, 1.0], [3.0, 0.0], epsilon=1.0)
    assert y.tolist() == [[4.5, 0.0]]


def test_pools_ignore_padding_when_all_inputs_are_negative() -> None:
    x = plane([[-5.0, -2.0], [-3.0, -4.0]])
    y = run(MaxPool2d, x, kernel_shape=(2, 2), pads=(1, 1, 0, 0))
    assert y[0, 0].tolist() == [[-5, -2], [-3, -2]]


def test_global_avg_pool_dense_and_relu_in_a_row() -> None:
    mean = run(GlobalAvgPool, np.arange(8.0).reshape(1, 2, 2, 2))
    assert mean.ravel().tolist() == [1.5, 5.5]
    y = run(Dense, mean.reshape(1, 2), [[1.0, 0.0], [0.0, -1.0]], [0.5, 0.5])
    assert run(Relu, y).tolist() == [[2.0, 0.0]]


def test_add_broadcasts_as_numpy_does() -> None:
    assert run(Add, [[1.0], [2.0]], [10.0, 20.0]).tolist() == [[11, 21], [12, 22]]


def test_expand_keeps_a_dim_where_the_stated_shape_has_1() -> None:
    assert run(Expand, [[1.0], [2.0]], shape=(1, 2)).tolist() == [[1, 1], [2, 2]]


def test_reshape_and_flatten_keep_row_major_order() -> None:
    x = np.arange(6.0).reshape(1, 2, 3)
    assert run(Reshape, x, shape=(3, -1)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert run(Flatten, x, axis=2).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_split_without_sizes_makes_the_last_part_smaller() -> None:
    x = Value("x", TensorType((7,)))
    op = Split([x], {"num_outputs": 3})
    parts = op.reference([np.arange(7.0)], Rounding.DOUBLE)
    assert [p.tolist() for p in parts] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_fused_residual_is_added_between_the_two_clamps() -> None:
    x, w, r = plane([[4.0]]), np.ones((1, 1, 1, 1)), plane([[-3.0]])
    values = [Value("v", TensorType(a.shape)) for a in (x, w, r)]
    op = Conv2d(
        [values[0], values[1], None, values[2]],
        {"inner_clamp": (0.0, 2.0), "clamp": (-0.5, 9.0)},
    )
    assert op.reference([x, w, None, r], Rounding.DOUBLE)[0].tolist() == [[[[-0.5]]]]
