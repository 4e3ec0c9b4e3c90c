"""Run the float graph on calibration samples and note each value's range.

Invariant: a sample is one run of the graph (its compiled batch); samples are taken in file order,
so that the same data gives the same ranges. Graphs that allow it run a block of samples at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.diagnostics import UNKNOWN, CompileError, Diagnostic, Location
from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Value
from npuc.ir.interpreter import Stack, evaluate
from npuc.ops.quantised import is_quantised
from npuc.passes.context import PassContext
from npuc.passes.stacking import stacked_values

__all__ = ["Block", "Range", "blocks_of", "observe"]


_BLOCK_ELEMENTS = 1 << 19
"""Numbers in the largest activation of a block of samples; at least one sample's."""


@dataclass(frozen=True, slots=True)
class Range:
    """The smallest and largest number seen; it always holds 0."""

    low: float = 0.0
    high: float = 0.0

    def united(self, other: Range) -> Range:
        """Return the range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The inputs of ``count`` samples from the ``first`` on, of ``total``."""

    inputs: dict[str, Array]
    first: int
    count: int
    total: int


def observe(graph: Graph, values: Sequence[Value], context: PassContext) -> dict[Value, Range]:
    """Return the range of each of *values* over the context's calibration data."""
    ranges = dict.fromkeys(values, Range())
    stacked = stacked_values(graph)

    lost: dict[Value, int] = {}

    def see(value: Value, array: Array) -> None:
        if value in ranges:
            percentile = 100.0 if isinstance(value.owner, Const) else context.percentile
            place = value.owner.location if value.owner else graph.location
            known = np.isfinite(array)
            if not known.all():
                lost[value] = lost.get(value, 0) + int(np.count_nonzero(~known))
                array = np.where(known, array, 0.0)
            ranges[value] = ranges[value].united(_range(value, array, percentile, place))

    states: dict[str, Array] = {}
    for block in blocks_of(graph, context.calibration or {}, _most_samples(stacked)):
        stack = Stack(count=block.count, values=stacked)
        evaluate(graph, block.inputs, context.rounding, see, stack, states)
        context.progress("calibrate", block.first + block.count, block.total)
    context.notes += [_lost(value, count) for value, count in lost.items()]
    return ranges


def _lost(value: Value, count: int) -> Diagnostic:
    """Return the warning that some numbers of *value* say nothing about its range."""
    place = value.owner.location if value.owner else UNKNOWN
    text = (
        f"%{value.name} is infinite or no number in {count} places of the calibration data;"
        " its codes hold the range of the others"
    )
    return Diagnostic(place, text, severity="warning")


def _most_samples(stacked: Collection[Value]) -> int:
    """Return how many samples may run at once."""
    largest = max((v.tensor.elements for v in stacked), default=_BLOCK_ELEMENTS)
    return max(1, _BLOCK_ELEMENTS // max(largest, 1))


def _range(value: Value, array: Array, percentile: float, place: Location) -> Range:
    """Return the range of an array of one sample or more, rounded to float32."""
    if not array.size:
        return Range()
    lows = highs = array
    if percentile < 100.0:
        samples = array.reshape(-1, value.tensor.elements)
        lows, highs = np.percentile(samples, [100.0 - percentile, percentile], axis=1)
    ends = np.array([lows.min(), highs.max()])
    with np.errstate(over="ignore"):
        low, high = map(float, ends.astype(np.float32))
    if not np.isfinite([low, high]).all():
        text = f"%{value.name} overflows float32 on the calibration data: check weights and data"
        raise CompileError.at(place, text)
    return Range().united(Range(low, high))


def blocks_of(graph: Graph, data: Mapping[str, Array], most: int) -> Iterator[Block]:
    """Yield runs of at most *most* samples, from arrays whose first axis holds N batches.

    Samples that fill no batch are left out. For a graph with one input a single array is taken
    whatever its name. Raises one CompileError for all that is wrong with *data*.
    """
    if len(graph.inputs) == len(data) == 1:
        data = {graph.inputs[0].name: next(iter(data.values()))}
    problems = [text for text in _problems(graph, data) if text]
    if problems:
        raise CompileError([Diagnostic(graph.location, f"calibration data: {t}") for t in problems])
    total = max(_counts(graph, data), default=0)
    for first in range(0, total, most):
        count = min(most, total - first)
        inputs = {v.name: _slice(v, data[v.name], first, count) for v in graph.inputs}
        yield Block(inputs=inputs, first=first, count=count, total=total)


def _slice(value: Value, array: Array, first: int, count: int) -> Array:
    batch = _batch(value)
    result: Array = array[first * batch : (first + count) * batch]
    return result if value.tensor.rank else result.reshape(())


def _counts(graph: Graph, data: Mapping[str, Array]) -> list[int]:
    """Return how many runs each input's array is for."""
    return [len(data[v.name]) // _batch(v) for v in graph.inputs]


def _batch(value: Value) -> int:
    return max(value.tensor.dims[0], 1) if value.tensor.rank else 1


def _problems(graph: Graph, data: Mapping[str, Array]) -> Iterator[str]:
    wanted = [v.name for v in graph.inputs]
    for name in data:
        if name not in wanted:
            yield f"array {name!r} is no input of the graph, the inputs are {', '.join(wanted)}"
    found = [_array_problem(v, data.get(v.name)) for v in graph.inputs]
    yield from found
    if not any(found) and len(set(_counts(graph, data))) > 1:
        counts = zip(wanted, _counts(graph, data), strict=True)
        yield f"inputs have different numbers of samples: {dict(counts)}"


def _array_problem(value: Value, array: Array | None) -> str:
    """Return what is wrong with the array of one input, or nothing."""
    tensor = value.tensor
    if array is None:
        return f"there is no array for input {value.name!r}"
    if array.dtype.kind != ("i" if is_quantised(value) else "f"):
        return f"array {value.name!r} is {array.dtype}, expected {tensor.dtype.text}"
    batch, rest = _batch(value), tensor.dims[1:]
    fits = array.ndim == len(rest) + 1 and array.shape[1:] == rest
    if not fits or len(array) < batch:
        dims, has = "x".join(["N", *map(str, rest)]), "x".join(map(str, array.shape)) or "scalar"
        return f"array {value.name!r} is {has}, expected {dims}, N at least {batch}"
    if not np.isfinite(array).all():
        return f"array {value.name!r} holds NaN or infinity"
    return ""
