"""Pattern rewriting: guarded local changes, applied until none matches.

Invariant: the work is linear in the number of ops and rewrites; a graph's outputs keep their
names; patterns that would go on for ever end in an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from npuc.ir.core import Graph, Op, Value

__all__ = ["Pattern", "Rewriter", "apply_patterns", "erase_dead"]

_REWRITES_PER_OP = 16


class Pattern(ABC):
    """One rewrite: guards first, then the change through the rewriter."""

    @abstractmethod
    def match_and_rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        """Change the graph around *op* and return True, or leave it alone and return False."""


class Rewriter:
    """The only way for a pattern to change its graph; remembers which ops to look at again."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._queue: deque[Op] = deque(graph.ops)
        self._queued: set[Op] = set(self._queue)

    def insert_before(self, op: Op, *new: Op) -> None:
        """Insert ops before *op*, in the given order."""
        for item in new:
            self.graph.insert(item, before=op)
            self._push(item)

    def can_replace(self, old: Value, new: Value) -> bool:
        """Return whether an output would keep its name: *new* must be free to take it."""
        if not self.graph.is_output(old):
            return True
        return new.owner is not None and not self.graph.is_output(new)

    def replace(self, op: Op, values: Sequence[Value]) -> None:
        """Use *values* instead of the results of *op*, and erase it.

        An unnamed value takes the name of the result, and so does one that becomes an output.
        Raises ValueError where :meth:`can_replace` does not hold.
        """
        for old, new in zip(op.results, values, strict=True):
            if not self.can_replace(old, new):
                raise ValueError(f"%{new.name} cannot become the output %{old.name}")
            users = list(old.users)
            if not new.name or self.graph.is_output(old):
                new.name, old.name = old.name, ""
            self.graph.replace(old, new)
            for user in users:
                self._push(user)
        self.erase(op)

    def replace_with(self, op: Op, new: Op) -> None:
        """Insert *new* before *op*, let its results stand for those of *op*, and erase *op*."""
        self.insert_before(op, new)
        self.replace(op, new.results)

    def erase(self, op: Op) -> None:
        """Remove an op whose results have no readers; its producers are looked at again."""
        for value in op.inputs:
            if value.owner is not None:
                self._push(value.owner)
        op.erase()
        self._queued.discard(op)

    def changed(self, op: Op) -> None:
        """Look again at an op that a pattern changed in place, and at its readers."""
        self._push(op)
        for value in op.results:
            for user in value.users:
                self._push(user)

    def pop(self) -> Op | None:
        """Return the next op that is still in the graph, None when all are done."""
        while self._queue:
            op = self._queue.popleft()
            if op in self._queued:
                self._queued.discard(op)
                return op
        return None

    def _push(self, op: Op) -> None:
        if op.graph is self.graph and op not in self._queued:
            self._queue.append(op)
            self._queued.add(op)


def apply_patterns(graph: Graph, patterns: Sequence[Pattern]) -> bool:
    """Apply *patterns*, in order of preference at each op, until none matches.

    Returns whether anything changed. Raises CompileError when the patterns do not come to an end.
    """
    rewriter = Rewriter(graph)
    limit = _REWRITES_PER_OP * (len(graph) + 1)
    rewrites = 0
    while (op := rewriter.pop()) is not None:
        if not any(p.match_and_rewrite(op, rewriter) for p in patterns):
            continue
        rewrites += 1
        if rewrites > limit:
            names = ", ".join(type(p).__name__ for p in patterns)
            raise op.error(f"the patterns {names} do not come to an end after {limit} rewrites")
    return rewrites > 0


def erase_dead(graph: Graph) -> int:
    """Erase ops whose results nobody reads, and then their producers; return how many."""
    outputs = set(graph.outputs)
    waiting = list(graph.ops)
    erased = 0
    while waiting:
        op = waiting.pop()
        if op.graph is None or not op.results:
            continue
        if any(v.users or v in outputs for v in op.results):
            continue
        waiting += [v.owner for v in op.inputs if v.owner is not None]
        op.erase()
        erased += 1
    return erased
