"""Labelled images in a folder: which files there are, and the class of each.

In a folder of class folders the classes are numbered in the order of the folders' sorted names, or
by the names where all are whole numbers. A labels file says it line by line: the path of an image
or the name of a class folder, a space, the number of the class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import ErrorCode
from npuabi.images import check_images, image_files, read_images
from npuabi.preprocess import ImageError, Preprocess
from npuabi.progress import Progress, silent
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.evaluate import Accuracy, evaluate

__all__ = ["evaluate_images", "labelled"]

_AT_ONCE = 64
"""Images that are decoded before they run: a data set need not fit the memory."""

_MAX_LABELS_BYTES = 1 << 26


def evaluate_images(
    engine: Engine,
    folder: Path,
    labels: str | None,
    recipe: Preprocess,
    *,
    progress: Progress = silent,
) -> Accuracy:
    """Return the accuracy of *engine* on the images in *folder*; *labels* is a labels file.

    Raises FirmwareError INPUT_IMAGE for images and labels that cannot be used.
    """
    ports = engine.image.inputs
    if len(ports) != 1:
        text = f"images are for networks with one input, this one has {len(ports)}"
        raise FirmwareError(ErrorCode.INPUT_IMAGE, text)
    try:
        paths, classes = labelled(folder, labels)
        # A file that is no image must not end a long run near its end.
        check_images(paths)
        batch = ports[0].shape[0] if ports[0].shape else 1
        step = -(-_AT_ONCE // batch) * batch
        found = Accuracy(samples=0, correct=0)
        for first in range(0, len(paths), step):
            array = read_images(paths[first : first + step], recipe)
            part = classes[first : first + step]
            found += evaluate(engine, {ports[0].name: array}, part)
            progress("samples", first + len(part), len(paths))
    except ImageError as error:
        raise FirmwareError(ErrorCode.INPUT_IMAGE, str(error)) from error
    return found


def labelled(folder: Path, labels: str | None) -> tuple[list[Path], NDArray[np.int64]]:
    """Return the images in *folder*, sorted, and their classes. Raises ImageError, OSError."""
    paths = image_files(folder)
    names = [path.relative_to(folder).as_posix() for path in paths]
    known = _read_labels(Path(labels)) if labels is not None else _numbered(folder, names)
    missing = [name for name in names if _class_of(name, known) is None]
    if missing:
        text = f"{labels or folder} gives no class for {missing[0]}"
        more = f" and {len(missing) - 1} more images" if len(missing) > 1 else ""
        raise ImageError(f"{text}{more}")
    return paths, np.array([_class_of(name, known) for name in names], np.int64)


def _class_of(name: str, known: Mapping[str, int]) -> int | None:
    """Return the class of an image by its own path, else by the first folder of it."""
    return known.get(name, known.get(name.partition("/")[0]))


def _numbered(folder: Path, names: Sequence[str]) -> dict[str, int]:
    classes = sorted({name.partition("/")[0] for name in names if "/" in name})
    if not classes:
        text = f"{folder} has no folder for each class: give --labels FILE, of lines IMAGE CLASS"
        raise ImageError(text)
    if all(name.isascii() and name.isdigit() for name in classes):
        return {name: int(name) for name in classes}
    return {name: number for number, name in enumerate(classes)}


def _read_labels(path: Path) -> dict[str, int]:
    with path.open("rb") as stream:
        raw = stream.read(_MAX_LABELS_BYTES + 1)
    if len(raw) > _MAX_LABELS_BYTES:
        raise ImageError(f"{path}: a labels file has at most {_MAX_LABELS_BYTES} bytes")
    try:
        lines = raw.decode().splitlines()
    except UnicodeDecodeError as error:
        raise ImageError(f"{path}: not UTF-8 text at byte {error.start}") from error
    known: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or not (label.isascii() and label.isdigit() and len(label) < 10):
            shown = line[:60]
            raise ImageError(f"{path}:{number}: expected IMAGE CLASS, got {shown!r}")
        known[name.strip()] = int(label)
    return known
