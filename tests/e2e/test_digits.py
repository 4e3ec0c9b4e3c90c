"""The trained network end to end: what the firmware answers is what the compiler promised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.driver import Compilation, compile
from npufw.boot import boot
from npufw.engine import Engine

MODELS = Path(__file__).parents[2] / "models"
FLOAT_CORRECT = 357  # tests/unit/tools/test_demo.py counts them
COMPARED = 12  # images through the slow reference


@pytest.fixture(scope="module", params=["double", "single", "even"])
def compiled(request: pytest.FixtureRequest) -> Compilation:
    return compile(MODELS / "digits.txt", rounding=request.param)


@pytest.mark.parametrize("precision", ["int16", "fp16", "fp32"])
def test_a_wider_precision_loses_at_most_one_of_the_test_images(precision: str) -> None:
    made = compile(MODELS / "digits.txt", precision=precision)
    with np.load(MODELS / "digits_test.npz") as test:
        images, labels = test["image"], test["labels"]
    (found,) = Engine(boot(made.blob, made.target)).run({"image": images}).values()
    correct = int((found.reshape(len(labels), -1).argmax(axis=1) == labels).sum())
    assert correct >= FLOAT_CORRECT - 1


def test_int8_loses_at_most_one_of_the_test_images_and_no_bit_of_the_reference(
    compiled: Compilation,
) -> None:
    with np.load(MODELS / "digits_test.npz") as test:
        images, labels = test["image"], test["labels"]
    engine = Engine(boot(compiled.blob, compiled.target))
    (found,) = engine.run({"image": images}).values()
    correct = int((found.reshape(len(labels), -1).argmax(axis=1) == labels).sum())
    assert correct >= FLOAT_CORRECT - 1
    for index in range(0, len(labels), len(labels) // COMPARED):
        (wanted,) = compiled.reference({"image": images[index : index + 1]}).values()
        np.testing.assert_array_equal(found[index : index + 1], wanted)
