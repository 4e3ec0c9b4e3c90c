"""The first value of a state: a constant that stands beside the graph's ops."""

from __future__ import annotations

from dataclasses import replace

from npuc.ir.const import Const, Dense
from npuc.ir.core import Array, State
from npuc.ir.types import TensorType

__all__ = ["begin_with", "initial_of"]


def initial_of(state: State) -> Const:
    """Return the constant that *state* begins with; its type is the state's."""
    if not isinstance(state.initial, Const):
        raise TypeError(f"state {state.name!r} begins with {state.initial.NAME}")
    return state.initial


def begin_with(state: State, array: Array, tensor: TensorType) -> State:
    """Return the state that begins with *array*, of the type *tensor*."""
    made = Const(Dense(array), tensor, name=state.argument.name, location=state.location)
    return replace(state, initial=made)
