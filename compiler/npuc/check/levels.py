"""A model and one input at four levels: every tensor's numbers at each.

Invariant: each level is computed from the same input, and none from another level's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npuabi.enums import Rounding
from npuabi.errors import AbiError
from npuabi.progress import Progress, silent
from npuabi.target import Target
from npuc.check.device import BlobDevice, Bytes, TaskDevice
from npuc.check.places import Part, parts_of, places_of
from npuc.driver import Compilation, Options, compile_graph, compile_quantised, context_of
from npuc.frontend.source import Source
from npuc.frontend.text import check_constants, parse
from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Value
from npuc.ir.interpreter import evaluate
from npuc.ir.types import Quant
from npuc.ops.quantised import is_quantised
from npuc.passes.bind_shapes import BindShapes
from npuc.passes.calibrate import Calibrate
from npuc.passes.context import PassContext
from npuc.passes.depend import Depend
from npuc.passes.infer_types import InferTypes
from npuc.passes.legalise import refuse_unsupported
from npuc.passes.manager import Pass, PassManager
from npuc.passes.tied import float_activations

__all__ = [
    "Compiled",
    "Levels",
    "Runner",
    "compiled",
    "float_graph",
    "recompiled",
    "run_levels",
    "values_of",
]


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compilation, its passes' context, its planned L3 graph, the float values' parameters."""

    source: Source
    options: Options
    compilation: Compilation
    context: PassContext
    planned: Graph
    quants: Mapping[str, Quant]


@dataclass(frozen=True, kw_only=True)
class Levels:
    """What one input makes of each tensor; values are those of the quantised graph.

    ``graph`` is the source's; ``l1`` is by name there, and empty when it is quantised already.
    ``l3`` and ``l4`` hold what the device computes, and states as it reads them: inputs are left
    out. ``stopped`` says why the blob did not run to its end; ``l4`` is empty then.
    """

    made: Compiled
    graph: Graph
    l1: Mapping[str, Array]
    l2: Mapping[Value, Array]
    l3: Mapping[Value, Array]
    l4: Mapping[Value, Array]
    stopped: str | None = None

    @property
    def compilation(self) -> Compilation:
        """What was compiled."""
        return self.made.compilation


def float_graph(source: Source, options: Options) -> Graph:
    """Return the graph as written, its shapes bound and its types inferred."""
    graph = parse(source)
    check_constants(graph)
    context = PassContext(shapes=options.shapes, folder=source.folder)
    PassManager([BindShapes(), InferTypes()]).run(graph, context)
    return graph


def values_of(graph: Graph) -> list[Value]:
    """Return a graph's values in order, inputs first, constants left out."""
    made = [v for op in graph.ops if not isinstance(op, Const) for v in op.results]
    return [*graph.arguments, *made]


def compiled(source: Source, options: Options, *, progress: Progress = silent) -> Compiled:
    """Compile *source*, and keep what comparing the levels takes. Raises CompileError."""
    seen = _Seen()
    graph = parse(source)
    check_constants(graph)
    context = context_of(graph, options, source.folder)
    context.progress = progress
    made = compile_graph(graph, options, after=seen.after, context=context)
    return Compiled(
        source=source,
        options=options,
        compilation=made,
        context=context,
        planned=seen.planned[-1],
        quants=seen.quants,
    )


def recompiled(made: Compiled, target: Target, level: int) -> Compiled:
    """Compile the quantised graph of *made* for another target and level. Raises CompileError."""
    seen, before = _Seen(), made.compilation
    context = replace(made.context, target=target, level=level)
    refuse_unsupported(before.graph, target)
    after = compile_quantised(before.graph, context, after=seen.after, answer=before.answer)
    return replace(made, compilation=after, context=context, planned=seen.planned[-1])


