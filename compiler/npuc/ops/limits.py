"""Limits that hold for many ops, each once: the size of a descriptor's fields, rank, emptiness.

The texts are both diagnostics and rows of the support matrix. Limits are asked of ops whose
shapes are known; a dynamic dim passes, since binding shapes comes first.
"""

from __future__ import annotations

from typing import Protocol

from npuc.ir.core import Limit, Op
from npuc.window import Window

__all__ = ["BLOCK", "COMMON", "WINDOW"]

_MAX_RANK = 4
_FIELD_MAX = 255


class _Windowed(Protocol):
    @property
    def window(self) -> Window: ...


class _Blocked(Protocol):
    @property
    def blocksize(self) -> int: ...


def _block_fits(op: _Blocked) -> bool:
    return op.blocksize <= _FIELD_MAX


def _ranks_fit(op: Op) -> bool:
    return all(v.tensor.rank <= _MAX_RANK for v in (*op.inputs, *op.results))


def _nothing_empty(op: Op) -> bool:
    return all(0 not in v.tensor.shape for v in (*op.inputs, *op.results))


def _window_fits(op: _Windowed) -> bool:
    window = op.window
    numbers = (*window.kernel, *window.strides, *window.dilations, *window.pads)
    return max(numbers) <= _FIELD_MAX


COMMON = (
    Limit(f"tensors have at most {_MAX_RANK} dims", _ranks_fit, "reshape to fewer dims"),
    Limit("tensors hold at least one element", _nothing_empty, "remove the op from the graph"),
)
"""What every op obeys."""

WINDOW = Limit(
    f"kernel, strides, dilations and pads are at most {_FIELD_MAX}",
    _window_fits,
    "use a smaller kernel, or split the op in two",
)
"""Descriptors hold each of these numbers in one byte."""

BLOCK = Limit(f"blocksize is at most {_FIELD_MAX}", _block_fits, "use reshape and transpose")
"""Descriptors hold it in one byte."""
