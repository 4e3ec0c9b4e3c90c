"""Images through the commands: run, eval and compile, and what they say when something is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from npuc.cli import main as npuc
from npufw.cli import main as npufw

MODELS = Path(__file__).parents[2] / "models"
TOML = MODELS / "digits.toml"


def command(main: object, *arguments: object) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    return result.output


def refused(main: object, *arguments: object) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])  # type: ignore[arg-type]
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return result.output


def right(shown: str) -> int:
    """Return the n of ``top-1 p%: n of 30 samples``."""
    found = re.fullmatch(r"top-1 [\d.]+%: (\d+) of 30 samples\n", shown)
    assert found
    return int(found[1])


@pytest.fixture(scope="module")
def blob(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blob") / "digits.bin"
    command(npuc, "compile", MODELS / "digits.txt", "-o", path)
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 30 test images in class folders, three a digit."""
    folder = tmp_path_factory.mktemp("digits")
    with np.load(MODELS / "digits_test.npz") as test:
        images, labels = test["image"], test["labels"]
    for digit in range(10):
        (folder / str(digit)).mkdir()
        for index in np.flatnonzero(labels == digit)[:3]:
            codes = np.rint(images[index, 0] * 240).astype(np.uint8)
            Image.fromarray(codes).save(folder / str(digit) / f"{index}.png")
    return folder


def test_an_image_gives_what_its_array_gives(blob: Path, tmp_path: Path) -> None:
    with np.load(MODELS / "digits_test.npz") as test:
        np.save(tmp_path / "x.npy", test["image"][253:254])
    shown = command(npufw, "run", blob, "--input", tmp_path / "x.npy")
    assert shown == command(
        npufw, "run", blob, "--input", MODELS / "digit.png", "--preprocess", TOML
    )
    named = f"image={MODELS / 'digit.png'}"
    assert shown == command(npufw, "run", blob, "--input", named, "--preprocess", TOML)


def test_a_folder_is_many_samples(blob: Path, digits: Path) -> None:
    shown = command(npufw, "run", blob, "--input", digits, "--preprocess", TOML)
    assert "probabilities 30x10" in shown


def test_classes_are_numbered_by_their_folders_or_by_a_file(blob: Path, digits: Path) -> None:
    assert right(command(npufw, "eval", blob, "--data", digits, "--preprocess", TOML)) >= 29
    wrong = digits / "labels.txt"
    wrong.write_text("".join(f"{d} {(d + 1) % 10}\n" for d in range(10)))
    found = ("eval", blob, "--data", digits, "--preprocess", TOML, "--labels", wrong)
    assert right(command(npufw, *found)) <= 1
    # An image's own line goes before that of its folder.
    with wrong.open("a") as stream:
        for path in digits.rglob("*.png"):
            stream.write(f"{path.parent.name}/{path.name} {path.parent.name}\n")
    assert right(command(npufw, *found)) >= 29
    wrong.write_text("0 0\n")
    assert "gives no class for 1/" in refused(npufw, *found)
    wrong.write_text("zero nought\n")
    assert "labels.txt:1: expected IMAGE CLASS, got 'zero nought'" in refused(npufw, *found)
    wrong.unlink()


def test_ranges_are_measured_on_a_folder_of_images(digits: Path, tmp_path: Path) -> None:
    into = ("-o", tmp_path / "x.bin", "--json")
    model = MODELS / "digits.txt"
    folder = command(npuc, "compile", model, "--calibrate", digits, "--preprocess", TOML, *into)
    assert '"cycles"' in folder
    images = (tmp_path / "x.bin").read_bytes()
    order = sorted(digits.rglob("*.png"), key=lambda p: p.relative_to(digits).as_posix())
    arrays = [np.asarray(Image.open(p), np.float32)[None, None] / 240 for p in order]
    np.savez(tmp_path / "x.npz", image=np.concatenate(arrays))
    command(npuc, "compile", model, "--calibrate", tmp_path / "x.npz", *into)
    assert (tmp_path / "x.bin").read_bytes() == images


def test_what_cannot_be_used_is_refused_with_one_message(
    blob: Path, digits: Path, tmp_path: Path
) -> None:
    image, model = MODELS / "digit.png", MODELS / "digits.txt"
    (tmp_path / "bad.toml").write_text("colour = 'rgb'\n")
    (tmp_path / "x.png").write_bytes(b"no image")
    run = (npufw, "run", blob, "--input")
    assert "with --preprocess" in refused(*run, image)
    assert "is no image of" in refused(*run, tmp_path / "x.png", "--preprocess", TOML)
    shapes = refused(*run, image, "--preprocess", tmp_path / "bad.toml")
    assert "expected 1x1x8x8 float32" in shapes
    assert "got 1x3x8x8 float32" in shapes
    assert "with --preprocess" in refused(npufw, "eval", blob, "--data", digits)
    flat = refused(npufw, "eval", blob, "--data", digits / "3", "--preprocess", TOML)
    assert "has no folder for each class" in flat
    compile_ = (npuc, "compile", model, "-o", tmp_path / "x.bin")
    assert "with --preprocess" in refused(*compile_, "--calibrate", digits)
    assert "goes with images" in refused(*compile_, "--preprocess", TOML)
    empty = refused(*compile_, "--calibrate", tmp_path / "..", "--preprocess", tmp_path / "no.toml")
    assert "no.toml" in empty
    assert not (tmp_path / "x.bin").exists()
