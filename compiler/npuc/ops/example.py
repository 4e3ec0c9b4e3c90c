"""Operands for the small instances that every op yields from ``examples()``."""

from __future__ import annotations

from npuc.ir.core import Value
from npuc.ir.types import TensorType

__all__ = ["floats"]


def floats(name: str, *shape: int | None) -> Value:
    """Return a float value of *shape*."""
    return Value(name, TensorType(shape))
