"""The committed digits: text as the tool writes it, and files that fit it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tools.train_digits import LAYERS, graph_text, loss_gradient, network, split, weights

MODELS = Path(__file__).parents[3] / "models"


def test_the_committed_text_is_what_the_tool_writes() -> None:
    assert (MODELS / "digits.txt").read_text(encoding="utf-8") == graph_text()


def test_the_text_names_every_weight_of_the_network_with_its_shape() -> None:
    named = re.findall(r'file\("digits\.npz", "(\w+)"\) : tensor<([\dx]+)xf32>', graph_text())
    shapes = {name: tuple(map(int, dims.split("x"))) for name, dims in named}
    net = network(np.random.default_rng(0))
    assert shapes == {name: array.shape for name, array in weights(net).items()}
    with np.load(MODELS / "digits.npz") as committed:
        assert shapes == {name: committed[name].shape for name in committed.files}
        assert {committed[name].dtype for name in committed.files} == {np.dtype(np.float32)}


def test_batch_norms_bear_real_statistics() -> None:
    with np.load(MODELS / "digits.npz") as committed:
        for name in (layer for layer in LAYERS if layer.startswith("n")):
            assert (committed[f"{name}_var"] > 0).all()
            assert np.ptp(committed[f"{name}_mean"]) > 0
            assert np.ptp(committed[f"{name}_var"]) > 0


def test_test_images_are_whole_and_in_range() -> None:
    with np.load(MODELS / "digits_test.npz") as test:
        assert test["image"].shape == (360, 1, 8, 8)
        assert test["image"].dtype == np.float32
        assert test["labels"].shape == (360,)
        assert test["labels"].dtype == np.int64
        np.testing.assert_array_equal(test["image"] * 16, np.rint(test["image"] * 16))
        assert test["image"].min() == 0.0
        assert test["image"].max() == 1.0
        assert np.bincount(test["labels"]).min() >= 34


def test_no_calibration_image_is_a_test_image() -> None:
    with (
        np.load(MODELS / "digits_calib.npz") as calibration,
        np.load(MODELS / "digits_test.npz") as test,
    ):
        seen = {image.tobytes() for image in calibration["image"]}
        assert len(seen) == 128
        assert not seen & {image.tobytes() for image in test["image"]}


def test_the_split_is_fixed_and_shares_no_image() -> None:
    labels = np.repeat(np.arange(10), 180)[:1797]
    train, test = split(labels)
    assert len(test) == 360
    assert len(train) == 1437
    assert not set(train.tolist()) & set(test.tolist())
    assert np.array_equal(split(labels)[1], test)


def test_the_loss_has_its_derivative() -> None:
    logits = np.random.default_rng(1).standard_normal((2, 10))
    labels = np.array([3, 7])
    _, found = loss_gradient(logits, labels)
    for index in np.ndindex(logits.shape):
        moved = logits.copy()
        moved[index] += 1e-6
        slope = (loss_gradient(moved, labels)[0] - loss_gradient(logits, labels)[0]) / 1e-6
        assert abs(slope - found[index]) < 1e-5
