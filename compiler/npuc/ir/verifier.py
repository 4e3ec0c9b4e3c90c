"""What must hold for every graph between passes; a pass that breaks it is caught at once.

Invariant: the verifier changes nothing, and reports all that it finds in one error. A Verifier
remembers what each op was when its types were right, and checks them again only once they differ.
"""

from __future__ import annotations

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
        found = _Check(graph, self._sound).run()
        if found:
            raise CompileError(found)


_State = tuple[object, ...]
"""All that an op's types follow from: those of its operands and results, and its attributes."""


class _Check:
    """One walk over a graph, in order."""

    def __init__(self, graph: Graph, sound: dict[Op, _State]) -> None:
        self.graph = graph
        self.sound = sound
        self.readers: dict[Value, int] = {}
        self.names: set[str] = set()
        self.found: list[Diagnostic] = []

    def run(self) -> list[Diagnostic]:
        for argument in self.graph.arguments:
            self._define(argument, None)
        previous: Op | None = None
        for op in self.graph.ops:
            if op.graph is not self.graph or op.previous is not previous:
                self._note(op, f"{op.NAME} is not linked into its graph")
            self._operands(op)
            self._own(op)
            for value in op.results:
                self._define(value, op)
            previous = op
        self._outputs()
        self._states()
        self._users()
        return self.found

    def _note(self, place: Op | Graph, text: str) -> None:
        self.found.append(Diagnostic(place.location, text))

    def _define(self, value: Value, owner: Op | None) -> None:
        place = owner or self.graph
        if value.owner is not owner:
            self._note(place, f"%{value.name} names another op as its producer")
        if value in self.readers:
            self._note(place, f"%{value.name} is defined twice")
        if value.name and value.name in self.names:
            self._note(place, f"the name %{value.name} is given to two values")
        self.names.add(value.name)
        self.readers[value] = 0

    def _operands(self, op: Op) -> None:
        reads: dict[Value, int] = {}
        for value in op.inputs:
            reads[value] = reads.get(value, 0) + 1
        for value, count in reads.items():
            if value not in self.readers:
                self._note(op, f"{op.NAME}: %{value.name} is used before its definition")
            elif value.users.get(op) != count:
                self._note(op, f"{op.NAME}: the users of %{value.name} are not kept right")
            else:
                self.readers[value] += 1

    def _own(self, op: Op) -> None:
        """Check what depends on the op alone, unless it is as it was when it was sound."""
        state = _state(op)
        if self.sound.get(op) == state:
            return
        found = list(_missing(op)) or list(_types(op))
        for text in found:
            self._note(op, text)
        if not found:
            self.sound[op] = state

    def _outputs(self) -> None:
        if not self.graph.outputs:
            self._note(self.graph, "the graph has no outputs")
        for value in self.graph.outputs:
            if value not in self.readers:
                self._note(self.graph, f"the output %{value.name} is not defined")

    def _states(self) -> None:
        graph = self.graph
        arguments = [state.argument for state in graph.states]
        if arguments != graph.arguments[len(graph.inputs) :]:
            self._note(graph, "the last arguments are those of the states, in order")
        for state, value in zip(graph.states, graph.updates, strict=False):
            wrong = state.refuses(value)
            if wrong:
                self._note(graph, wrong)

    def _users(self) -> None:
        """Find users that do not read: those that do were counted."""
        for value, readers in self.readers.items():
            if len(value.users) != readers:
                place = value.owner or self.graph
                self._note(place, f"the users of %{value.name} are not kept right")


def _state(op: Op) -> _State:
    operands = op.operands
    return (
        len(operands),
        *[None if v is None else v.type for v in operands],
        *[v.type for v in op.results],
        # Passes may write into a list.
        *[tuple(v) if type(v) is list else v for v in op.attributes.values()],
    )


def _missing(op: Op) -> Iterator[str]:
    operands = op.operands
    for index, field in enumerate(op.OPERANDS):
        given = index < len(operands) and operands[index] is not None
        if not given and not field.optional:
            yield f"{op.NAME} lacks its operand {field.name}"


def _types(op: Op) -> Iterator[str]:
    """Hold the types of the results against inference, and run the op's own verifier."""
    try:
        inferred = inferred_types(op)
        op.verify()
    except ValueError as error:
        yield f"{op.NAME}: {error}"
        return
    if inferred is None:
        return
    if len(inferred) != len(op.results):
        yield f"{op.NAME} has {len(op.results)} results, its inference {len(inferred)}"
        return
    for value, want in zip(op.results, inferred, strict=True):
        if not agree(value.type, want):
            yield f"{op.NAME}: %{value.name} is {value.type}, its inference {want}"
