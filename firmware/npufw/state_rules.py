"""The rules of tensors that are kept from run to run.

Invariant: a reset copies elements between two tensors of one shape, element type and layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuabi.enums import Space
from npuabi.errors import ErrorCode
from npuabi.records import TensorDescriptor
from npufw.errors import FirmwareError
from npufw.kernels.base import Fault

__all__ = ["STATE_RULES", "check_states"]


def _kept_in_the_arena(tensor: TensorDescriptor, initial: TensorDescriptor) -> Fault:
    if tensor.space is not Space.ARENA:
        text = f"lies in {tensor.space.name.lower()}, only the arena is kept"
        return ErrorCode.BAD_OPERANDS, text
    return None


def _starts_from_constants(tensor: TensorDescriptor, initial: TensorDescriptor) -> Fault:
    if initial.space is not Space.CONSTANTS:
        text = f"starts from {initial.space.name.lower()}, expected constants"
        return ErrorCode.BAD_OPERANDS, text
    return None


def _alike(tensor: TensorDescriptor, initial: TensorDescriptor) -> Fault:
    for name in ("dims", "dtype", "layout", "lane", "scale", "zero_point"):
        kept, first = getattr(tensor, name), getattr(initial, name)
        if kept != first:
            return ErrorCode.BAD_DIMS, f"{name} is {kept}, that of its first value {first}"
    return None


STATE_RULES: tuple[Callable[[TensorDescriptor, TensorDescriptor], Fault], ...] = (
    _kept_in_the_arena,
    _starts_from_constants,
    _alike,
)
"""In this order, on each state."""


def check_states(states: Sequence[tuple[str, TensorDescriptor, TensorDescriptor]]) -> None:
    """Raise FirmwareError unless *states* (name, tensor, first value) obey the rules.

    Names are distinct.
    """
    for name, tensor, initial in states:
        for rule in STATE_RULES:
            fault = rule(tensor, initial)
            if fault is not None:
                raise FirmwareError(fault[0], f"state {name!r}: {fault[1]}")
    names = [name for name, _, _ in states]
    if len(set(names)) != len(names):
        raise FirmwareError(ErrorCode.BAD_SYMBOL, f"two states have one name: {sorted(names)}")
