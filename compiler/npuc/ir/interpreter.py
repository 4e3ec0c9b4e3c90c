"""Runs a graph with the ops' own references: slow, obviously right, the truth of every level.

Invariant: a value is held no longer than until its last reader has run.

A graph whose ops keep samples apart (``Op.stacks``) may run many at once, stacked along axis 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.diagnostics import CompileError
from npuc.ir.core import Array, Graph, Op, Value
from npuc.ir.state import initial_of
from npuc.ir.types import TensorType

__all__ = ["Alter", "Stack", "evaluate"]

Observer = Callable[[Value, Array], None]
Alter = Callable[[Value, Array], Array]


@dataclass(frozen=True, kw_only=True)
class Stack:
    """How many samples run at once, and the values whose axis 0 holds them."""

    count: int = 1
    values: Collection[Value] = frozenset()

    def dims(self, value: Value) -> tuple[int, ...]:
        """Return the dims of the array that holds *value*."""
        dims = value.tensor.dims
        return (self.count * dims[0], *dims[1:]) if value in self.values else dims

    def constant(self, value: Value, array: Array) -> Array:
        """Return a constant's array, repeated for each sample where it is an activation."""
        if self.count == 1 or value not in self.values:
            return array
        return np.tile(array, (self.count,) + (1,) * (array.ndim - 1))


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    rounding: Rounding,
    observe: Observer | None = None,
    stack: Stack | None = None,
    states: dict[str, Array] | None = None,
    *,
    stored: bool = False,
    alter: Alter | None = None,
) -> dict[str, Array]:
    """Return the outputs by name, in graph order.

    *inputs* holds one array an input, of its dims; float tensors are computed in float64. Of a
    *stored* graph, one that quantise has seen, each float result is then rounded to its element
    type, as the device stores it, and the outputs have their types' dtypes; *alter* is then called
    with each and its array, and gives what takes its place. *states* holds one a
    state by name, read and then replaced; None, and a missing one, is the first value.
    *observe* is called with every value and its array, in order. With *stack* its values'
    arrays hold that many samples. Raises CompileError for inputs that do not fit and for constants
    that cannot be read.
    """
    run = _Run(graph, observe, stack or Stack(), stored=stored, alter=alter)
    _check_names(graph, inputs)
    for argument in graph.inputs:
        run.define(argument, run.input(argument, inputs[argument.name]))
    kept = {} if states is None else states
    for state in graph.states:
        begin = kept.get(state.name, initial_of(state).value())
        run.define(state.argument, run.input(state.argument, begin))
    for op in graph.ops:
        run.step(op, rounding)
    kept.update((s.name, run.arrays[v]) for s, v in zip(graph.states, graph.updates, strict=True))
    return {v.name: run.output(v) for v in graph.returned}


class _Run:
    """The arrays that are alive, and how many reads each still waits for."""

    def __init__(
        self,
        graph: Graph,
        observe: Observer | None,
        stack: Stack,
        *,
        stored: bool,
        alter: Alter | None,
    ) -> None:
        self._graph = graph
        self._stored = stored
        self._alter = alter
        self._stack = stack
        self.arrays: dict[Value, Array] = {}
        self._reads: dict[Value, int] = {}
        self._outputs = set(graph.outputs)
        self._observe = observe

    def define(self, value: Value, array: Array) -> None:
        if self._observe is not None:
            self._observe(value, array)
        reads = sum(value.users.values()) + (value in self._outputs)
        if reads:
            self.arrays[value], self._reads[value] = array, reads

    def step(self, op: Op, rounding: Rounding) -> None:
        operands = [None if v is None else self.arrays[v] for v in op.operands]
        # A logarithm of 0 is infinite, and what reads it may find no number: both go on.
        with np.errstate(all="ignore"):
            results = op.reference(operands, rounding)
        if not operands:
            pairs = zip(op.results, results, strict=True)
            results = tuple(self._stack.constant(value, array) for value, array in pairs)
        for value in op.inputs:
            self._release(value)
        for value, array in zip(op.results, results, strict=True):
            self._check_result(op, value, array)
            self.define(value, self._rounded(value, array))

    def output(self, value: Value) -> Array:
        """Return what the host gets."""
        array = self.arrays[value]
        return array.astype(value.tensor.numpy) if self._stored else array

    def _rounded(self, value: Value, array: Array) -> Array:
        """Return a result as the device would hold it; floats in float64."""
        if not self._stored or not _is_float(value.tensor):
            return array
        with np.errstate(over="ignore"):
            rounded = array.astype(value.tensor.numpy).astype(np.float64)
        return rounded if self._alter is None else self._alter(value, rounded)

    def input(self, argument: Value, array: Array) -> Array:
        """Return a checked input: float64 for float types, else the type's own dtype."""
        tensor = argument.tensor
        if None in tensor.shape:
            text = f"input {argument.name} has a dynamic dim: bind it with --shape"
            raise CompileError.at(self._graph.location, text)
        if array.shape != self._stack.dims(argument) or not _holds(tensor, array):
            have = f"{array.dtype.name} of shape {array.shape}"
            text = f"input {argument.name} is {tensor}, got {have}"
            raise CompileError.at(self._graph.location, text)
        return array.astype(np.float64 if _is_float(tensor) else tensor.numpy)

    def _check_result(self, op: Op, value: Value, array: Array) -> None:
        """Refuse a reference that breaks its op's own declaration."""
        tensor = value.tensor
        if array.shape != self._stack.dims(value) or not _holds(tensor, array):
            have = f"{array.dtype.name} of shape {array.shape}"
            raise op.error(f"the reference of %{value.name} gave {have}, its type is {tensor}")

    def _release(self, value: Value) -> None:
        self._reads[value] -= 1
        if not self._reads[value]:
            del self.arrays[value], self._reads[value]


def _check_names(graph: Graph, inputs: Mapping[str, Array]) -> None:
    wanted = [v.name for v in graph.inputs]
    for word, names in (
        ("missing", [n for n in wanted if n not in inputs]),
        ("unknown", [n for n in inputs if n not in wanted]),
    ):
        if names:
            takes = ", ".join(wanted) or "none"
            text = f"{word} input {', '.join(names)}: the graph takes {takes}"
            raise CompileError.at(graph.location, text)


def _is_float(tensor: TensorType) -> bool:
    return tensor.dtype in (DType.F16, DType.F32)


def _holds(tensor: TensorType, array: Array) -> bool:
    if _is_float(tensor):
        return array.dtype.kind == "f"
    return array.dtype.newbyteorder("<") == tensor.numpy