class _Seen:
    """What is taken from between the passes."""

    def __init__(self) -> None:
        self.planned: list[Graph] = []
        self.quants: dict[str, Quant] = {}

    def after(self, step: Pass, graph: Graph) -> None:
        if isinstance(step, Depend):
            self.planned.append(graph)
        if isinstance(step, Calibrate):
            pairs = ((v.name, v.tensor.quant) for v in float_activations(graph))
            self.quants.update((name, quant) for name, quant in pairs if quant is not None)


def run_levels(
    made: Compiled,
    inputs: Mapping[str, Array],
    *,
    above: Levels | None = None,
    progress: Progress = silent,
) -> Levels:
    """Run one batch of *inputs* at every level, states from their first values.

    *above* is what the same inputs made of the same quantised graph, planned otherwise: its L1 and
    L2 are taken over. Raises CompileError, AbiError.
    """
    return Runner(made).run(inputs, above=above, progress=progress)


class Runner:
    """Runs one batch after the other at every level; each level keeps states of its own."""

    def __init__(self, made: Compiled) -> None:
        compilation, places = made.compilation, places_of(made.planned)
        self._made = made
        self._graph = float_graph(made.source, made.options)
        self._parts = parts_of(compilation.graph, made.context)
        self._l1_states: dict[str, Array] = {}
        self._l2_states: dict[str, Array] = {}
        self._tasks = TaskDevice(compilation.program, compilation.target, places)
        self._blob: BlobDevice | None = None
        self._stopped: str | None = None
        try:
            self._blob = BlobDevice(compilation.blob, compilation.target, places)
        except AbiError as error:
            self._stopped = str(error)

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        above: Levels | None = None,
        progress: Progress = silent,
    ) -> Levels:
        """Run the next batch; as :func:`run_levels`. A blob that has stopped runs no more."""
        if above is None:
            progress("L1 and L2", 0, 3)
            above = self._upper(inputs)
        progress("L3", 1, 3)
        tasks = self._tasks.run(inputs)
        progress("L4", 2, 3)
        blob = self._run_blob(inputs)
        graph = self._made.compilation.graph
        values = [v for v in values_of(graph) if v not in graph.inputs]
        return replace(
            above,
            made=self._made,
            l3={v: _taken(v, self._parts[v], tasks) for v in values},
            l4={} if blob is None else {v: _taken(v, self._parts[v], blob) for v in values},
            stopped=self._stopped,
        )

    def _run_blob(self, inputs: Mapping[str, Array]) -> Bytes | None:
        if self._blob is None or self._stopped is not None:
            return None
        try:
            return self._blob.run(inputs)
        except AbiError as error:
            self._stopped = str(error)
            return None

    def _upper(self, inputs: Mapping[str, Array]) -> Levels:
        graph, rounding = self._made.compilation.graph, self._made.compilation.rounding
        l1 = _float_level(self._graph, inputs, rounding, self._l1_states)
        found: dict[Value, Array] = {}
        see, states = found.__setitem__, self._l2_states
        evaluate(graph, inputs, rounding, see, states=states, stored=True)
        l2 = {v: found[v] for v in values_of(graph)}
        return Levels(made=self._made, graph=self._graph, l1=l1, l2=l2, l3={}, l4={})


def _float_level(
    graph: Graph, inputs: Mapping[str, Array], rounding: Rounding, states: dict[str, Array]
) -> dict[str, Array]:
    """Return the real values of the source graph; nothing when no float op computes there."""
    computing = [op for op in graph.ops if op.COMPUTES]
    if not any(not is_quantised(v) for op in computing for v in op.results):
        return {}
    found: dict[str, Array] = {}

    def see(value: Value, array: Array) -> None:
        if not isinstance(value.owner, Const) and not is_quantised(value):
            found[value.name] = array

    evaluate(graph, inputs, rounding, see, states=states)
    return found


def _taken(value: Value, part: Part, held: Bytes) -> Array:
    return part.elements(held[part.root]).reshape(value.tensor.dims)
