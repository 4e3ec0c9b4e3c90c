"""Runs passes in order, verifies the graph after each, and measures their time.

Invariant: no pass sees a graph that does not verify.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from npuc.diagnostics import CompileError
from npuc.ir.core import Graph
from npuc.ir.verifier import Verifier
from npuc.passes.context import PassContext
from npuc.passes.level import Level, level_of

__all__ = ["Pass", "PassManager", "PassTime"]


class Pass(Protocol):
    """A change of the whole graph: a frozen dataclass whose fields are its options."""

    NAME: ClassVar[str]
    LEVEL: ClassVar[Level]

    def run(self, graph: Graph, context: PassContext) -> None:
        """Change *graph* in place; raises CompileError for what cannot be compiled."""


@dataclass(frozen=True, slots=True)
class PassTime:
    """How long one pass took on the host, the verifier apart."""

    name: str
    pass_s: float
    verify_s: float


After = Callable[[Pass, Graph], None]


@dataclass(frozen=True, slots=True)
class PassManager:
    """A pipeline of passes."""

    passes: Sequence[Pass]

    def run(self, graph: Graph, context: PassContext, after: After | None = None) -> list[PassTime]:
        """Run every pass on *graph* and return their times.

        *after* is called with each pass and the verified graph that it left. Raises CompileError.
        """
        verifier = Verifier()
        verifier.verify(graph)
        times = []
        for number, step in enumerate(self.passes):
            context.progress(step.NAME, number, len(self.passes))
            _check_level(step, graph)
            start = time.perf_counter()
            step.run(graph, context)
            done = time.perf_counter()
            _verify_after(verifier, step, graph)
            times.append(PassTime(step.NAME, done - start, time.perf_counter() - done))
            if after is not None:
                after(step, graph)
        return times


def _check_level(step: Pass, graph: Graph) -> None:
    found = level_of(graph)
    if found is not step.LEVEL:
        text = f"pass {step.NAME} takes {step.LEVEL.value}; graph @{graph.name} has {found.value}"
        raise CompileError.at(graph.location, text)


def _verify_after(verifier: Verifier, step: Pass, graph: Graph) -> None:
    try:
        verifier.verify(graph)
    except CompileError as error:
        found = [replace(d, text=f"after pass {step.NAME}: {d.text}") for d in error.diagnostics]
        raise CompileError(found) from error
