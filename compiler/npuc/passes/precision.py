"""Which precision each float op is computed in: the compilation's, or a wider one that is kept.

A user keeps an op by the name of its result, or of the result of anything that was fused into it;
where several names of one op are kept, the widest precision wins.

Invariant: what an op's precision is depends on names and options, and on no pass that ran.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from npuabi.enums import DType, Precision
from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.const import Const
from npuc.ir.core import Graph, Op
from npuc.ops.quantised import CODES
from npuc.passes.context import PassContext

__all__ = [
    "PRECISIONS",
    "computes_codes",
    "dtype_of",
    "precision_of",
    "set_precisions",
    "survivor_of",
]

PRECISIONS = {precision.name.lower(): precision for precision in Precision}
"""By the names that users write, the narrowest first."""

_STORED = {
    Precision.INT8: DType.I8,
    Precision.INT16: DType.I16,
    Precision.FP16: DType.F16,
    Precision.FP32: DType.F32,
}


def precision_of(op: Op, context: PassContext) -> Precision:
    """Return the precision in which *op* is computed."""
    if not context.keep:
        return context.precision
    names = {survivor_of(value.name, context) for value in op.results}
    kept = [p for name, p in context.keep.items() if survivor_of(name, context) in names]
    return max(kept, default=context.precision)


def dtype_of(op: Op, context: PassContext) -> DType:
    """Return the element type of the activations of *op*."""
    return _STORED[precision_of(op, context)]


def computes_codes(op: Op, context: PassContext) -> bool:
    """Return whether *op* is computed on integer codes."""
    return dtype_of(op, context) in CODES


def survivor_of(name: str, context: PassContext) -> str:
    """Return the name of the op that what gave *name* is part of."""
    seen = {name}
    while (following := context.fused.get(name, name)) not in seen:
        name = following
        seen.add(name)
    return name


def _kept(graph: Graph, wanted: Mapping[str, str | Precision]) -> dict[str, Precision]:
    """Return the precisions of *wanted* by result name; raises one CompileError for all faults."""
    known = {v.name for op in graph.ops if not isinstance(op, Const) for v in op.results}
    problems: list[str] = []
    kept: dict[str, Precision] = {}
    for given, precision in wanted.items():
        name = given.removeprefix("%")
        if name not in known:
            problems.append(f"--keep: no op gives %{name}{_close(name, known)}")
        text = precision.name.lower() if isinstance(precision, Precision) else precision
        if text in PRECISIONS:
            kept[name] = PRECISIONS[text]
        else:
            expected = ", ".join(PRECISIONS)
            problems.append(f"--keep {name}: precisions are {expected}, got {text!r}")
    if problems:
        raise CompileError([Diagnostic(graph.location, text) for text in problems])
    return kept


def _close(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), 3)
    return f", did you mean {', '.join('%' + c for c in close)}" if close else ""


def set_precisions(
    graph: Graph, context: PassContext, text: str, keep: Mapping[str, str | Precision]
) -> None:
    """Note in *context* the precision that *text* names and those of single ops.

    ``auto`` is int8 for a graph that is quantised or has calibration data, else fp16, with a note.
    Raises CompileError for unknown names.
    """
    context.precision, note = _chosen(graph, text, calibrated=context.calibration is not None)
    if note:
        context.notes.append(Diagnostic(graph.location, note, severity="note"))
    context.keep = _kept(graph, keep)


def _chosen(graph: Graph, text: str, *, calibrated: bool) -> tuple[Precision, str]:
    if text != "auto":
        if text not in PRECISIONS:
            expected = ", ".join(("auto", *PRECISIONS))
            raise CompileError.at(graph.location, f"precisions are {expected}, got {text!r}")
        return PRECISIONS[text], ""
    if calibrated or _holds_codes(graph):
        return Precision.INT8, ""
    note = (
        f"graph @{graph.name} is not quantised and has no calibration data: compiled in fp16;"
        " for int8 give --calibrate FILE.npz, or write"
        ' `attributes {calibration = "file.npz"}` after the arguments'
    )
    return Precision.FP16, note


def _holds_codes(graph: Graph) -> bool:
    """Return whether any activation of *graph* is quantised, or a float that is frozen."""
    values = [*graph.arguments]
    for op in graph.ops:
        values += op.results
    return any(v.tensor.quant is not None for v in values)
