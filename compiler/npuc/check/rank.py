"""Which ops lose most against float, and what a wider precision would give each of them.

An op is judged alone: its operands are the float level's numbers, stored in its precision, and its
result is compared with the float level's. So an op is not blamed for what reached it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npuabi.enums import Rounding
from npuabi.progress import Progress, silent
from npuc.check.compare import real, source_names, sqnr_db
from npuc.check.levels import Levels
from npuc.diagnostics import CompileError
from npuc.driver import Options, context_of
from npuc.frontend.text import parse
from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.interpreter import evaluate
from npuc.ir.types import Quant, TensorType
from npuc.ops.quantised import REAL
from npuc.passes import GRAPH_PASSES
from npuc.passes.calibrate import Calibrate
from npuc.passes.context import PassContext
from npuc.passes.legalise import Legalise
from npuc.passes.manager import PassManager
from npuc.passes.tied import float_activations
from npuc.reference import quantize_codes

__all__ = ["Loss", "Mixed", "losses", "mixed"]

_WIDER = {"int8": ("int16", "fp16"), "int16": ("fp16",), "fp16": ("fp32",), "fp32": ()}
_GAIN_DB = 1.0
"""A wider precision counts when it gives an op this much."""

_TRIED = 8
"""Ops that are widened one by one to see what the outputs gain."""

_BEST_DB = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One op's SQNR in decibel, alone, and in wider precisions; None where it has none."""

    name: str
    op: str
    line: int
    sqnr_db: float
    wider: Mapping[str, float | None]

    @property
    def best(self) -> str | None:
        """The first wider precision that gives within a decibel of the most, if that is a gain."""
        known = {p: db for p, db in self.wider.items() if db is not None}
        most = max(known.values(), default=-math.inf)
        if most < self.sqnr_db + _GAIN_DB:
            return None
        return next(p for p, db in known.items() if db >= most - _GAIN_DB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Ops to keep in wider precisions, and the outputs' SQNR without and with that."""

    keep: Mapping[str, str]
    before_db: Mapping[str, float]
    after_db: Mapping[str, float]


def losses(levels: Levels, *, progress: Progress = silent) -> list[Loss]:
    """Return the ops that compute, the worst first; none for a graph without float.

    Ops that only move codes are left out: nothing is lost there that was not lost before.
    """
    if not levels.l1:
        return []
    compilation = levels.compilation
    here = _alone(compilation.graph, levels.l1, levels.made.context)
    precision = levels.made.context.precision.name.lower()
    there = {}
    for number, wider in enumerate(_WIDER[precision]):
        progress(f"in {wider}", number, len(_WIDER[precision]))
        there[wider] = _in_precision(levels, wider)
    found = [
        Loss(
            name=name,
            op=op.NAME,
            line=op.location.line,
            sqnr_db=db,
            wider={p: known.get(name, (op, None))[1] for p, known in there.items()},
        )
        for name, (op, db) in here.items()
    ]
    return sorted(found, key=lambda loss: loss.sqnr_db)


def mixed(
    levels: Levels, ranked: Sequence[Loss], count: int, *, progress: Progress = silent
) -> Mixed:
    """Propose at most *count* ops to widen, of the worst ones those that help the outputs most.

    Each is tried alone, and then all that are proposed together.
    """
    before = _outputs(levels, levels.compilation.graph, levels.l2)
    worst = [(s.name, s.best) for s in ranked if s.best is not None][: max(_TRIED, count)]
    gains: dict[tuple[str, str], float] = {}
    for number, (name, wide) in enumerate(worst):
        progress(f"widen {name}", number, len(worst))
        after = _kept(levels, {name: wide}) if wide is not None else None
        if after is not None and wide is not None:
            gains[name, wide] = _mean(after) - _mean(before)
    chosen = sorted((k for k, gain in gains.items() if gain > 0), key=lambda k: -gains[k])[:count]
    after = _kept(levels, dict(chosen)) if chosen else before
    if after is None:
        return Mixed(keep={}, before_db=before, after_db=before)
    return Mixed(keep=dict(chosen), before_db=before, after_db=after)


def _mean(found: Mapping[str, float]) -> float:
    """Return the mean ratio; one without error counts as the best that float64 tells."""
    return sum(min(db, _BEST_DB) for db in found.values()) / max(len(found), 1)


def _kept(levels: Levels, keep: Mapping[str, str]) -> dict[str, float] | None:
    """Return the outputs' SQNR with some ops in other precisions; None where that cannot be."""
    options = levels.made.options
    try:
        graph, _ = _graph(levels, replace(options, keep={**options.keep, **keep}))
        inputs = {v.name: levels.l2[v] for v in levels.compilation.graph.inputs}
        found: dict[Value, Array] = {}
        evaluate(graph, inputs, levels.compilation.rounding, found.__setitem__, stored=True)
    except CompileError:
        return None
    return _outputs(levels, graph, found)


def _outputs(levels: Levels, graph: Graph, found: Mapping[Value, Array]) -> dict[str, float]:
    return {
        v.name: sqnr_db(levels.l1[v.name], real(v.tensor, found[v]))
        for v in graph.outputs
        if v.name in levels.l1
    }


def _in_precision(levels: Levels, precision: str) -> dict[str, tuple[Op, float]]:
    """Return what :func:`_alone` finds in another precision; nothing when none can be made."""
    try:
        graph, context = _graph(levels, replace(levels.made.options, precision=precision, keep={}))
        return _alone(graph, levels.l1, context)
    except CompileError:
        return {}


def _graph(levels: Levels, options: Options) -> tuple[Graph, PassContext]:
    """Return the source quantised under other options, with the ranges that were calibrated."""
    source = levels.made.source
    graph = parse(source)
    context = context_of(graph, options, source.folder)
    first = GRAPH_PASSES.index(Calibrate)
    PassManager([kind() for kind in GRAPH_PASSES[:first]]).run(graph, context)
    _give(graph, levels.made.quants)
    # What the NPU cannot run can be compared all the same.
    rest = [kind() for kind in GRAPH_PASSES[first:] if kind is not Legalise]
    PassManager(rest).run(graph, context)
    return graph, context


def _give(graph: Graph, quants: Mapping[str, Quant]) -> None:
    for value in float_activations(graph):
        value.type = replace(value.tensor, quant=quants.get(value.name))


def _alone(
    graph: Graph, truth: Mapping[str, Array], context: PassContext
) -> dict[str, tuple[Op, float]]:
    """Return each op and its SQNR on exact operands, by the source's name of its result."""
    names, rounding = source_names(graph, truth, context.stored), context.rounding
    found = {}
    for op in graph.ops:
        if op.COMPUTES and not op.TIED and op.results[0] in names:
            array = _result(op, names, truth, rounding)
            if array is not None:
                name = names[op.results[0]]
                found[name] = (op, sqnr_db(truth[name], real(op.results[0].tensor, array)))
    return found


def _result(
    op: Op, names: Mapping[Value, str], truth: Mapping[str, Array], rounding: Rounding
) -> Array | None:
    """Return an op's first result on exact operands; None when the source does not know one."""
    # What overflows a narrower type is infinite there, as on the device, and so are its errors.
    with np.errstate(all="ignore"):
        operands = list(_operands(op, names, truth, rounding))
        if len(operands) < len(op.operands):
            return None
        return _stored(op.results[0].tensor, op.reference(operands, rounding)[0], rounding)


def _operands(
    op: Op, names: Mapping[Value, str], truth: Mapping[str, Array], rounding: Rounding
) -> Iterator[Array | None]:
    """Yield the operands as the op would read them; fewer when the source does not know one."""
    for value in op.operands:
        if value is None:
            yield None
        elif isinstance(value.owner, Const):
            yield value.owner.reference([], rounding)[0]
        elif value in names:
            yield _stored(value.tensor, truth[names[value]], rounding)


def _stored(tensor: TensorType, array: Array, rounding: Rounding) -> Array:
    """Return real numbers as a tensor of that type holds them; codes as they are."""
    if array.dtype.kind != "f":
        return array
    if tensor.dtype in REAL:
        return array.astype(tensor.numpy).astype("f8")
    if tensor.quant is None:
        return array.astype(tensor.numpy)
    return quantize_codes(array, tensor.quant, tensor.numpy, rounding)
