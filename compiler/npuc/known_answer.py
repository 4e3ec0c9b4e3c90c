"""The known-answer test of a blob: generated inputs, and what the reference makes of them.

Integer programs give every bit, so a CRC over all outputs is enough. Programs that compute on
floats give numbers near the reference's: the blob holds some of them, each with a tolerance. It is
a multiple of what the outputs move by when every float of the graph moves by a few units in its
last place, as the device's other order of additions may move it.

Invariant: an answer follows from the quantised graph and the rounding mode alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.generator import codes, sample_places
from npuabi.records import KnownAnswer
from npuc.ir.core import Array, Graph, Value
from npuc.ir.interpreter import evaluate
from npuc.samples import generated

__all__ = ["Answer", "answer_of", "nudge", "tolerance"]

_SEED = 20_260_101
_NUDGE_SEED = 7
_MOST_SAMPLES = 256
_MARGIN = 8
"""Times what the outputs were seen to move by."""

_STEPS = {DType.F16: 1, DType.F32: 4}
"""Units in the last place by which a float is moved; fp16 is rounded from exacter sums."""

_FLOOR = {DType.F16: 2.0**-11, DType.F32: 2.0**-22}
"""The least tolerance, in parts of an output's largest number."""

_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The CRC of all outputs, or (number, tolerance) of some of them as float32."""

    crc: int
    samples: Array

    def within(self, constants: bytes) -> tuple[KnownAnswer, bytes]:
        """Return the record, and *constants* with the samples behind them."""
        count = len(self.samples)
        if count:
            constants = constants.ljust(-(-len(constants) // _ALIGNMENT) * _ALIGNMENT, b"\0")
        record = KnownAnswer(
            seed=_SEED,
            std=1.0,
            output_crc=self.crc,
            samples=count,
            offset=len(constants) if count else 0,
        )
        return record, constants + self.samples.astype("<f4").tobytes()


def answer_of(graph: Graph, rounding: Rounding, *, exact: bool) -> Answer:
    """Return the known answer of a quantised *graph*; *exact* says that it computes on codes."""
    inputs = {
        value.name: generated(value.tensor.dtype, value.tensor.dims, _SEED + index)
        for index, value in enumerate(graph.inputs)
    }
    outputs = list(evaluate(graph, inputs, rounding, stored=True).values())
    if exact:
        return Answer(crc=_crc(outputs), samples=np.empty((0, 2), np.float32))
    moved = list(evaluate(graph, inputs, rounding, stored=True, alter=nudge()).values())
    return Answer(crc=0, samples=_samples(outputs, moved, graph))


def _crc(outputs: list[Array]) -> int:
    crc = 0
    for array in outputs:
        crc = zlib.crc32(np.ascontiguousarray(array).tobytes(), crc)
    return crc


def nudge() -> Callable[[Value, Array], Array]:
    """Return what moves each float by a few units in the last place, up or down by a generator."""
    taken: dict[Value, int] = {}

    def alter(value: Value, array: Array) -> Array:
        number = taken.setdefault(value, _NUDGE_SEED + len(taken))
        signs = codes(number, array.size, DType.I8).reshape(array.shape) & 1
        finite = np.isfinite(array)
        stored = np.where(finite, array, 0).astype(value.tensor.numpy)
        step = np.spacing(np.abs(stored)).astype(np.float64) * _STEPS[value.tensor.dtype]
        return np.where(finite, array + np.where(signs, step, -step), array)

    return alter


def _coarsest(graph: Graph) -> DType:
    """Return the coarsest float type in which something is stored."""
    kinds = {value.tensor.dtype for op in graph.ops for value in op.results}
    return DType.F16 if DType.F16 in kinds else DType.F32


def _samples(outputs: list[Array], moved: list[Array], graph: Graph) -> Array:
    """Return (number, tolerance) of elements scattered over all outputs."""
    numbers = np.concatenate([array.reshape(-1).astype(np.float64) for array in outputs])
    bounds = np.concatenate(
        [np.full(a.size, tolerance(a, b, graph)) for a, b in zip(outputs, moved, strict=True)]
    )
    count = min(len(numbers), _MOST_SAMPLES)
    places = sample_places(count, len(numbers))
    with np.errstate(over="ignore"):
        return np.stack([numbers[places], bounds[places]], axis=1).astype(np.float32)


def tolerance(array: Array, moved: Array, graph: Graph) -> float:
    """Return how far an element of an output of *graph* may be off.

    *array* is the reference's output, *moved* what it gives when every float is nudged.
    """
    known = np.isfinite(array) & np.isfinite(moved)
    reals = np.where(known, array, 0).astype(np.float64)
    difference = np.abs(np.where(known, moved, 0).astype(np.float64) - reals)
    largest = float(np.abs(reals).max(initial=0.0))
    return _MARGIN * float(difference.max(initial=0.0)) + _FLOOR[_coarsest(graph)] * largest
