"""How far one level's numbers are from those of the level above, and which tensors belong together.

Errors are in real units: codes are dequantised first. Elements that are no finite numbers at the
level above, as the log of a negative one, are left out of them. SQNR is 10 log10 of the signal's
power over the error's, infinite where there is no error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.ir.core import Array, Graph, Value
from npuc.ir.types import Quant, TensorType
from npuc.ops.cast import Cast
from npuc.ops.quantised import is_quantised

__all__ = [
    "Difference",
    "Mismatch",
    "compare",
    "first_mismatch",
    "real",
    "source_names",
    "sqnr_db",
    "united",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One tensor at one level against the level above.

    ``off`` counts elements whose codes differ by 0, by 1 and by more; None for real types.
    """

    largest: float
    mean: float
    sqnr_db: float
    off: tuple[int, int, int] | None

    @property
    def same(self) -> bool:
        """Whether no element differs."""
        return self.largest == 0 and (self.off is None or not any(self.off[1:]))


def united(found: Sequence[Difference | None]) -> Difference | None:
    """Return the worst of the same tensor in several batches: ``off`` and ``mean`` over all."""
    known = [difference for difference in found if difference is not None]
    if not known:
        return None
    counts = [difference.off for difference in known if difference.off is not None]
    zero, one, more = (sum(column) for column in zip((0, 0, 0), *counts, strict=True))
    return Difference(
        largest=max(difference.largest for difference in known),
        mean=sum(difference.mean for difference in known) / len(known),
        sqnr_db=min(difference.sqnr_db for difference in known),
        off=(zero, one, more) if counts else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first element of a tensor that differs, in row-major order."""

    index: tuple[int, ...]
    expected: int | float
    got: int | float
    count: int


def compare(tensor: TensorType, expected: Array, got: Array) -> Difference:
    """Return how *got* differs from *expected*: real numbers, or both of *tensor*'s own kind."""
    upper, lower = real(tensor, expected), real(tensor, got)
    known = np.isfinite(upper)
    error = np.abs(lower[known] - upper[known])
    off = None
    if tensor.quant is not None and got.dtype.kind == "i":
        codes = _codes(tensor, tensor.quant, np.where(known, expected, 0))
        steps = np.abs(got.astype(np.int64) - codes)[known]
        off = (int((steps == 0).sum()), int((steps == 1).sum()), int((steps > 1).sum()))
    return Difference(
        largest=float(error.max(initial=0.0)),
        mean=float(error.mean()) if error.size else 0.0,
        sqnr_db=sqnr_db(upper, lower),
        off=off,
    )


def sqnr_db(signal: Array, approximation: Array) -> float:
    """Return the ratio of signal to error in decibel, infinite without error.

    Where the signal is no finite number there is none.
    """
    known = np.isfinite(signal)
    with np.errstate(over="ignore"):
        noise = float(np.square(approximation[known] - signal[known]).sum())
        power = float(np.square(signal[known]).sum())
    if not noise:
        return math.inf
    if not power or not math.isfinite(noise):
        return -math.inf
    return 10 * (math.log10(power) - math.log10(noise))


def real(tensor: TensorType, array: Array) -> Array:
    """Return codes of *tensor* as float64 real values; real numbers as they are."""
    if array.dtype.kind == "f" or tensor.quant is None:
        return array.astype(np.float64)
    scales, points = _along(tensor.quant, array.ndim)
    return (array.astype(np.float64) - points) * scales


def _codes(tensor: TensorType, quant: Quant, array: Array) -> Array:
    """Return the nearest codes of real numbers; codes as they are."""
    if array.dtype.kind != "f":
        return array.astype(np.int64)
    scales, points = _along(quant, array.ndim)
    bits = 8 * tensor.dtype.size - 1
    codes: Array = np.clip(np.rint(array / scales) + points, -(1 << bits), (1 << bits) - 1)
    return codes.astype(np.int64)


def _along(quant: Quant, rank: int) -> tuple[Array, Array]:
    shape = [1] * rank
    if quant.axis is not None:
        shape[quant.axis] = -1
    return np.reshape(quant.scales, shape), np.reshape(quant.zero_points, shape)


def first_mismatch(expected: Array, got: Array) -> Mismatch | None:
    """Return the first element that differs; two NaN are the same."""
    differs = (got != expected) & ~((got != got) & (expected != expected))
    if not differs.any():
        return None
    index = tuple(map(int, np.argwhere(differs)[0]))
    return Mismatch(
        index=index,
        expected=expected[index].item(),
        got=got[index].item(),
        count=int(differs.sum()),
    )


def source_names(
    graph: Graph, truth: Mapping[str, Array], stored: Mapping[str, str]
) -> dict[Value, str]:
    """Return, for each value of a quantised graph that stands for one of its source, that name.

    *truth* are the source's values; *stored* gives the names that quantise changed. A conversion's
    result stands for what its operand does, and the other way round.
    """
    found: dict[Value, str] = {}
    renamed = {new: old for old, new in stored.items()}
    ops = list(graph.ops)
    for value in (*graph.arguments, *(v for op in ops for v in op.results)):
        owner = value.owner
        name = renamed.get(value.name, value.name)
        if name in truth and truth[name].shape == value.tensor.shape:
            found[value] = name
        elif owner is not None and owner.operands and _converts(value) and owner.inputs[0] in found:
            found[value] = found[owner.inputs[0]]
    for op in reversed(ops):
        result, operand = op.results[0], op.inputs[:1]
        if operand and _converts(result) and result in found:
            found.setdefault(operand[0], found[result])
    return found


def _converts(value: Value) -> bool:
    """Whether the op of *value* states the same numbers in another type or layout."""
    op = value.owner
    if op is None or not op.inputs or op.inputs[0].tensor.shape != value.tensor.shape:
        return False
    unbounded = is_quantised(value) and op.bounds() == (-math.inf, math.inf)
    return not op.COMPUTES or isinstance(op, Cast) or unbounded
