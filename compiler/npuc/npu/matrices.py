"""What lowering a product of matrices needs: operands and results in rows, copied where they lie
otherwise.

Invariant: a copy is appended only where no view of the value's own memory will do.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuabi.enums import Layout
from npuc.ir.core import Op, Value
from npuc.ir.types import TensorType
from npuc.npu.builder import Builder
from npuc.npu.lowering import lower_copy
from npuc.npu.rows import columns_of, rows_of

__all__ = ["Target", "columns_in_place", "read_rows", "rows_target"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a product writes ``value``: ``matrix``, and the ``copied`` memory behind it if any."""

    value: Value
    matrix: Value
    copied: Value | None

    def finish(self, builder: Builder, op: Op) -> None:
        """Append the copy to where the value lies, if one is needed."""
        if self.copied is not None:
            lower_copy(builder, op, self.copied, builder.result_of(self.value))


def read_rows(builder: Builder, op: Op, value: Value) -> Value:
    """Return an L2 operand as a matrix, through a copy when it does not lie in rows."""
    rank = value.tensor.rank
    source = builder.read(value)
    found = rows_of(source, rank)
    if found is not None:
        return found
    made = builder.temporary(_in_rows(value), value.name)
    lower_copy(builder, op, source, made)
    return _matrix(made, rank)


def rows_target(builder: Builder, value: Value) -> Target:
    """Return a matrix to write an L2 result to: its own memory where that lies in rows."""
    rank = value.tensor.rank
    found = None
    if not builder.is_bound(value):
        found = rows_of(builder.result_of(value), rank)
    if found is not None:
        return Target(value, found, None)
    made = builder.temporary(_in_rows(value), value.name)
    return Target(value, _matrix(made, rank), made)


def columns_in_place(builder: Builder, a: Value, b: Value, result: Value) -> list[Value] | None:
    """Return a product's operands and result as transposed matrices if all lie so, else None."""
    lie_so = [v.tensor.rank == 3 and v.tensor.layout is Layout.NCHW16C for v in (a, b, result)]
    if not all(lie_so) or builder.is_bound(result):
        return None
    buffers = (builder.read(a), builder.read(b), builder.result_of(result))
    found = [columns_of(buffer, 3) for buffer in buffers]
    return [v for v in found if v is not None] if None not in found else None


def _in_rows(value: Value) -> TensorType:
    """Return the type of *value* in rows; of rank 2, bricks are rows already."""
    layout = Layout.NCHW if value.tensor.rank > 2 else Layout.NCHW16C
    return value.tensor.with_layout(layout)


def _matrix(buffer: Value, rank: int) -> Value:
    found = rows_of(buffer, rank)
    if found is None:
        raise TypeError(f"%{buffer.name} does not lie in rows")
    return found
