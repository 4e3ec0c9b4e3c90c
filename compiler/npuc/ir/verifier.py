"""What must hold for every graph between passes; a pass that breaks it is caught at once.

Invariant: the verifier changes nothing, and reports all that it finds in one error. A Verifier
remembers what each op was when its types were right, and checks them again only once they differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from npuc.diagnostics import CompileError, Diagnostic
from npuc.ir.core import Graph, Op, Value
from npuc.ir.merge import agree, inferred_types

__all__ = ["Verifier", "verify"]


def verify(graph: Graph) -> None:
    """Raise CompileError with every broken rule of *graph*, each at the place of its op."""
    Verifier().verify(graph)


class Verifier:
    """Verifies a graph again and again, as passes change it."""

    def __init__(self) -> None:
        self._sound: dict[Op, _State] = {}

    def verify(self, graph: Graph) -> None:
        """Raise CompileError with every broken rule of *graph*, each at the place of its op."""
        check = _Check(graph, self._sound)
        found = [Diagnostic(place.location, text) for place, text in check.run()]
        if found:
            raise CompileError(found)


_Finding = tuple[Op | Graph, str]
_State = tuple[object, ...]
"""All that an op's types follow from: those of its operands and results, and its attributes."""


class _Check:
    """One walk over a graph, in order."""

    def __init__(self, graph: Graph, sound: dict[Op, _State]) -> None:
        self.graph = graph
        self.sound = sound
        self.readers: dict[Value, int] = {}
        self.names: set[str] = set()

    def run(self) -> Iterator[_Finding]:
        for argument in self.graph.arguments:
            yield from self._define(argument, None)
        previous: Op | None = None
        for op in self.graph.ops:
            if op.graph is not self.graph or op.previous is not previous:
                yield op, f"{op.NAME} is not linked into its graph"
            yield from self._operands(op)
            yield from self._own(op)
            for value in op.results:
                yield from self._define(value, op)
            previous = op
        yield from self._outputs()
        yield from self._users()

    def _define(self, value: Value, owner: Op | None) -> Iterator[_Finding]:
        place = owner or self.graph
        if value.owner is not owner:
            yield place, f"%{value.name} names another op as its producer"
        if value in self.readers:
            yield place, f"%{value.name} is defined twice"
        if value.name and value.name in self.names:
            yield place, f"the name %{value.name} is given to two values"
        self.names.add(value.name)
        self.readers[value] = 0

    def _operands(self, op: Op) -> Iterator[_Finding]:
        for value, count in Counter(op.inputs).items():
            if value not in self.readers:
                yield op, f"{op.NAME}: %{value.name} is used before its definition"
            elif value.users.get(op) != count:
                yield op, f"{op.NAME}: the users of %{value.name} are not kept right"
            else:
                self.readers[value] += 1

    def _own(self, op: Op) -> Iterator[_Finding]:
        """Check what depends on the op alone, unless it is as it was when it was sound."""
        state = _state(op)
        if self.sound.get(op) == state:
            return
        found = list(_missing(op)) or list(_types(op))
        yield from found
        if not found:
            self.sound[op] = state

    def _outputs(self) -> Iterator[_Finding]:
        if not self.graph.outputs:
            yield self.graph, "the graph has no outputs"
        for value in self.graph.outputs:
            if value not in self.readers:
                yield self.graph, f"the output %{value.name} is not defined"

    def _users(self) -> Iterator[_Finding]:
        """Find users that do not read: those that do were counted."""
        for value, readers in self.readers.items():
            if len(value.users) != readers:
                yield value.owner or self.graph, f"the users of %{value.name} are not kept right"


def _state(op: Op) -> _State:
    operands = op.operands
    return (
        len(operands),
        *[None if v is None else v.type for v in operands],
        *[v.type for v in op.results],
        # Passes may write into a list.
        *[tuple(v) if isinstance(v, list) else v for v in op.attributes.values()],
    )


def _missing(op: Op) -> Iterator[_Finding]:
    operands = op.operands
    for index, field in enumerate(op.OPERANDS):
        given = index < len(operands) and operands[index] is not None
        if not given and not field.optional:
            yield op, f"{op.NAME} lacks its operand {field.name}"


def _types(op: Op) -> Iterator[_Finding]:
    """Hold the types of the results against inference, and run the op's own verifier."""
    try:
        inferred = inferred_types(op)
        op.verify()
    except ValueError as error:
        yield op, f"{op.NAME}: {error}"
        return
    if inferred is None:
        return
    if len(inferred) != len(op.results):
        yield op, f"{op.NAME} has {len(op.results)} results, its inference {len(inferred)}"
        return
    for value, want in zip(op.results, inferred, strict=True):
        if not agree(value.type, want):
            yield op, f"{op.NAME}: %{value.name} is {value.type}, its inference {want}"
