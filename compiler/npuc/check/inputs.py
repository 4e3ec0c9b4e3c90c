"""The inputs of ``npuc check``: given, the first calibration sample, or seeded numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from npuabi.images import is_image
from npuabi.preprocess import ImageError, load_preprocess
from npuc.check.device import read_arrays
from npuc.diagnostics import CompileError
from npuc.driver import Options, context_of
from npuc.frontend.source import Source
from npuc.ir.core import Array, Graph, Value
from npuc.samples import generated

__all__ = ["Chosen", "batches_of", "choose_inputs", "without_images"]

_SEED = 20_260_101


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Compiled batches by input name, at least one, and in words where they came from."""

    batches: Sequence[Mapping[str, Array]]
    text: str

    @property
    def first(self) -> Mapping[str, Array]:
        """The first batch."""
        return self.batches[0]


def choose_inputs(graph: Graph, source: Source, options: Options, given: Sequence[str]) -> Chosen:
    """Return the inputs for *graph*, whose shapes are bound; *given* are ``--input`` options.

    Raises CompileError for arrays that do not fit, AbiError for files that cannot be read.
    """
    names = [v.name for v in graph.inputs]
    if given:
        try:
            recipe = None if options.preprocess is None else load_preprocess(options.preprocess)
        except ImageError as error:
            raise CompileError.at(graph.location, f"input: {error}") from error
        return batches_of(graph, read_arrays(given, names, recipe), f"of {', '.join(given)}")
    data = context_of(graph, options, source.folder).calibration
    if data is not None and str(options.calibrate) != "random":
        if len(names) == len(data) == 1:
            data = {names[0]: next(iter(data.values()))}
        return _first(graph, data, "of the calibration data")
    made = {
        v.name: generated(v.tensor.dtype, v.tensor.dims, _SEED + i)
        for i, v in enumerate(graph.inputs)
    }
    return Chosen(batches=[made], text=f"numbers of the documented generator, seed {_SEED}")


def batches_of(graph: Graph, arrays: Mapping[str, Array], where: str) -> Chosen:
    """Return every compiled batch of *arrays*, consecutive frames of a graph with states.

    *where* says in words where they came from. Raises CompileError for arrays that do not fit.
    """
    _check(graph, arrays, where)
    counts = {v.name: _count(v, arrays[v.name]) for v in graph.inputs}
    runs = int(max(counts.values(), default=1))
    if any(count != runs for count in counts.values()):
        text = ", ".join(f"%{name} holds {count:g} batches" for name, count in counts.items())
        text += ": expected as many in each, and whole ones"
        raise CompileError.at(graph.location, f"input {where}: {text}")
    found = [{v.name: _batch(v, arrays[v.name], run) for v in graph.inputs} for run in range(runs)]
    kind = "frames" if graph.states else "batches"
    return Chosen(
        batches=found, text=f"the {runs} {kind} {where}" if runs > 1 else f"the sample {where}"
    )


def _count(value: Value, array: Array) -> float:
    """Return how many compiled batches *array* holds."""
    return len(array) / value.tensor.dims[0] if value.tensor.rank else 1


def _first(graph: Graph, arrays: Mapping[str, Array], where: str) -> Chosen:
    """Return the first compiled batch of arrays that may hold several."""
    _check(graph, arrays, where)
    first = {v.name: _batch(v, arrays[v.name], 0) for v in graph.inputs}
    runs = max((len(arrays[n]) // max(len(a), 1) for n, a in first.items() if a.ndim), default=1)
    return Chosen(batches=[first], text=f"the {'first ' if runs > 1 else ''}sample {where}")


def _check(graph: Graph, arrays: Mapping[str, Array], where: str) -> None:
    problems = [_problem(v, arrays.get(v.name)) for v in graph.inputs]
    found = "; ".join(filter(None, problems))
    if found:
        raise CompileError.at(graph.location, f"input {where}: {found}")


def _batch(value: Value, array: Array, number: int) -> Array:
    if not value.tensor.rank:
        return array
    size = value.tensor.dims[0]
    return array[number * size : (number + 1) * size]


def _problem(value: Value, array: Array | None) -> str:
    if array is None:
        return f"there is no array for %{value.name}"
    dims, dtype = value.tensor.dims, np.dtype(value.tensor.dtype.numpy)
    fits = array.ndim == len(dims) and array.shape[1:] == dims[1:] and array.shape[:1] >= dims[:1]
    if not fits or array.dtype != dtype:
        shape = "x".join(map(str, array.shape))
        return f"%{value.name} is {value.tensor}, got {shape} {array.dtype.name}"
    return ""


def without_images(options: Options, given: Sequence[str]) -> Options:
    """Return the options of a compilation when ``--preprocess`` is for the *given* inputs alone."""
    samples = options.calibrate
    images = isinstance(samples, str | Path) and (is_image(samples) or Path(samples).is_dir())
    return options if images or not given else replace(options, preprocess=None)
