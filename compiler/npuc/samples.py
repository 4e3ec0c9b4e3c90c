"""Arrays that a graph runs on while it is compiled: calibration samples and generated inputs.

Invariant: they follow from the graph, its files and the options alone; noise has fixed seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from npuabi.enums import DType
from npuabi.generator import codes, samples
from npuabi.images import image_files, is_image, read_images
from npuabi.inside import resolve_inside
from npuabi.npz import NpzError, read_arrays
from npuabi.preprocess import ImageError, load_preprocess
from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.core import Array, Graph
from npuc.ops.quantised import REAL
from npuc.passes.context import PassContext

__all__ = ["calibration_samples", "generated"]

_RANDOM_SAMPLES = 8
_RANDOM_ELEMENTS = 1 << 27
"""Numbers of noise for all inputs together, so that a large input cannot exhaust the host."""


def calibration_samples(
    graph: Graph,
    given: str | Path | Mapping[str, Array] | None,
    context: PassContext,
    preprocess: str | Path | None = None,
) -> Mapping[str, Array] | None:
    """Return the calibration arrays by input name; None when there are none.

    *given* is the path of an npz, of an image or of a folder of images, ``random``, or the arrays;
    None takes the graph's attribute, whose file lies in the context's folder. *preprocess* is the
    path of a TOML file that says how images become arrays. Raises CompileError.
    """
    if isinstance(given, Mapping):
        return given
    if given == "":
        raise CompileError.at(graph.location, "--calibrate '' names no file")
    if given is not None and str(given) == "random":
        return _random(graph, context)
    try:
        if given is not None and (is_image(given) or Path(given).is_dir()):
            return _images(graph, Path(given), preprocess, context)
        if preprocess is not None:
            raise ImageError("--preprocess goes with images: give --calibrate FOLDER")
        if given is not None:
            return read_arrays(Path(given))
        name = graph.attributes.get("calibration")
        return None if name is None else read_arrays(resolve_inside(context.folder, str(name)))
    except (ImageError, NpzError) as error:
        raise CompileError.at(graph.location, f"calibration data: {error}") from error
    except ValueError as error:
        raise CompileError.at(graph.location, f"calibration: {error}") from error


def _images(
    graph: Graph, path: Path, preprocess: str | Path | None, context: PassContext
) -> dict[str, Array]:
    if preprocess is None:
        raise ImageError(f"{path} holds images: say how they become arrays with --preprocess")
    if len(graph.inputs) != 1:
        raise ImageError(f"images are for graphs with one input, this one has {len(graph.inputs)}")
    files = image_files(path) if path.is_dir() else [path]
    made = read_images(files, load_preprocess(preprocess), progress=context.progress)
    return {graph.inputs[0].name: made}


def generated(dtype: DType, dims: tuple[int, ...], seed: int) -> Array:
    """Return numbers of the documented generator: floats of deviation 1, or raw codes."""
    count = math.prod(dims)
    if dtype in REAL:
        return samples(seed, count).astype(dtype.numpy).reshape(dims)
    return codes(seed, count, dtype).reshape(dims)


def _random(graph: Graph, context: PassContext) -> dict[str, Array]:
    text = (
        "calibrated with random noise: ranges and accuracy mean nothing; give real data with "
        "--calibrate FILE.npz"
    )
    context.notes.append(Diagnostic(graph.location, text, severity="warning"))
    dims = [_bound_dims(v.name, v.tensor.shape, context) for v in graph.inputs]
    runs = min(_RANDOM_SAMPLES, _RANDOM_ELEMENTS // max(1, sum(map(math.prod, dims))))
    if not runs:
        most = f"at most {_RANDOM_ELEMENTS} numbers of noise are made"
        raise CompileError.at(graph.location, f"the inputs are too large, {most}: give real data")
    return {
        value.name: generated(value.tensor.dtype, (runs * bound[0], *bound[1:]), index)
        for index, (value, bound) in enumerate(zip(graph.inputs, dims, strict=True))
    }


def _bound_dims(name: str, shape: Sequence[int | None], context: PassContext) -> tuple[int, ...]:
    dims = context.shapes.get(name, tuple(1 if d is None else d for d in shape))
    return dims or (1,)
