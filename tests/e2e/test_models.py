"""The networks of models/ as networks: their answers vary, int8 follows float, README is right."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npuabi.npz import read_arrays
from npuabi.target import load_target
from npuc.driver import compile
from npuc.frontend.text import parse_file
from npuc.ir.interpreter import evaluate
from npufw.boot import boot
from npufw.engine import Engine
from tools.networks import NETWORKS

MODELS = Path(__file__).parents[2] / "models"
LARGE = ("resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2")
SMALL = sorted(NETWORKS.keys() - set(LARGE))

LIMITS = {"resnet50": (25, 3), "mobilenet_v1": (12, 2), "mobilenet_v2": (12, 2)}
"""Seconds that compiling and running one image may take on one core, interpreter and all."""

MOST_KIB = 2 << 20
BOUND = {"resnet50": 16_090_000, "mobilenet_v1": 2_320_000, "mobilenet_v2": 1_320_000}
"""Cycles on a perfect memory with the better array mode of each op."""


def readme_cycles(name: str) -> float:
    """Return the cycles on edge that models/README.md gives."""
    rows = (MODELS / "README.md").read_text(encoding="utf-8").splitlines()
    row = next(row for row in rows if row.startswith(f"| `{name}.txt`"))
    number, unit = row.split("|")[5].split()
    return float(number) * {"k": 1e3, "M": 1e6}[unit]


@pytest.mark.parametrize("name", SMALL)
def test_int8_follows_float_down_to_outputs_that_vary(name: str) -> None:
    path = MODELS / f"{name}.txt"
    graph = parse_file(path)
    samples = read_arrays(MODELS / str(graph.attributes["calibration"]))
    made = compile(path)
    assert made.timeline.cycles == pytest.approx(readme_cycles(name), rel=0.05)
    one = {key: array[:1] for key, array in samples.items()}
    expected = evaluate(graph, one, made.rounding)
    found = Engine(boot(made.blob, made.target)).run(one)
    for key, array in expected.items():
        noise = found[key] - array
        assert 10 * np.log10(array.var() / noise.var()) > 20, key
        assert len(np.unique(found[key])) >= min(8, array.size), key


@pytest.mark.long
@pytest.mark.parametrize("name", LIMITS)
def test_a_large_network_is_compiled_and_run_in_seconds(name: str, tmp_path: Path) -> None:
    compile_s, run_s = LIMITS[name]
    blob = tmp_path / "x.bin"
    took = _seconds("npuc", "compile", MODELS / f"{name}.txt", "-o", blob)
    assert took <= compile_s
    assert min(_seconds("npufw", "run", blob) for _ in range(3)) <= run_s
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < MOST_KIB
    _seconds("npufw", "selftest", blob)
    image = boot(blob.read_bytes(), load_target("edge"))
    assert len(image.steps) < 5000
    assert image.timeline.cycles == pytest.approx(readme_cycles(name), rel=0.05)
    assert image.timeline.cycles < 1.15 * BOUND[name]


def _seconds(program: str, *arguments: object) -> float:
    """Return the processor's seconds, on which a busy machine has less influence."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", program, *map(str, arguments)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
