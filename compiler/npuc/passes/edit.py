"""Small graph surgery that several passes share: constants, guards, names, roles of operands.

Invariant: nothing here changes a number that the graph computes.
"""

from __future__ import annotations

import numpy as np

from npuc.diagnostics import CompileError, Location
from npuc.ir.const import Const, Dense
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.types import TensorType

__all__ = [
    "Names",
    "add_constant",
    "constant_of",
    "erase_unused",
    "only_user",
    "real_constant",
    "separate_roles",
    "sharing",
]


class Names:
    """Hands out names of values that no value of the graph has."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {v.name for v in graph.arguments}
        self._taken |= {v.name for op in graph.ops for v in op.results}

    def fresh(self, base: str) -> str:
        """Return *base*, or *base* with the first number that makes it new."""
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def constant_of(value: Value) -> Array | None:
    """Return the stored array of a constant, None of any other value."""
    return value.owner.value() if isinstance(value.owner, Const) else None


def real_constant(value: Value) -> Array | None:
    """Return a float constant as float64, any other constant as it is, else None."""
    found = constant_of(value)
    return found.astype(np.float64) if found is not None and found.dtype.kind == "f" else found


def add_constant(
    graph: Graph, array: Array, tensor: TensorType, *, name: str, before: Op, location: Location
) -> Value:
    """Put a constant before an op, rounded once to the type's dtype; CompileError if it overflows.

    *tensor* gives dtype and parameters; its shape is that of *array*.
    """
    typed = tensor.with_shape(array.shape)
    try:
        with np.errstate(over="ignore"):
            stored = array.astype(typed.numpy)
        op = Const(Dense(stored), typed, name=name, location=location)
    except ValueError as error:
        raise CompileError.at(location, f"constant %{name}: {error}") from error
    return graph.insert(op, before=before).result


def only_user(graph: Graph, value: Value) -> Op | None:
    """Return the one op that reads *value* once; None for more readers or a graph output."""
    if graph.is_output(value) or list(value.users.values()) != [1]:
        return None
    (user,) = value.users
    return user


def sharing(graph: Graph, value: Value) -> str | None:
    """Return why *value* must be stored beside its reader, in words; None when one op reads it."""
    if graph.is_output(value):
        return f"%{value.name} is a graph output"
    readers = [f"{op.NAME} %{op.results[0].name}" for op in value.users if op.results]
    if sum(value.users.values()) > 1:
        return f"%{value.name} has more than one reader: {', '.join(readers)}"
    return None


def erase_unused(op: Op) -> None:
    """Erase *op* when nothing reads its results, and then the constants that it alone read."""
    graph = op.graph
    if graph is None or any(v.users or graph.is_output(v) for v in op.results):
        return
    sources = {v.owner: None for v in op.inputs if isinstance(v.owner, Const)}
    op.erase()
    for source in sources:
        if source.graph is not None and not source.result.users:
            erase_unused(source)


def separate_roles(graph: Graph) -> None:
    """Give a constant that is both a parameter and an activation a second constant for the latter.

    The two are quantised and laid out by different rules.
    """
    names = Names(graph)
    for op in graph.ops:
        if isinstance(op, Const) and _has_both_roles(op):
            clone = Const(
                op.data,
                op.result.tensor,
                name=names.fresh(f"{op.result.name}_activation"),
                location=op.location,
            )
            graph.insert(clone, before=op)
            for user in list(op.result.users):
                if op.result in user.activations:
                    _read_instead(user, op.result, clone.result)


def _has_both_roles(op: Op) -> bool:
    return len({op.result in user.activations for user in op.result.users}) == 2


def _read_instead(user: Op, old: Value, new: Value) -> None:
    user.operands = [new if v is old else v for v in user.operands]
