"""The mode of a stripe: fixed where there is no choice, the cheaper one where there is."""

from __future__ import annotations

import pytest

from npuabi.enums import DType, Layout, Space
from npuabi.target import load_target
from npuc.ir.core import Value
from npuc.ir.types import TensorType
from npuc.npu.builder import device_type
from npuc.npu.modes import choose_mode
from npuc.npu.tasks import Conv, Depthwise, MaxPool, Task

EDGE = load_target("edge")


def _task(kind: type[Task], pixels: int, depth: int, outputs: int) -> Task:
    def buffer(channels: int) -> Value:
        tensor = TensorType((1, channels, 1, pixels), DType.I8, layout=Layout.NCHW16C)
        return Value("v", device_type(tensor, Space.SRAM, row_pitch=16))

    return kind([buffer(depth), buffer(outputs)])


@pytest.mark.parametrize("best", [False, True])
def test_only_products_choose(best: bool) -> None:
    assert choose_mode(_task(Depthwise, 9, 16, 16), EDGE, best=best) == "depthwise"
    assert choose_mode(_task(MaxPool, 9, 16, 16), EDGE, best=best) == "none"


def test_without_best_products_are_output_stationary() -> None:
    for pixels, depth in ((1, 512), (64, 16), (400, 16)):
        assert choose_mode(_task(Conv, pixels, depth, 16), EDGE, best=False) == "output_stationary"


def test_fewer_pixels_than_an_array_has_rows_keep_the_weights_and_ties_the_sums() -> None:
    # 16 pixels fill the array either way; one of great depth leaves 15 rows of it idle.
    assert choose_mode(_task(Conv, 1, 512, 16), EDGE, best=True) == "weight_stationary"
    assert choose_mode(_task(Conv, 16, 512, 16), EDGE, best=True) == "output_stationary"
