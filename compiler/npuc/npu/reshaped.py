"""Looking at a buffer's elements in another shape or layout, where their order in memory allows it.

Invariant: a view enumerates the same elements in row-major order, and lies within its root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from npuabi.costs import WORD_BYTES
from npuabi.enums import Layout
from npuabi.geometry import LANES
from npuc.ir.core import Value
from npuc.ir.types import Buffer
from npuc.npu.regions import geometry, root_of
from npuc.npu.tasks import View, buffer_type

__all__ = ["reshaped"]

_Dims = list[tuple[int, int]]
"""(extent, stride in bytes) of dims, in row-major order."""


def reshaped(value: Value, wanted: Buffer) -> Value | None:
    """Return *value* seen with the dims and layout of *wanted*; None where it must be copied."""
    buffer = buffer_type(value)
    if buffer.tensor.dtype is not wanted.tensor.dtype:
        return None
    strides = _planes(buffer, wanted) or _elements(buffer, wanted)
    if strides is None:
        return None
    root, offset = root_of(value)
    place = buffer_type(root).place
    seen = replace(wanted, strides=strides, place=place, lane=0)
    if not _lies_well(seen, offset) or offset + geometry(seen).extent > _extent(root):
        return None
    if root.owner is None or root.owner.graph is None:
        raise TypeError(f"%{root.name} is in no graph")
    view = View([root], {"offset": offset}, result_types=[seen])
    return root.owner.graph.append(view).result


def _planes(buffer: Buffer, wanted: Buffer) -> tuple[int, ...] | None:
    """Return the strides of the same bricks with their pixels in other rows."""
    old, new = buffer.tensor, wanted.tensor
    if old.layout is not Layout.NCHW16C or new.layout is not old.layout or buffer.lane:
        return None
    if old.dims[:2] != new.dims[:2]:
        return None
    pixels = list(zip(old.dims[2:], buffer.strides[2:], strict=True))
    found = _refactored(pixels, new.dims[2:])
    if found is None:
        return None
    rows = [s or d for (_, s), d in zip(found, wanted.strides[2:], strict=True)]
    return (*buffer.strides[:2], *rows)


def _elements(buffer: Buffer, wanted: Buffer) -> tuple[int, ...] | None:
    """Return the strides that enumerate the same elements one by one."""
    source = _dims_of(buffer)
    found = None if source is None else _refactored(source, _extents(wanted))
    return None if found is None else _strides(found, wanted)


def _extent(root: Value) -> int:
    return geometry(buffer_type(root)).extent


def _dims_of(buffer: Buffer) -> _Dims | None:
    """Return the dims of a buffer; None when channels run through bricks that lie apart."""
    (n, c, h, w), (of_n, of_c, of_h, of_w) = buffer.tensor.dims, buffer.strides
    rest = [(h, of_h), (w, of_w)]
    if buffer.tensor.layout is not Layout.NCHW16C:
        return [(n, of_n), (c, of_c), *rest]
    size = buffer.tensor.dtype.size
    if buffer.lane:
        return None
    if c <= LANES or of_c == LANES * size:
        return [(n, of_n), (c, size), *rest]
    if c % LANES:
        return None
    return [(n, of_n), (c // LANES, of_c), (LANES, size), *rest]


def _extents(wanted: Buffer) -> list[int]:
    n, c, h, w = wanted.tensor.dims
    bricked = wanted.tensor.layout is Layout.NCHW16C and c > LANES and c % LANES == 0
    return [n, c // LANES, LANES, h, w] if bricked else [n, c, h, w]


def _refactored(source: _Dims, extents: Sequence[int]) -> _Dims | None:
    """Return strides for *extents* that enumerate the elements of *source*, None if there are none.

    Both are cut into runs of as many elements; within a run the source must be evenly spaced.
    """
    old = [(n, stride) for n, stride in source if n > 1]
    found: _Dims = []
    queue = list(extents)
    while queue:
        run, elements = [queue.pop(0)], 1
        spaced: _Dims = []
        product = run[0]
        while elements != product:
            if elements < product and old:
                spaced.append(old.pop(0))
                elements *= spaced[-1][0]
            elif elements > product and queue:
                run.append(queue.pop(0))
                product *= run[-1]
            else:
                return None
        if any(a[1] != b[0] * b[1] for a, b in pairwise(spaced)):
            return None
        step = spaced[-1][1] if spaced else 0
        strides = []
        for extent in reversed(run):
            strides.append((extent, step))
            step *= extent
        found += reversed(strides)
    return None if old else found


def _strides(found: _Dims, wanted: Buffer) -> tuple[int, ...] | None:
    """Return the strides of a buffer like *wanted*; None where its bricks or rows would be cut."""
    size = wanted.tensor.dtype.size
    plain = wanted.tensor.layout is not Layout.NCHW16C
    if len(found) == len(wanted.tensor.dims) + 1:
        lanes = found.pop(2)[1]
        of_c = found[1][1]
    else:
        lanes, of_c = (size, found[1][1]) if plain else (found[1][1], LANES * size)
    if not plain and wanted.tensor.dims[1] > 1 and lanes != size:
        return None
    strides = [stride for _, stride in found]
    strides[1] = of_c
    return tuple(s or d for s, d in zip(strides, wanted.strides, strict=True))


def _lies_well(seen: Buffer, offset: int) -> bool:
    """Whether bricks lie on bricks, rows on words, and the elements of a row side by side.

    A stripe may begin at any row, and a tensor begins on a word.
    """
    size, counts = seen.tensor.dtype.size, geometry(seen).counts
    steps = [s for s, n in zip(seen.strides, counts, strict=True) if n > 1]
    if seen.tensor.layout is Layout.NCHW16C:
        brick = LANES * size
        return offset % brick == 0 and all(step % brick == 0 for step in steps)
    if offset % WORD_BYTES or any(step % WORD_BYTES for step in steps if step != size):
        return False
    return counts[3] == 1 or seen.strides[3] == size or seen.tensor.layout is Layout.NHWC
