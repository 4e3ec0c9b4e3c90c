"""One compilation from a file to a blob: front end, passes, emission, timing, known answer.

Invariant: the blob is a function of the model's bytes, the calibration data and the options; it
holds no path, time or hash order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npuabi.bands import band_sets
from npuabi.container import write_blob
from npuabi.enums import Precision, Rounding
from npuabi.errors import AbiError
from npuabi.program import Program, table_header
from npuabi.progress import Progress, silent
from npuabi.simulate import Timeline
from npuabi.target import Target, load_target
from npuc.diagnostics import CompileError, Diagnostic
from npuc.frontend.source import load_source
from npuc.frontend.text import check_constants, parse
from npuc.ir.core import Array, Graph
from npuc.ir.interpreter import evaluate
from npuc.known_answer import Answer, answer_of
from npuc.passes import GRAPH_PASSES
from npuc.passes.context import PassContext
from npuc.passes.manager import After, PassManager, PassTime
from npuc.passes.plan_memory import ArenaPlan
from npuc.passes.precision import set_precisions
from npuc.plans import Plan, best_plan
from npuc.samples import calibration_samples

__all__ = ["Compilation", "Options", "compile", "compile_quantised", "context_of"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user can choose; the defaults are those of ``npuc compile``.

    ``calibrate`` is the path of an npz, of an image or of a folder of images, ``random``, or arrays
    by input name; None takes the graph's own attribute. ``preprocess`` is the path of the TOML file
    that says how images become arrays. ``precision`` is auto, int8, int16, fp16 or fp32: auto is
    int8 where the graph is quantised or calibration data is given, else fp16. ``keep`` gives single
    ops another one, by the name of a result. ``level`` 0 to 3 changes tiling, placement and order,
    never a number.
    """

    target: str | Target = "edge"
    precision: str = "auto"
    keep: Mapping[str, str | Precision] = field(default_factory=dict)
    rounding: str = "double"
    calibrate: str | Path | Mapping[str, Array] | None = None
    preprocess: str | Path | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    level: int = 2
    sram_limit_kib: int | None = None
    percentile: float = 100.0
    fuse: bool = True


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """A finished compilation.

    ``graph`` is the quantised graph, whose references define every bit of ``blob``; ``ports`` gives
    the host's names of outputs whose names there are others.
    """

    blob: bytes
    program: Program
    target: Target
    graph: Graph
    ports: Mapping[str, str]
    rounding: Rounding
    timeline: Timeline
    arena: ArenaPlan
    answer: Answer
    notes: tuple[Diagnostic, ...]
    passes: tuple[PassTime, ...]
    compile_s: float

    def reference(
        self, inputs: Mapping[str, Array], states: dict[str, Array] | None = None
    ) -> dict[str, Array]:
        """Return the outputs of the reference for one compiled batch of *inputs*.

        *states* holds the states by name, is read and then updated; None begins with their first
        values.
        """
        found = evaluate(self.graph, inputs, self.rounding, states=states, stored=True)
        return {self.ports.get(name, name): array for name, array in found.items()}


def compile(
    model: str | Path,
    options: Options | None = None,
    *,
    after: After | None = None,
    progress: Progress = silent,
    **changes: Any,
) -> Compilation:
    """Compile the graph text at *model*.

    *changes* are fields of Options by keyword; *after* is called with each pass and the graph that
    it left, *progress* with passes and samples as they are done. Raises CompileError, TargetError
    for a bad target, OSError when the file cannot be read.
    """
    chosen = replace(options or Options(), **changes)
    source = load_source(model)
    with source.shown():
        graph = parse(source)
        check_constants(graph)
        return compile_graph(graph, chosen, folder=source.folder, after=after, progress=progress)


def compile_graph(
    graph: Graph,
    options: Options,
    *,
    folder: Path = Path(),
    after: After | None = None,
    progress: Progress = silent,
    context: PassContext | None = None,
) -> Compilation:
    """Compile a float or quantised *graph*, which is rewritten; weight files lie in *folder*.

    *context* is one that :func:`context_of` made, for who wants to read it afterwards.
    """
    start = time.perf_counter()
    if context is None:
        context = context_of(graph, options, folder)
        context.progress = progress
    times = PassManager([kind() for kind in GRAPH_PASSES]).run(graph, context, after)
    made = compile_quantised(graph, context, after=after)
    compile_s = time.perf_counter() - start
    return replace(made, passes=(*times, *made.passes), compile_s=compile_s)


def compile_quantised(
    graph: Graph,
    context: PassContext,
    *,
    after: After | None = None,
    answer: Answer | None = None,
) -> Compilation:
    """Compile a *graph* that has gone through GRAPH_PASSES, and is left as it is.

    So one quantised graph may be compiled for several levels and targets; *answer* is the known
    answer of another one of them, which depends on the graph alone.
    """
    start = time.perf_counter()
    best = best_plan(graph, context, after)
    precision = max(toa.precision for toa in best.emitted.toas)
    if answer is None:
        exact = precision in (Precision.INT8, Precision.INT16)
        answer = answer_of(graph, context.rounding, exact=exact)
    program = _program(best, context, precision, answer)
    try:
        blob = write_blob(program)
    except AbiError as error:
        raise CompileError.at(graph.location, f"no blob can hold this graph: {error}") from error
    return Compilation(
        blob=blob,
        program=program,
        target=context.target,
        graph=graph,
        ports=dict(context.ports),
        rounding=context.rounding,
        timeline=best.timeline,
        arena=best.arena,
        answer=answer,
        notes=tuple(context.notes),
        passes=tuple(best.times),
        compile_s=time.perf_counter() - start,
    )


def _program(best: Plan, context: PassContext, precision: Precision, answer: Answer) -> Program:
    """Return the program of a plan, its known answer beside the constants."""
    emitted = best.emitted
    record, constants = answer.within(best.constants)
    header = table_header(
        target=context.target,
        tensors=emitted.tensors,
        toas=emitted.toas,
        constants=constants,
        arena_bytes=best.arena.size,
        macs=sum(s.macs for s in emitted.sources),
        cycles=best.timeline.cycles,
        rounding=context.rounding,
        precision=precision,
    )
    return Program(
        header=header,
        tensors=emitted.tensors,
        toas=emitted.toas,
        ring=tuple(range(len(emitted.toas))),
        constants=constants,
        interface=emitted.interface,
        sources=emitted.sources,
        symbols=emitted.symbols,
        known_answer=record,
        states=emitted.states,
        bands=band_sets(context.target),
    )


def context_of(graph: Graph, options: Options, folder: Path) -> PassContext:
    """Return what the passes are told; reads calibration data. Raises CompileError."""
    target = options.target
    if options.sram_limit_kib is not None and options.sram_limit_kib < 1:
        raise CompileError.at(graph.location, "--sram-limit is at least 1 KiB")
    if not 50 < options.percentile <= 100:
        text = f"--percentile is above 50 and at most 100, got {options.percentile}"
        raise CompileError.at(graph.location, text)
    context = PassContext(
        target=load_target(target) if isinstance(target, str) else target,
        rounding=Rounding[options.rounding.upper()],
        level=options.level,
        folder=folder,
        shapes=options.shapes,
        percentile=options.percentile,
        no_fuse=not options.fuse,
        sram_limit=options.sram_limit_kib and options.sram_limit_kib << 10,
    )
    context.calibration = calibration_samples(graph, options.calibrate, context, options.preprocess)
    set_precisions(graph, context, options.precision, options.keep)
    return context
