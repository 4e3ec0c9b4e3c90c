"""The wheel: what is in it, and that it works alone in a fresh environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "conv_bn_relu.txt"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the commands of an environment with nothing but the wheel."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=True)
    folder = home / ("Scripts" if os.name == "nt" else "bin")
    quiet = ("--quiet", "--disable-pip-version-check")
    _run(str(folder / "python"), "-m", "pip", "install", *quiet, str(wheel), cwd=home)
    return folder


def _run(*command: str, cwd: Path) -> str:
    """Run a command without the environment's Python paths; return its standard output."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize(
    "folder", ["compiler/npuc", "firmware/npuabi", "firmware/npufw", "runtime/npurt"]
)
def test_the_wheel_holds_every_file_of_the_packages(wheel: Path, folder: str) -> None:
    package = ROOT / folder
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{package.name}/py.typed" in files
    assert files <= _contents(wheel)


def test_the_wheel_holds_grammar_and_targets(wheel: Path) -> None:
    contents = _contents(wheel)
    assert any(name.startswith("npuc/") and name.endswith(".lark") for name in contents)
    for target in ("edge", "edge-quad", "tiny"):
        assert f"npuabi/targets/{target}.toml" in contents


def test_the_wheel_holds_nothing_but_the_packages(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in _contents(wheel)}
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops == {"npuabi", "npuc", "npufw", "npurt", info}
    assert f"{info}/licenses/LICENSE" in _contents(wheel)


@pytest.mark.parametrize("command", ["npuc", "npufw", "npurt"])
def test_the_installed_commands_give_the_version_of_the_wheel(
    commands: Path, wheel: Path, command: str
) -> None:
    version = wheel.name.split("-")[1]
    assert version in _run(str(commands / command), "--version", cwd=commands)


def test_the_installed_commands_compile_and_run_a_model(commands: Path, tmp_path: Path) -> None:
    blob = tmp_path / "model.bin"
    _run(str(commands / "npuc"), "compile", str(MODEL), "-o", str(blob), cwd=tmp_path)
    output = tmp_path / "y.npz"
    _run(str(commands / "npufw"), "run", str(blob), "--output", str(output), cwd=tmp_path)
    with zipfile.ZipFile(output) as archive:
        assert archive.namelist() == ["p.npy", "q.npy"]
