"""From the quantised graph to the fastest of several plans: tiled, placed, ordered, timed.

Invariant: plans differ in cycles and memory, never in a number that the program computes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from npuabi.simulate import Timeline, simulate
from npuc.diagnostics import CompileError
from npuc.emit import Emitted, emit
from npuc.ir.core import Graph
from npuc.passes import npu_passes
from npuc.passes.context import PassContext
from npuc.passes.lower import Lower, lowered
from npuc.passes.manager import After, PassManager, PassTime
from npuc.passes.place import SramOverflow
from npuc.passes.plan_memory import ArenaPlan, arena_plan, constant_data

__all__ = ["Plan", "best_plan"]

_COMPARED = 3
"""Plans of one level that are compared below -O3, when the first stalls."""

_SEARCH_TOAS = 3_000
"""TOAs of all plans after which no more are compared: large programs must not take many times."""

_SMOOTH = 20
"""Cycles for each stall cycle of a plan that is taken without comparing it."""

_BUDGETS = (100, 95, 85, 75, 60, 45, 30, 15)
"""Percent of SRAM given to tiling, tried in turn: placement needs slack on some networks."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One way to tile, place and order a program: what the passes of a level make of a budget."""

    level: int
    budget_percent: int
    emitted: Emitted
    constants: bytes
    arena: ArenaPlan
    timeline: Timeline
    times: list[PassTime]

    @property
    def smooth(self) -> bool:
        """Whether a twentieth of the cycles or less are stalls."""
        return _SMOOTH * sum(self.timeline.stalls.values()) <= self.timeline.cycles


def best_plan(graph: Graph, context: PassContext, after: After | None) -> Plan:
    """Return the fastest plan of the context's -O level.

    A plan that stalls little is taken as it is. Else smaller tiling budgets and the plans of the
    lower levels compete: a level compiles what those below it compile, and is no slower but for
    the stalls that are let pass. -O3 compares all budgets in any case. *after* sees the passes of
    the chosen plan only. Raises CompileError when no plan fits.
    """
    found: list[Plan] = []
    failure: CompileError | None = None
    for level in range(context.level, -1, -1):
        tried, refused = _plans(graph, context, level)
        found += tried
        failure = failure or refused
        if found and (found[0].smooth or _exhausted(found)):
            break
    if not found:
        raise failure or CompileError.at(graph.location, "no plan fits the SRAM")
    best = min(found, key=lambda plan: plan.timeline.cycles)
    return best if after is None else _plan(graph, context, best.level, best.budget_percent, after)


def _exhausted(found: Sequence[Plan]) -> bool:
    return sum(len(plan.emitted.toas) for plan in found) >= _SEARCH_TOAS


def _plans(
    graph: Graph, context: PassContext, level: int
) -> tuple[list[Plan], CompileError | None]:
    """Return the plans of one level that fit, the roomiest first, and why one did not."""
    found: list[Plan] = []
    failure: CompileError | None = None
    compared, wanted = 0, len(_BUDGETS) if context.level == 3 else _COMPARED
    context.sram_needed = None
    for budget in _BUDGETS:
        if context.sram_needed is not None and _bytes(context, budget) >= context.sram_needed:
            compared += bool(found)  # the same plan as the last
        else:
            try:
                found.append(_plan(graph, context, level, budget))
            except SramOverflow as error:
                failure = failure or error
                continue
            except CompileError as error:
                # A smaller budget cannot help what does not fit this one.
                return found, failure or error
            compared += 1
        if compared == wanted or (found and _enough(found, context)):
            break
    return found, failure


def _bytes(context: PassContext, budget_percent: int) -> int:
    return context.sram_bytes * budget_percent // 100


def _enough(found: Sequence[Plan], context: PassContext) -> bool:
    return (found[0].smooth and context.level < 3) or _exhausted(found)


def _plan(
    graph: Graph, context: PassContext, level: int, budget: int, after: After | None = None
) -> Plan:
    start = time.perf_counter()
    npu = lowered(graph, context)
    lowering = PassTime(Lower.NAME, time.perf_counter() - start, 0.0)
    if after is not None:
        after(Lower(), npu)
    times = PassManager(npu_passes(level, budget)).run(npu, context, after)
    emitted = emit(npu, graph.inputs, graph.returned, context.target, context.ports)
    return Plan(
        level=level,
        budget_percent=budget,
        emitted=emitted,
        constants=constant_data(npu),
        arena=arena_plan(npu, context.target.dma_alignment),
        timeline=simulate(emitted.works, context.target),
        times=[lowering, *times],
    )
