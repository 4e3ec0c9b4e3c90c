"""Keep states as they are computed, where what is read and what is written are of one type.

The float graph updates a state with floats. Once precisions are chosen, each reader quantises or
casts the state and its update is converted back: when all have one type, the state holds it and
both conversions go.

Invariant: the bits are those of the conversions, as quantising a dequantised code gives the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuabi.enums import Rounding
from npuc.ir.core import Graph, Op, State, Value
from npuc.ir.state import begin_with, initial_of
from npuc.ir.types import TensorType
from npuc.ops.cast import Cast
from npuc.ops.dequantize import Dequantize
from npuc.ops.quantize import Quantize
from npuc.passes.context import PassContext
from npuc.passes.edit import erase_unused
from npuc.passes.level import Level

__all__ = ["StoreStates"]


@dataclass(frozen=True, kw_only=True)
class StoreStates:
    """Give each state the type that its readers and its update convert from and to."""

    NAME: ClassVar[str] = "store_states"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite the states of *graph*."""
        for index in range(len(graph.states)):
            _store(graph, index, context.rounding)


def _store(graph: Graph, index: int, rounding: Rounding) -> None:
    state, update = graph.states[index], graph.updates[index]
    readers = list(state.argument.users)
    made = update.owner
    if made is None or not _converts(made) or graph.is_output(state.argument):
        return
    (codes,) = made.inputs
    stored = codes.tensor
    if not readers or not all(_converts(r) and r.result.tensor == stored for r in readers):
        return
    graph.states[index] = _converted(state, readers[0], stored, rounding)
    for reader in readers:
        graph.replace(reader.result, state.argument)
        reader.erase()
    state.argument.type = stored
    place = len(graph.returned) + index
    graph.outputs[place] = _current(codes, readers, state)
    erase_unused(made)


def _current(codes: Value, readers: list[Op], state: State) -> Value:
    """A state that is updated with itself has lost the op that made its codes."""
    return state.argument if codes.owner in readers else codes


def _converts(op: Op) -> bool:
    return isinstance(op, (Quantize, Dequantize, Cast))


def _converted(state: State, reader: Op, stored: TensorType, rounding: Rounding) -> State:
    (held,) = reader.reference([initial_of(state).value()], rounding)
    return begin_with(state, held.astype(stored.numpy), stored)
