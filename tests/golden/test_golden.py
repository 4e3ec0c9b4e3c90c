"""Blobs of every released ABI version are run or refused as written down beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npuabi.container import read_blob
from npuabi.errors import AbiError
from npuabi.target import load_target
from npufw.boot import boot
from npufw.engine import Engine
from npufw.selftest import selftest

FOLDER = Path(__file__).parent
CASES = [
    pytest.param(path.parent / name, wanted, id=f"{path.parent.name}/{name}")
    for path in sorted(FOLDER.glob("*/expected.json"))
    for name, wanted in json.loads(path.read_text()).items()
]


def verdict(path: Path) -> str:
    """Return ``runs`` when the known answer comes out, else the name of what refused the blob."""
    try:
        image = boot(path.read_bytes(), load_target("edge"))
    except AbiError as error:
        return error.code.name
    return "runs" if selftest(Engine(image)).passed else "gives a wrong answer"


@pytest.mark.parametrize(("path", "wanted"), CASES)
def test_a_golden_blob_is_treated_as_written_down(path: Path, wanted: str) -> None:
    assert verdict(path) == wanted


def test_a_golden_blob_has_the_version_of_its_folder() -> None:
    for case in CASES:
        path = case.values[0]
        assert isinstance(path, Path)
        version = read_blob(path.read_bytes(), target=load_target("edge")).version
        assert path.parent.name == f"abi-{version[0]}.{version[1]}", f"{path} was overwritten"


def test_every_golden_blob_is_written_down() -> None:
    known = {case.values[0] for case in CASES}
    assert set(FOLDER.glob("*/*.bin")) == known
