"""The demo's own arithmetic: the float accuracy that the README of the models states."""

from __future__ import annotations

from pathlib import Path

from tools.demo import float_correct

MODELS = Path(__file__).parents[3] / "models"


def test_the_float_graph_is_right_on_357_of_360_test_images() -> None:
    assert float_correct(MODELS / "digits.txt", MODELS / "digits_test.npz") == (357, 360)
