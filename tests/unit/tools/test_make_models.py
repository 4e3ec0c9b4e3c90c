"""The models with made-up weights: reproducible, as committed, and of the published shape."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tools.make_models import resnet8, resnet18, write_models

MODELS = Path(__file__).parents[3] / "models"
LIMIT = 2 << 20  # bytes of calibration in the repository


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder


def test_two_runs_write_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_models(tmp_path)
    names = sorted(path.name for path in written.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 7
    for name in names:
        assert (tmp_path / name).read_bytes() == (written / name).read_bytes(), name


def test_the_committed_texts_are_what_the_tool_writes(written: Path) -> None:
    for path in written.glob("*.txt"):
        assert (MODELS / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_committed_arrays_are_what_the_tool_writes(written: Path) -> None:
    # Compared by value: another build of zlib may pack the same bytes otherwise.
    for path in written.glob("*.npz"):
        with np.load(path) as new, np.load(MODELS / path.name) as committed:
            assert new.files == committed.files
            for key in new.files:
                assert new[key].dtype == committed[key].dtype == np.float32
                np.testing.assert_array_equal(new[key], committed[key])


def test_calibration_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in MODELS.glob("*_calib.npz")) < LIMIT


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        # MLPerf Tiny's 78,666 parameters, less 960 of batch norm and 346 biases.
        (resnet8(), 77_360),
        # torchvision's resnet18: 11,689,512 parameters, less 9,600 of batch norm and 1,000 biases.
        (resnet18(), 11_678_912),
    ],
)
def test_the_networks_have_the_published_number_of_weights(text: str, weights: int) -> None:
    shapes = re.findall(r"%\w+_w = const random\(.*\) : tensor<([\dx]+)xf32>", text)
    assert sum(int(np.prod([int(d) for d in shape.split("x")])) for shape in shapes) == weights


@pytest.mark.parametrize(("text", "convolutions"), [(resnet8(), 9), (resnet18(), 20)])
def test_the_networks_have_the_published_number_of_convolutions(
    text: str, convolutions: int
) -> None:
    assert text.count("= conv2d(") == convolutions
    assert text.count("= dense(") == 1


def test_every_random_constant_has_its_own_seed() -> None:
    seeds = re.findall(r"seed = (\d+)", resnet18())
    assert len(seeds) == len(set(seeds))
