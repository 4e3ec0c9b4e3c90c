"""The versions of blob and firmware: what happens without the policy, and with it."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from npuabi.container import read_blob
from npuabi.errors import AbiError
from npuabi.migrate import migrate
from npufw.boot import image_of
from npufw.engine import Engine
from npufw.fault_models.drift import VERSIONS, Fate, device_abi, fate
from npufw.gates.subject import load_subject

__all__ = ["draw"]

_COLOURS = ("tab:green", "tab:orange", "tab:red", "lightgrey")
_WORDS = ("right", "wrong", "crash", "refused")
_SAMPLES = 8


def matrices() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what firmware (rows) makes of blobs (columns): indices of _WORDS, both measured."""
    subject = load_subject()
    target, newest = subject.image.target, device_abi(VERSIONS[-1])
    inputs = {name: array[:_SAMPLES] for name, array in subject.inputs.items()}
    expected = Engine(subject.image).run(inputs)
    blobs = [migrate(subject.raw, target, version, newest).blob for version in VERSIONS]
    order = list(Fate)
    without = [
        [order.index(fate(raw, ours, target, inputs, expected)) for raw in blobs]
        for ours in VERSIONS
    ]

    def defended(raw: bytes, ours: tuple[int, int]) -> int:
        try:
            loaded = read_blob(raw, target=target, abi=device_abi(ours))
        except AbiError:
            return _WORDS.index("refused")
        given = Engine(image_of(loaded, target)).run(inputs)
        same = all(np.array_equal(given[name], expected[name]) for name in expected)
        return order.index(Fate.RIGHT if same else Fate.WRONG)

    behind = [[defended(raw, ours) for raw in blobs] for ours in VERSIONS]
    return np.array(without), np.array(behind)


def draw(path: Path) -> None:
    """Draw the figure to *path*."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    names = [f"{major}.{minor}" for major, minor in VERSIONS]
    titles = ("without the policy", "with it")
    for axes, title, matrix in zip(figure.subplots(1, 2), titles, matrices(), strict=True):
        axes.imshow(matrix, cmap=ListedColormap(_COLOURS), vmin=0, vmax=len(_COLOURS) - 1)
        for (row, column), value in np.ndenumerate(matrix):
            axes.text(column, row, _WORDS[value], ha="center", va="center", fontsize=6)
        axes.set(title=title, xlabel="the blob's ABI", ylabel="the firmware's ABI")
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), names)
    with mpl.rc_context({"svg.hashsalt": "npu", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
