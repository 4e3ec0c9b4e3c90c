"""Types that a graph states against the types that its ops infer.

Invariant: shape and dtype are the inference's; a quantisation or layout that the graph states is
kept, as inference does not know them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npuc.ir.core import Op
from npuc.ir.types import Buffer, TensorType, Type

__all__ = ["agree", "complete", "inferred_types", "merge_types"]


def inferred_types(op: Op) -> Sequence[Type] | None:
    """Return what *op* infers, None when its types can only be stated.

    Raises ValueError when operands or attributes disagree.
    """
    try:
        return op.infer()
    except NotImplementedError:
        return None


def agree(stated: Type, inferred: Type) -> bool:
    """Return whether two types have the same shape and dtype."""
    have, want = _tensor(stated), _tensor(inferred)
    return have.shape == want.shape and have.dtype is want.dtype


def merge_types(stated: Type, inferred: Type) -> Type:
    """Return the stated type, completed; ValueError when shape or dtype disagree."""
    if not agree(stated, inferred):
        raise ValueError(f"the stated type is {stated}, the inferred one {inferred}")
    return complete(stated, inferred)


def complete(stated: Type, inferred: Type) -> Type:
    """Return the inferred shape and dtype with what only *stated* knows."""
    have, want = _tensor(stated), _tensor(inferred)
    same = have.dtype is want.dtype
    quant = have.quant if have.quant is not None and same else want.quant
    tensor = replace(want, quant=quant, layout=have.layout or want.layout)
    return replace(stated, tensor=tensor) if isinstance(stated, Buffer) else tensor


def _tensor(kind: Type) -> TensorType:
    return kind.tensor if isinstance(kind, Buffer) else kind
