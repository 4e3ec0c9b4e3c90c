"""bind_shapes: dynamic dims get the sizes that the user gives with ``--shape``.

Invariant: after this pass no type has a dynamic dim.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuc.diagnostics import CompileError, Diagnostic
from npuc.frontend.limits import MAX_DIM, MAX_TENSOR_ELEMENTS
from npuc.ir.core import Graph, Value
from npuc.ir.types import TensorType
from npuc.passes.context import PassContext
from npuc.passes.infer_types import infer_types
from npuc.passes.level import Level

__all__ = ["BindShapes"]


@dataclass(frozen=True, slots=True)
class BindShapes:
    """Bind the dims of inputs by ``context.shapes`` and infer all types anew."""

    NAME: ClassVar[str] = "bind_shapes"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Raises CompileError for an unknown input, another rank, another dim, an unbound dim."""
        inputs = {v.name: v for v in graph.inputs}
        texts = [_unknown(name, list(inputs)) for name in context.shapes if name not in inputs]
        for name, value in inputs.items():
            texts += _bind(value, context.shapes.get(name))
        if texts:
            raise CompileError([Diagnostic(graph.location, text) for text in texts])
        infer_types(graph)


def _unknown(name: str, inputs: list[str]) -> str:
    close = difflib.get_close_matches(name, inputs, 1)
    hint = f", did you mean {close[0]}" if close else ""
    return f"--shape names no input {name}{hint}: the inputs are {', '.join(inputs)}"


def _bind(value: Value, dims: Sequence[int] | None) -> list[str]:
    """Bind one input; return what is wrong."""
    tensor = value.tensor
    if dims is None:
        return [_unbound(value.name, tensor)] if None in tensor.shape else []
    given = "x".join(map(str, dims))
    fits = len(dims) == tensor.rank and all(
        have in (None, want) for have, want in zip(tensor.shape, dims, strict=True)
    )
    if not fits:
        return [f"--shape {value.name}={given} does not fit {tensor}: only ? dims can be bound"]
    if max(dims, default=0) > MAX_DIM or math.prod(filter(None, dims)) > MAX_TENSOR_ELEMENTS:
        return [f"--shape {value.name}={given} has more than {MAX_TENSOR_ELEMENTS} elements"]
    if isinstance(value.type, TensorType):
        value.type = value.type.with_shape(tuple(dims))
    return []


def _unbound(name: str, tensor: TensorType) -> str:
    example = "x".join("1" if d is None else str(d) for d in tensor.shape)
    return f"input {name} is {tensor}, which has dynamic dims: add --shape {name}={example}"
