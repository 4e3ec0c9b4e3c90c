"""A blob is a function of the model, its data and the options: not of process, folder or time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "models"
NAMES = ("conv_bn_relu", "digits", "resnet8")


def compiled(folder: Path, name: str, *, seed: str) -> bytes:
    """Return the blob that the command makes of a model copied to *folder*."""
    folder.mkdir()
    for path in MODELS.glob(f"{name}*"):
        shutil.copy(path, folder)
    command = [sys.executable, "-m", "npuc", "compile", f"{name}.txt", "-o", "out.bin", "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return (folder / "out.bin").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_in_two_folders_make_the_same_bytes(name: str, tmp_path: Path) -> None:
    first = compiled(tmp_path / "a", name, seed="1")
    second = compiled(tmp_path / "another folder", name, seed="2")
    assert first == second
