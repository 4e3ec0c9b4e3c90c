"""Limits of what a text or a weight file may ask for, so that bad input cannot exhaust the host.

Invariant: every limit is checked before memory is taken for what it bounds.
"""

from __future__ import annotations

__all__ = [
    "MAX_CONSTANT_ELEMENTS",
    "MAX_DIM",
    "MAX_RANK",
    "MAX_TENSOR_ELEMENTS",
    "MAX_TEXT_BYTES",
]

MAX_TEXT_BYTES = 64 << 20
"""Bytes of a graph text."""

MAX_CONSTANT_ELEMENTS = 1 << 28
"""Elements of one constant."""

MAX_TENSOR_ELEMENTS = (1 << 31) - 1
"""Elements of any tensor; more than that no target can address."""

MAX_DIM = (1 << 31) - 1
"""The largest dim of a tensor type."""

MAX_RANK = 8
"""The most dims of a tensor type; the device has four."""
