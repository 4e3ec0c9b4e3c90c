"""Matrices as the MAC unit takes them: the last dim in bricks, a row a pixel.

An activation of rank 3 or 4 in layout nchw keeps its last dim together. In SRAM its rows are padded
to whole bricks, so the same bytes are also nchw16c with the last dim as channels:

| value | nchw | as a matrix, nchw16c |
| --- | --- | --- |
| (b, t, d) | (b, t, 1, d) | (1, d, b, t) |
| (a, b, t, d) | (a, b, t, d) | (a, d, b, t) |
| (t, d), nchw16c | (t, d, 1, 1) | (1, d, 1, t) |

Invariant: a matrix lies within its root buffer, the undefined lanes behind a row included.
"""

from __future__ import annotations

from dataclasses import replace

from npuabi.enums import Layout, Space
from npuabi.geometry import LANES
from npuc.ir.core import Value
from npuc.ir.types import Buffer, Place, TensorType
from npuc.npu.regions import geometry, root_of
from npuc.npu.tasks import View, buffer_type

__all__ = ["columns_of", "lies_in_rows", "matrix_buffer", "plain_view", "rows_of"]


def lies_in_rows(tensor: TensorType) -> bool:
    """Return whether an activation in SRAM has its rows padded to whole bricks."""
    return tensor.layout is Layout.NCHW and tensor.rank >= 3


def matrix_buffer(tensor: TensorType, space: Space) -> Buffer:
    """Return the buffer, seen as a matrix, that holds an activation in rows."""
    *batches, rows, depth = tensor.dims
    outer, inner = (1, *batches)[-2:]
    dims = (outer, depth, inner, rows)
    pitch = -(-depth // LANES) * LANES * tensor.dtype.size
    strides = (inner * rows * pitch, LANES * tensor.dtype.size, rows * pitch, pitch)
    return Buffer(replace(tensor, shape=dims, layout=Layout.NCHW16C), strides, Place(space))


def plain_view(matrix: Buffer, rank: int) -> Buffer:
    """Return the nchw type of an activation of *rank* dims whose bytes are *matrix*."""
    outer, depth, inner, rows = matrix.tensor.dims
    of_outer, _, of_inner, pitch = matrix.strides
    size = matrix.tensor.dtype.size
    if rank == 3:
        dims, strides = (inner, rows, 1, depth), (of_inner, pitch, pitch, size)
    else:
        dims, strides = (outer, inner, rows, depth), (of_outer, of_inner, pitch, size)
    return replace(
        matrix, tensor=replace(matrix.tensor, shape=dims, layout=Layout.NCHW), strides=strides
    )


def rows_of(value: Value, rank: int) -> Value | None:
    """Return buffer *value* of an activation of *rank* dims as a matrix, None if it is none."""
    buffer = buffer_type(value)
    (n, c, h, w), (of_n, of_c, of_h, of_w) = buffer.tensor.dims, buffer.strides
    brick = LANES * buffer.tensor.dtype.size
    if rank == 2 and buffer.tensor.layout is Layout.NCHW16C:
        return _seen(value, (1, c, 1, n), (of_n, of_c, of_n, of_n))
    if buffer.tensor.layout is not Layout.NCHW or of_w != buffer.tensor.dtype.size:
        return None
    if rank == 3:
        return _seen(value, (1, w, n, c), (of_n, brick, of_n, of_c))
    return _seen(value, (n, w, c, h), (of_n, brick, of_c, of_h)) if rank == 4 else None


def columns_of(value: Value, rank: int) -> Value | None:
    """Return buffer *value* of rank 3 as the transposed matrix: its middle dim in bricks."""
    buffer = buffer_type(value)
    if rank != 3 or buffer.tensor.layout is not Layout.NCHW16C:
        return None
    (n, c, _, w), (of_n, of_c, _, of_w) = buffer.tensor.dims, buffer.strides
    return _seen(value, (1, c, n, w), (of_n, of_c, of_n, of_w))


def _seen(value: Value, dims: tuple[int, ...], strides: tuple[int, ...]) -> Value | None:
    """Return a view of *value* in bricks, None where bricks would not lie in its root's words."""
    buffer = buffer_type(value)
    tensor = replace(buffer.tensor, shape=dims, layout=Layout.NCHW16C)
    seen = replace(buffer, tensor=tensor, strides=strides)
    root, offset = root_of(value)
    brick = LANES * tensor.dtype.size
    steps = [s for s, n in zip(strides, geometry(seen).counts, strict=True) if n > 1]
    fits = offset + geometry(seen).extent <= geometry(buffer_type(root)).extent
    if buffer.lane or offset % brick or any(s % brick for s in steps) or not fits:
        return None
    whole = buffer_type(root).tensor
    if offset == 0 and (whole.dims, whole.layout) == (dims, Layout.NCHW16C):
        return root
    graph = root.owner.graph if root.owner is not None else None
    if graph is None:
        raise TypeError(f"%{root.name} is in no graph")
    view = View([root], {"offset": offset}, result_types=[seen])
    return graph.append(view).result
