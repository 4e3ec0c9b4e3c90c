"""The models with made-up weights: reproducible, as committed, and of the published shape."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tools.make_models import write_models
from tools.networks import NETWORKS, SAMPLES

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
    assert len(names) == len(NETWORKS) + len(SAMPLES) + 1
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
    ("name", "weights"),
    [
        # torchvision's parameters, less two of batch norm a channel and 1,000 biases.
        ("resnet18", 11_689_512 - 9_600 - 1_000),
        ("resnet50", 25_557_032 - 53_120 - 1_000),
        ("mobilenet_v2", 3_504_872 - 34_112 - 1_000),
        # Keras' trainable parameters, less the same.
        ("mobilenet_v1", 4_231_976 - 21_888 - 1_000),
        # MLPerf Tiny's parameters, less four of batch norm a channel and the biases.
        ("resnet8", 78_666 - 960 - 346),
        ("mobilenet_v1_025_96", 221_794 - 10_944 - 2_738),
        ("ds_cnn", 24_908 - 2_304 - 588),
        ("autoencoder", 269_992 - 4_128 - 1_672),
    ],
)
def test_the_networks_have_the_published_number_of_weights(name: str, weights: int) -> None:
    shapes = re.findall(r"%\w+_w = const random\(.*\) : tensor<([\dx]+)xf32>", NETWORKS[name]())
    assert sum(int(np.prod([int(d) for d in shape.split("x")])) for shape in shapes) == weights


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_random_constant_has_its_own_seed(name: str) -> None:
    seeds = re.findall(r"seed = (\d+)", NETWORKS[name]())
    assert len(seeds) == len(set(seeds))
