"""What became of one op of a graph text: ``npuc why``.

Invariant: every fact is taken from where it was decided: the passes' decisions, the types of the
quantised graph, the planned tasks and the timeline. A graph that is refused is explained as far as
it came.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from npuabi.enums import Space
from npuabi.progress import Progress, silent
from npuabi.report import LayerCost, summarise
from npuabi.simulate import Slot
from npuc.diagnostics import CompileError, Diagnostic
from npuc.driver import Compilation, Options, compile_graph, context_of
from npuc.frontend.source import Source
from npuc.frontend.text import check_constants, parse
from npuc.ir.const import Const
from npuc.ir.core import Graph, Op, Value
from npuc.npu.tasks import DmaIn, DmaOut, Task, buffer_type
from npuc.passes.context import PassContext
from npuc.passes.depend import Depend
from npuc.passes.manager import Pass
from npuc.passes.precision import survivor_of

__all__ = ["Device", "Explanation", "Tensor", "explain"]

_STALLS = ("bank_conflict", "dma_wait", "dependency", "descriptor_late")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An operand or result of the op as it is compiled; ``origin`` says where parameters are from.

    ``role`` is the declared name of the operand, or ``result``.
    """

    role: str
    name: str
    type: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What the op is on the device, over all its TOAs. ``banks`` are by operand."""

    opcodes: tuple[str, ...]
    modes: tuple[str, ...]
    stripes: int
    stripe: str
    k_ranges: int
    banks: Mapping[str, tuple[int, ...]]
    dma_in: int
    dma_in_bytes: int
    dma_out: int
    dma_out_bytes: int
    stalls: Mapping[str, int]
    cost: LayerCost
    share: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What became of one op. ``into`` is the op that it is now, or part of; None: gone or refused.

    ``refusals`` are the limits that this op breaks; ``elsewhere`` counts those of other ops.
    """

    name: str
    op: str
    line: int
    text: str
    into: str | None
    decisions: tuple[str, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    device: Device | None = None
    refusals: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


@dataclass
class _Attempt:
    """A compilation as far as it came."""

    context: PassContext
    graph: Graph
    planned: list[Graph] = field(default_factory=list)
    done: Compilation | None = None
    errors: Sequence[Diagnostic] = ()

    def after(self, step: Pass, graph: Graph) -> None:
        """Keep the planned tasks."""
        if isinstance(step, Depend):
            self.planned.append(graph)


def explain(
    source: Source, wanted: Sequence[str], options: Options, *, progress: Progress = silent
) -> list[Explanation]:
    """Return what became of the ops *wanted*: each a result's name, or a line of the text.

    A name may be one that the compiler made. Raises CompileError for a text that cannot be read,
    and when there is no such op.
    """
    graph = parse(source)
    check_constants(graph)
    attempt = _attempt(source, options, progress)
    return [
        _Explainer(source, op, attempt).explain()
        for one in wanted
        for op in _chosen(graph, attempt, one)
    ]


def _chosen(graph: Graph, attempt: _Attempt, wanted: str) -> list[Op]:
    """Return the ops of the source, or else of the quantised graph, that *wanted* names."""
    chosen = [op for op in graph.ops if _is_wanted(op, wanted)]
    if not chosen and attempt.done is not None:
        chosen = [op for op in attempt.done.graph.ops if _is_wanted(op, wanted)]
    if not chosen:
        raise CompileError.at(graph.location, _unknown(graph, wanted))
    return chosen


def _attempt(source: Source, options: Options, progress: Progress) -> _Attempt:
    graph = parse(source)
    attempt = _Attempt(context_of(graph, options, source.folder), graph)
    attempt.context.progress = progress
    try:
        attempt.done = compile_graph(graph, options, context=attempt.context, after=attempt.after)
    except CompileError as error:
        attempt.errors = error.diagnostics
    return attempt


def _is_wanted(op: Op, wanted: str) -> bool:
    if wanted.isdecimal() and op.location.line == int(wanted):
        return True
    return any(v.name == wanted.removeprefix("%") for v in op.results)


def _unknown(graph: Graph, wanted: str) -> str:
    if wanted.isdecimal():
        lines = sorted({op.location.line for op in graph.ops})
        near = sorted(sorted(lines, key=lambda n: abs(n - int(wanted)))[:3])
        return f"no op on line {wanted}: the nearest are on lines {', '.join(map(str, near))}"
    name = wanted.removeprefix("%")
    if kept := _kept(graph).get(name):
        return f"no op gives %{name}, {kept}"
    names = [v.name for op in graph.ops for v in op.results]
    close = difflib.get_close_matches(name, names, 3)
    hint = f", did you mean {' or '.join(f'%{n}' for n in close)}" if close else ""
    return f"no op gives %{name}{hint}"


def _kept(graph: Graph) -> dict[str, str]:
    """Return what inputs and states are, by the names that a user may know them by."""
    said = {value.name: "it is an input of the graph" for value in graph.inputs}
    for state, after in zip(graph.states, graph.updates, strict=True):
        text = f"it is the state {state.name!r}, which %{after.name} updates"
        said |= {state.name: text, state.argument.name: text}
    return said


class _Explainer:
    """One op of the source, and the compilation it went through."""

    def __init__(self, source: Source, op: Op, attempt: _Attempt) -> None:
        self._source = source
        self._op = op
        self._attempt = attempt
        self._context = attempt.context

    def explain(self) -> Explanation:
        op, final = self._op, self._final()
        line = op.location.line
        own = [d for d in self._attempt.errors if d.location.line == line]
        others = [d for d in self._attempt.errors if d.location.line != line]
        text = self._source.lines[line - 1].strip() if 0 < line <= len(self._source.lines) else ""
        return Explanation(
            name=op.results[0].name,
            op=op.NAME,
            line=line,
            text=text,
            into=None if final is None else f"{final.NAME} %{final.results[0].name}",
            decisions=tuple(self._decisions(final)),
            tensors=() if final is None else tuple(self._tensors(final)),
            device=None if final is None else self._device(final),
            refusals=tuple(d.text for d in own),
            elsewhere=tuple(f"line {d.location.line}: {d.text}" for d in others),
        )

    def _final(self) -> Op | None:
        """Return the op of the quantised graph that does the op's work."""
        if self._attempt.done is None or isinstance(self._op, Const):
            return None
        names = [survivor_of(v.name, self._context) for v in self._op.results]
        names = [self._context.stored.get(name, name) for name in names]
        for op in self._attempt.done.graph.ops:
            if not isinstance(op, Const) and any(v.name in names for v in op.results):
                return op
        return None

    def _decisions(self, final: Op | None) -> Iterator[str]:
        """Yield the decisions about the op, then those about what it became a part of."""
        if isinstance(self._op, Const):
            readers = [f"{u.NAME} %{u.results[0].name}" for u in self._op.result.users]
            yield f"a constant, read by {', '.join(readers) or 'nobody'}"
        name = self._op.results[0].name
        seen = set()
        while name not in seen:
            seen.add(name)
            yield from self._context.decisions.get(name, [])
            name = self._context.fused.get(name, name)
        if final is not None and final.results[0].name not in seen:
            yield from self._context.decisions.get(final.results[0].name, [])

    def _tensors(self, final: Op) -> Iterator[Tensor]:
        for index, value in enumerate(final.operands):
            if value is not None:
                role = final.OPERANDS[min(index, len(final.OPERANDS) - 1)].name
                yield self._tensor(role, value)
        for value in final.results:
            yield self._tensor("result", value)

    def _tensor(self, role: str, value: Value) -> Tensor:
        return Tensor(
            role=role, name=value.name, type=_type_text(value), origin=self._origin(value)
        )

    def _origin(self, value: Value) -> str:
        """Return where the parameters of a quantised value come from."""
        if value.tensor.quant is None:
            return ""
        if isinstance(value.owner, Const):
            return "from the largest weight of each channel" if value.tensor.quant.axis == 0 else ""
        names = [value.name, *(v.name for u in value.users if not u.COMPUTES for v in u.results)]
        if value.owner is not None and not value.owner.COMPUTES:
            names += [v.name for v in value.owner.inputs]
        return next((self._context.origins[n] for n in names if n in self._context.origins), "")

    def _device(self, final: Op) -> Device | None:
        done, name = self._attempt.done, final.results[0].name
        if done is None:
            return None
        cost = summarise(done.program, done.timeline, done.target)
        layers = [layer for layer in cost.layers if layer.name == name]
        tasks = [op for op in self._attempt.planned[-1].ops if isinstance(op, Task)]
        pairs = [
            (task, slot)
            for task, slot in zip(tasks, done.timeline.slots, strict=True)
            if task.attributes["name"] == name
        ]
        return _device(pairs, layers[0], layers[0].cycles / cost.cycles) if layers else None


def _device(pairs: Sequence[tuple[Task, Slot]], cost: LayerCost, share: float) -> Device:
    work = [task for task, _ in pairs if not isinstance(task, DmaIn | DmaOut)]
    written = [task for task in work if task.attributes["write"]]
    largest = max(written or work, key=lambda t: t.output.tensor.elements, default=None)
    loads, stores = (_moved(pairs, kind) for kind in (DmaIn, DmaOut))
    return Device(
        opcodes=tuple(dict.fromkeys(t.OPCODE.name.lower() for t in work)),
        modes=tuple(dict.fromkeys(t.attributes["mode"] for t in work)),
        stripes=len(written),
        stripe="" if largest is None else "x".join(map(str, largest.output.tensor.dims)),
        k_ranges=-(-len(work) // max(len(written), 1)),
        banks=_banks(work),
        dma_in=len(loads),
        dma_in_bytes=sum(loads),
        dma_out=len(stores),
        dma_out_bytes=sum(stores),
        stalls={name: sum(getattr(slot, name) for _, slot in pairs) for name in _STALLS},
        cost=cost,
        share=share,
    )


def _moved(pairs: Sequence[tuple[Task, Slot]], kind: type[Task]) -> list[int]:
    """Return the bytes of each DMA of one direction."""
    buffers = [buffer_type(task.inputs[0]) for task, _ in pairs if isinstance(task, kind)]
    return [b.tensor.elements * b.tensor.dtype.size for b in buffers]


def _banks(tasks: Sequence[Task]) -> dict[str, tuple[int, ...]]:
    """Return the SRAM banks in which each operand begins, over all stripes."""
    found: dict[str, set[int]] = {}
    for task in tasks:
        for value, spec in zip(task.inputs, task.OPERANDS, strict=False):
            bank = buffer_type(value).bank
            if bank is not None and buffer_type(value).place.space is Space.SRAM:
                found.setdefault(spec.name, set()).add(bank)
    return {name: tuple(sorted(banks)) for name, banks in found.items()}


def _type_text(value: Value) -> str:
    """Return the type; of many scales only their number and ends."""
    tensor = value.tensor
    quant = tensor.quant
    if quant is None or quant.axis is None or len(quant.scales) < 4:
        return str(tensor)
    low, high = min(quant.scales), max(quant.scales)
    plain = str(replace(tensor, quant=None, layout=None)).removesuffix(">")
    return f"{plain}, {len(quant.scales)} scales along axis {quant.axis}, {low:.4g} to {high:.4g}>"
