"""Accuracy on labelled data: top-1 is the argmax of the flattened first output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import AbiError, ErrorCode
from npuabi.progress import Progress, silent
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.host import runs_of
from npufw.hostfiles import named_arrays

__all__ = ["Accuracy", "evaluate", "split_labels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How many of the samples were classified as labelled, and of how many the job was refused."""

    samples: int
    correct: int
    refused: int = 0

    @property
    def finished(self) -> int:
        """Samples whose jobs gave a result."""
        return self.samples - self.refused

    @property
    def top1(self) -> float:
        """Part of the finished that is right, 0 to 1."""
        return self.correct / self.finished if self.finished else 0.0

    def __add__(self, other: Accuracy) -> Accuracy:
        """Return the accuracy on the samples of both."""
        return Accuracy(
            samples=self.samples + other.samples,
            correct=self.correct + other.correct,
            refused=self.refused + other.refused,
        )


def split_labels(
    arrays: Mapping[str, NDArray[Any]], key: str, names: list[str], path: str
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Return (inputs by name, labels) of a data file's *arrays*.

    Raises FirmwareError: INPUT_MISSING without the key, INPUT_DTYPE when labels are no whole
    numbers, INPUT_SHAPE when they are no row.
    """
    if key not in arrays:
        has = ", ".join(arrays) or "nothing"
        text = f"{path} has no array {key!r} for the labels, it has {has}"
        raise FirmwareError(ErrorCode.INPUT_MISSING, text, remedy="name it with --labels")
    labels = arrays[key]
    if labels.dtype.kind not in "iu":
        text = f"labels {key!r} are whole numbers, got {labels.dtype.name}"
        raise FirmwareError(ErrorCode.INPUT_DTYPE, text)
    if labels.ndim != 1:
        text = f"labels {key!r} are one row, got shape {labels.shape}"
        raise FirmwareError(ErrorCode.INPUT_SHAPE, text)
    rest = {name: array for name, array in arrays.items() if name != key}
    return named_arrays(rest, names, path), labels.astype(np.int64)


def evaluate(
    engine: Engine,
    inputs: Mapping[str, NDArray[Any]],
    labels: NDArray[np.int64],
    *,
    progress: Progress = silent,
) -> Accuracy:
    """Return the accuracy of *engine* on *inputs*; *progress* is told of them.

    The last samples that fill no compiled batch run in a batch padded by repeating the last one.
    With faults, jobs may be refused: their samples are counted and the next job runs. Raises
    FirmwareError INPUT_BATCH when inputs and labels differ in length.
    """
    batch = _batch(engine)
    count = len(labels)
    for name, array in inputs.items():
        if array.ndim == 0 or len(array) != count:
            text = f"input {name!r} has shape {array.shape}, there are {count} labels"
            raise FirmwareError(ErrorCode.INPUT_BATCH, text)
    if count == 0:
        raise FirmwareError(ErrorCode.INPUT_BATCH, "there are no samples")
    correct = refused = 0
    # Check all of the data before the first run: a NaN in the last sample is no late surprise.
    whole = {name: _filled(array, -(-count // batch) * batch) for name, array in inputs.items()}
    runs_of(engine.image.inputs, whole)
    for start in range(0, count, batch):
        piece = {name: array[start : start + batch] for name, array in whole.items()}
        wanted = labels[start : start + batch]
        found = _classes(engine, piece, batch)
        if found is None:
            refused += len(wanted)
        else:
            correct += int((found[: len(wanted)] == wanted).sum())
        progress("samples", start + len(wanted), count)
    return Accuracy(samples=count, correct=correct, refused=refused)


def _batch(engine: Engine) -> int:
    shapes = [port.shape for port in engine.image.inputs]
    return shapes[0][0] if shapes and shapes[0] else 1


def _filled(array: NDArray[Any], count: int) -> NDArray[Any]:
    short = count - len(array)
    return np.concatenate([array, array[-1:].repeat(short, axis=0)]) if short else array


def _classes(
    engine: Engine, piece: Mapping[str, NDArray[Any]], batch: int
) -> NDArray[np.int64] | None:
    """Return the class of each sample, None for a job that was refused under faults."""
    try:
        output = next(iter(engine.run(piece).values()))
    except AbiError:
        if not engine.guarded:
            raise
        return None
    return np.asarray(output.reshape(batch, -1).argmax(axis=1))
